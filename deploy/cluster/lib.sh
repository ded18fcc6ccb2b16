# shellcheck shell=bash
# What the scripts of this folder share; sourced, never run.
# shellcheck disable=SC2034 # the scripts that source this use here, cache, bin and the addresses
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cofferdam-cluster}
bin=$cache/bin

# The same in every cluster: each has a network of its own.
host=10.200.0.1 node_address=10.200.0.2
pods=10.244.0.0/24 services=10.96.0.0/16 dns=10.96.0.10

say() { printf '%s\n' "$*" >&2; }
die() {
  say "$(basename "$0"): $*"
  exit 1
}

# need_state: the directory of a running cluster, from $CLUSTER_STATE.
need_state() {
  state=${CLUSTER_STATE:-}
  [ -n "$state" ] || die "CLUSTER_STATE is not set; up.sh prints it"
  [ -f "$state/.cofferdam-cluster" ] || die "$state holds no cluster"
}

# starttime PID: the kernel's start time of a process that has not ended; with the id it names one process for good.
starttime() {
  local stat fields
  { read -r stat </proc/"$1"/stat; } 2>/dev/null || return 1
  read -r -a fields <<<"${stat##*) }"
  [ "${fields[0]}" != Z ] || return 1
  printf '%s\n' "${fields[19]}"
}

# note NAME PID: remembers a process.
note() { printf '%s %s\n' "$2" "$(starttime "$2")" >"$state/pids/$1"; }

# alive NAME: whether the process that was remembered under that name still runs.
alive() {
  local pid started
  { read -r pid started <"$state/pids/$1"; } 2>/dev/null || return 1
  [ "$(starttime "$pid")" = "$started" ]
}

# child PID: the only child of a process that waits for it.
child() {
  local children=''
  { read -r children <"/proc/$1/task/$1/children"; } 2>/dev/null || true
  [ -n "$children" ] || return 1
  printf '%s\n' "${children%% *}"
}

# pid_of NAME: the process that start began, as seen from here.
pid_of() {
  local pid
  alive "$1" || return 1
  read -r pid _ <"$state/pids/$1"
  child "$pid"
}

# in_machine COMMAND...: runs a command in the network of the cluster's machine, where the API server is and pods can be reached.
in_machine() { nsenter -t "$(pid_of machine)" -n -- "$@"; }

# in_node COMMAND...: runs a command in the namespaces of the node. (`ip netns exec` would not do: it hides the cgroups.)
in_node() { nsenter -t "$(node_pid)" -m -n -p -C -- "$@"; }

# node_pid: process 1 of the node, as seen from here.
node_pid() { child "$(pid_of node)"; }

# start NAME COMMAND...: runs a program on the cluster's machine, its log in log/NAME.
start() {
  local name=$1
  shift
  printf '%s\0' "$@" >"$state/commands/$name"
  launch "$name"
}

# launch NAME: runs what start was given under that name once more.
launch() {
  local argv
  mapfile -d '' -t argv <"$state/commands/$1"
  setsid nsenter -t "$(pid_of machine)" -n -p -- "${argv[@]}" </dev/null >>"$state/log/$1" 2>&1 &
  note "$1" $!
  disown
}

# await SECONDS WHAT COMMAND...: repeats a command until it succeeds, and gives up early when a program of the cluster has ended.
await() {
  local deadline=$((SECONDS + $1)) what=$2 file
  shift 2
  until "$@" >/dev/null 2>&1; do
    for file in "$state"/pids/*; do
      alive "${file##*/}" || {
        tail -n 5 "$state/log/${file##*/}" >&2 || true
        die "${file##*/} ended while waiting for $what"
      }
    done
    [ "$SECONDS" -lt "$deadline" ] || die "gave up waiting for $what"
    sleep 0.1
  done
}

# until_true SECONDS COMMAND...: repeats a command until it succeeds.
until_true() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.1
  done
}

# destroy DIRECTORY: ends the cluster of that state directory, whole or half started, and removes everything it left. Every
# process of it is in one pid namespace, whose end is theirs.
destroy() {
  local state=$1 pid inner='' dir status=0
  if alive machine; then
    read -r pid _ <"$state/pids/machine"
    inner=$(child "$pid") || true
    # SIGKILL: on SIGTERM the API server waits for its watchers and for etcd. unshare takes its child along.
    kill -9 "$pid" 2>/dev/null || true
    until_true 20 ended "$pid" || status=1
    if [ -n "$inner" ]; then until_true 20 ended "$inner" || status=1; fi
  fi
  if [ -f "$state/cgroups" ]; then
    while read -r dir; do until_true 20 remove_cgroup "$dir" || status=1; done <"$state/cgroups"
  fi
  if [ -n "${CLUSTER_LOGS:-}" ] && [ -d "$state/log" ]; then
    mkdir -p "$CLUSTER_LOGS" && cp -R "$state/log/." "$CLUSTER_LOGS/"
  fi
  [ "$status" = 0 ] || die "something of the cluster in $state is left"
  rm -rf -- "$state"
}
ended() { ! starttime "$1"; }
remove_cgroup() {
  [ ! -e "$1" ] || find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
  [ ! -e "$1" ]
}

# sweep: removes what is left of clusters that were killed without down.sh.
sweep() {
  local state
  for state in "${TMPDIR:-/tmp}"/cofferdam-cluster.*; do
    [ -f "$state/.cofferdam-cluster" ] || continue
    alive machine || (destroy "$state") || true
  done
}
