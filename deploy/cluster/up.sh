#!/usr/bin/env bash
# Starts a cluster and waits until it is ready. Prints, for eval, how to use it:
#   eval "$(deploy/cluster/up.sh)"
# sets and exports CLUSTER_STATE. A start that fails, or is interrupted, leaves nothing.
# Variables: CLUSTER_CACHE, CLUSTER_STATE (an empty or new folder), CLUSTER_LOGS, GVISOR=1; see README.md.
# shellcheck source=cluster.sh
. "$(dirname "$0")/cluster.sh"

state=''
finished=0
on_exit() {
  local status=$?
  [ "$finished" = 1 ] || [ ! -f "$state/.cofferdam-cluster" ] || destroy "$state"
  exit "$status"
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cluster_up
finished=1
printf 'export CLUSTER_STATE=%q\n' "$state"
