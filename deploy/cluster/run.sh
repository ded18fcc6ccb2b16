#!/usr/bin/env bash
# run.sh COMMAND...: starts a cluster, runs one command in its network (see enter.sh), and ends the cluster. Exits as the command
# does. However this script ends, the cluster and the command end with it; what the command started does too, unless it was SIGKILL.
# Variables: those of up.sh.
# shellcheck source=cluster.sh
. "$(dirname "$0")/cluster.sh"
[ $# -gt 0 ] || die "usage: run.sh COMMAND..."

# shellcheck disable=SC2034 # read by cluster_up
die_with_parent=1
state=''
command=''
on_exit() {
  local status=$?
  trap '' INT TERM HUP
  # The command has a session, so a process group, of its own: what it started ends as well.
  if [ -n "$command" ]; then
    kill -TERM -- "-$command" 2>/dev/null || true
    until_true 10 gone "$command" || kill -KILL -- "-$command" 2>/dev/null || true
  fi
  [ ! -f "$state/.cofferdam-cluster" ] || destroy "$state"
  exit "$status"
}
gone() { ! kill -0 -- "-$1"; }
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cluster_up
setsid setpriv --pdeathsig KILL "$here/enter.sh" "$@" </dev/null &
command=$!
wait "$command"
