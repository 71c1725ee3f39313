#!/usr/bin/env bash
# kubectl as a tenant of two namespaces, and as a dashboard that impersonates the tenant: what may I
# do, lists and watches of all namespaces, and a permission that is taken away.
#
#     kubectl.sh DIRECTORY ADMIN_KUBECONFIG
#
# setup.sh has written the kubeconfigs of the directory. Every wait has a condition and a limit.
set -Eeuo pipefail

directory=$1
admin=$2
work=$(mktemp -d)
who=tenant
. "$(dirname "$0")/../waits.sh"
tenant=system:serviceaccount:weir-tenant-a:tenant
groups=(--as-group=system:serviceaccounts --as-group=system:serviceaccounts:weir-tenant-a)

trap 'jobs -p | xargs -r kill 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'printf "kubectl: line %s failed\n" "$LINENO" >&2' ERR

# by USER.SIDE ARGUMENTS...
by() { kubectl --kubeconfig "$directory/$1" --cache-dir "$work/cache-$1" "${@:2}"; }
admin() { kubectl --kubeconfig "$admin" --cache-dir "$work/cache-admin" "$@"; }

# The user gets the same output, errors and code with and without Weir.
equal_now() {
  local user=$1 code_through=0 code_direct=0
  shift
  by "$user.through" "$@" >"$work/through" 2>&1 || code_through=$?
  by "$user.direct" "$@" >"$work/direct" 2>&1 || code_direct=$?
  [[ $code_through == "$code_direct" ]] && cmp -s "$work/through" "$work/direct"
}
same() { until_ok "kubectl of $1: ${*:2} prints the same" equal_now "$@"; }

# Weir's cache or its roles have answered the last request.
from_memory() {
  by "$@" -v=8 2>&1 | grep -i 'x-weir-cache' | tail -n 1 | grep -q hit
}
answered() { until_ok "$* is answered from memory" from_memory "$@"; }

# What the tenant lists of all namespaces is what the API server lists of each.
is_union() {
  local list=$1 namespace
  shift
  by tenant.through get "$list" -A -o json "$@" >"$work/all" 2>/dev/null || return 1
  names "$work/all" >"$work/through"
  for namespace in $visible; do
    by tenant.direct get "$list" -n "$namespace" -o json >"$work/one"
    names "$work/one"
  done >"$work/direct"
  [[ -s $work/through ]] && cmp -s "$work/through" "$work/direct"
}
# Each object's key and resourceVersion.
names() {
  python3 -c 'import json, sys
for item in json.load(open(sys.argv[1]))["items"]:
    print(*(item["metadata"][field] for field in ("namespace", "name", "resourceVersion")))' "$1"
}

may_i() {
  step 'asks what it may do'
  local verb resource namespace
  for namespace in weir-tenant-a weir-tenant-b weir-tenant-c default; do
    for resource in configmaps pods secrets deployments.apps deployments.apps/scale; do
      for verb in list delete; do
        same tenant auth can-i "$verb" "$resource" -n "$namespace"
      done
    done
  done
  same tenant auth can-i list configmaps -A
  same tenant auth can-i get /version
  same tenant auth can-i --list -n weir-tenant-a
  same tenant auth whoami -o yaml
  same dashboard auth can-i impersonate serviceaccounts/tenant -n weir-tenant-a
  answered tenant.through auth can-i list configmaps -n weir-tenant-b
}

lists() {
  step 'lists what it may see'
  visible='weir-tenant-a weir-tenant-b'
  until_ok 'all is the union of its namespaces' is_union configmaps
  until_ok 'pages are, too' is_union configmaps --chunk-size=2
  until_ok 'names are printed' shows weir-tenant-b listed-3
  ! by tenant.through get configmaps -A | grep -q weir-tenant-c || fail 'a foreign namespace is shown'
  by tenant.through get namespaces -o name >"$work/namespaces"
  printf 'namespace/weir-tenant-%s\n' a b | cmp - "$work/namespaces"
  same tenant get secrets -A
  same tenant get configmaps -n weir-tenant-c
  same tenant get configmaps -n weir-tenant-a -o yaml
  answered tenant.through get --raw "/api/v1/namespaces/weir-tenant-a/configmaps?resourceVersion=0"
}
shows() { by tenant.through get configmaps -A | grep -q "^$1  *$2 "; }

watches() {
  step 'watches what it may see'
  kubectl --kubeconfig "$directory/tenant.through" get configmaps -A -w -o json --output-watch-events \
    >"$work/watch" 2>&1 &
  local watch=$!
  until_ok 'the watch begins with what is there' saw ADDED listed-3
  admin create configmap unseen -n weir-tenant-c >/dev/null
  admin create configmap seen -n weir-tenant-b >/dev/null
  until_ok 'a new object is seen' saw ADDED seen
  ! grep -q unseen "$work/watch" || fail 'a foreign object is seen'
  admin delete configmap seen -n weir-tenant-b >/dev/null
  until_ok 'its deletion is seen' saw DELETED seen
  kill "$watch"
  wait "$watch" 2>/dev/null || true
}

saw() { grep -q "\"type\":\"$1\".*\"name\":\"$2\"" "$work/watch"; }

impersonates() {
  step 'is impersonated by a dashboard'
  local as=("--as=$tenant" "${groups[@]}")
  same dashboard get configmaps -n weir-tenant-a -o json "${as[@]}"
  same dashboard get configmaps -n weir-tenant-c "${as[@]}"
  same dashboard get configmaps -n weir-tenant-a
  same dashboard get configmaps -n weir-tenant-a --as=system:serviceaccount:weir-tenant-a:other
  same dashboard get configmaps -n weir-tenant-a --as=admin --as-group=system:masters
  same dashboard auth can-i list configmaps -n weir-tenant-b "${as[@]}"
  answered dashboard.through get --raw "/api/v1/namespaces/weir-tenant-a/configmaps?resourceVersion=0" "${as[@]}"
}

loses() {
  step 'loses a namespace, then all'
  admin delete rolebinding tenant -n weir-tenant-b >/dev/null
  visible=weir-tenant-a
  until_ok 'only one namespace is left' is_union configmaps
  admin delete rolebinding tenant -n weir-tenant-a >/dev/null
  same tenant get configmaps -A
  for namespace in weir-tenant-a weir-tenant-b; do
    admin create rolebinding tenant -n "$namespace" --clusterrole=weir-tenant \
      --serviceaccount=weir-tenant-a:tenant >/dev/null
  done
  visible='weir-tenant-a weir-tenant-b'
  until_ok 'both are back' is_union configmaps
}

may_i
lists
watches
impersonates
loses
