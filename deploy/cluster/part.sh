#!/usr/bin/env bash
# part.sh stop|start NAME: stops (by SIGKILL) or starts again one program of the cluster of $CLUSTER_STATE: sandbox-controller,
# scheduler, controller-manager, apiserver or etcd.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
need_state
usage() { die "usage: part.sh stop|start NAME, where NAME is one of: $(cd "$state/commands" && printf '%s ' *)"; }
{ [ $# = 2 ] && [ -f "$state/commands/$2" ] && [ "$2" != node ]; } || usage
case $1 in
stop)
  alive "$2" || die "$2 does not run"
  pid=$(pid_of "$2")
  kill -9 "$pid"
  until_true 20 ended "$pid" || die "$2 does not end"
  rm -f "$state/pids/$2"
  ;;
start)
  ! alive "$2" || die "$2 runs"
  launch "$2"
  ;;
*) usage ;;
esac
