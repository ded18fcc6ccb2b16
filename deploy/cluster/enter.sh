#!/usr/bin/env bash
# enter.sh [--node] COMMAND...: runs a command in the network of the cluster of $CLUSTER_STATE: the API server and the pods can be
# reached there by address, and nothing else can, the machine's own loopback neither. Exports CLUSTER_STATE, CLUSTER_BIN,
# CLUSTER_SCRIPTS, KUBECONFIG (cluster-admin; use --as=NAME for less) and KUBECTL. With --node the command runs in all the
# namespaces of the node.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
need_state
where=(-n)
pid=$(pid_of machine) || die "the cluster of $state has ended"
if [ "${1:-}" = --node ]; then
  shift
  where=(-m -n -p -C)
  pid=$(node_pid) || die "the node of $state has ended"
fi
[ $# -gt 0 ] || die "usage: enter.sh [--node] COMMAND..."
export CLUSTER_STATE=$state CLUSTER_BIN=$bin CLUSTER_SCRIPTS=$here KUBECONFIG=$state/admin.kubeconfig KUBECTL=$bin/kubectl
exec nsenter -t "$pid" "${where[@]}" -- "$@"
