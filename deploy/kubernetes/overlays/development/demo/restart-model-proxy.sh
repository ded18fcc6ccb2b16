#!/bin/sh
# For `cofferdam demo --restart-model-proxy`: deletes its pods, and returns when the next ones are ready.
set -eu
"${KUBECTL:-kubectl}" -n cofferdam-system delete pod -l app.kubernetes.io/name=modelproxy --grace-period=0 --force
exec "${KUBECTL:-kubectl}" -n cofferdam-system rollout status deployment/modelproxy --timeout=60s
