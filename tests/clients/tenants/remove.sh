#!/usr/bin/env bash
# Deletes what setup.sh created.
#
#     remove.sh DIRECT_KUBECONFIG
set -euo pipefail

admin() { kubectl --kubeconfig "$1" delete --ignore-not-found --wait=false "${@:2}" >/dev/null; }

admin "$1" namespace weir-tenant-a weir-tenant-b weir-tenant-c
admin "$1" clusterrole weir-tenant weir-tenant-dashboard
admin "$1" clusterrolebinding weir-tenant-dashboard
