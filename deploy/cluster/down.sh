#!/usr/bin/env bash
# Ends the cluster of $CLUSTER_STATE and removes everything it left: processes, namespaces, links, cgroups, files. With
# CLUSTER_LOGS=FOLDER its logs are kept there.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
need_state
destroy "$state"
