#!/bin/sh
# For `cofferdam demo --kill-worker`: deletes the pod whose uid stands as sandbox.instance_uid in the binding on stdin.
set -eu
uid=$(sed -n 's/.*"instance_uid":"\([A-Za-z0-9._-]*\)".*/\1/p')
name=$("${KUBECTL:-kubectl}" -n cofferdam-sandboxes get pods -o jsonpath="{range .items[?(@.metadata.uid=='$uid')]}{.metadata.name}{end}")
[ -n "$name" ] || { echo "no pod in cofferdam-sandboxes has the uid $uid" >&2; exit 1; }
exec "${KUBECTL:-kubectl}" -n cofferdam-sandboxes delete pod "$name" --grace-period=0 --force
