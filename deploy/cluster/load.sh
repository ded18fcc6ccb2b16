#!/usr/bin/env bash
# load.sh ARCHIVE...: gives images (tar archives of OCI layouts, as `make images` writes them) to the node of $CLUSTER_STATE and
# prints the references under which pods can use them, with imagePullPolicy IfNotPresent or Never.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || die "usage: load.sh ARCHIVE..."
need_state
for archive in "$@"; do
  in_node "$bin/ctr" -n k8s.io images import --snapshotter "$(sed -n 's/^ *snapshotter = "\(.*\)"$/\1/p' "$state/node/containerd.toml")" - <"$archive" >/dev/null
  tar -xOf "$archive" index.json | grep -o '"io.containerd.image.name": *"[^"]*"' | cut -d'"' -f4
done
