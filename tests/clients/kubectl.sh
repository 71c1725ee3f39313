#!/usr/bin/env bash
# kubectl through Weir: common commands, compared with their output without Weir where it has no
# age.
#
#     kubectl.sh WEIR_KUBECONFIG [DIRECT_KUBECONFIG]
#
# Other changes in the cluster have no effect: it uses a namespace of its own, or one
# resourceVersion. Every wait has a condition and a limit.
set -Eeuo pipefail

weir=$1
direct=${2:-$1}
work=$(mktemp -d)
namespace=weir-clients-kubectl-$$
who=kubectl
. "$(dirname "$0")/waits.sh"

# Each with a discovery cache of its own, so that neither reads what the other has learnt.
through() { kubectl --kubeconfig "$weir" --cache-dir "$work/cache-weir" -n "$namespace" "$@"; }
# In the background: the process itself, to be waited for and killed.
behind() { exec kubectl --kubeconfig "$weir" --cache-dir "$work/cache-weir" -n "$namespace" "$@"; }
straight() { kubectl --kubeconfig "$direct" --cache-dir "$work/cache-direct" -n "$namespace" "$@"; }

cleanup() {
  # Jobs that still watch go with it.
  jobs -p | xargs -r kill 2>/dev/null || true
  through delete namespace "$namespace" --ignore-not-found --wait=false &>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'printf "kubectl: line %s failed\n" "$LINENO" >&2' ERR

# Both print the same now. What changes between the two is asked again.
equal_now() {
  through "$@" >"$work/through" && straight "$@" >"$work/direct" && cmp -s "$work/through" "$work/direct"
}
same() { until_ok "kubectl $* prints the same" equal_now "$@"; }

# The same without the column of ages, always the last of these.
equal_table() {
  through get "$@" | awk '{NF--} 1' >"$work/through"
  straight get "$@" | awk '{NF--} 1' >"$work/direct"
  cmp -s "$work/through" "$work/direct"
}

manifest() {
  cat <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "registry.example.com/none:$1"}]}
YAML
}

# Says for the kubelet that the pods are ready, where there is none.
make_ready() {
  local status='{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}' pod
  for pod in $(through get pods -l app=web -o name); do
    # It may have gone since, or be ready by itself.
    through patch "$pod" --subresource=status -p "$status" >/dev/null 2>&1 || true
  done
  ! kill -0 "$1" 2>/dev/null
}

lists() {
  step lists
  local number
  for number in 1 2 3 4 5; do
    through create configmap "listed-$number" --from-literal="number=$number" >/dev/null
  done
  same get configmaps -o json
  same get configmaps -o json --chunk-size=2
  same get configmaps -o yaml --chunk-size=2
  same get configmaps -o name --sort-by=.metadata.uid
  same get configmaps -o name --field-selector=metadata.name!=listed-1
  same get configmaps -A -o name --chunk-size=3
  same get configmap listed-2 -o jsonpath='{.data.number}'
  until_ok 'tables are the same' equal_table configmaps
  until_ok 'tables are the same' equal_table configmaps -A --chunk-size=2
  through describe configmap listed-3 | grep -q '^number:'
  ! through get configmap none 2>"$work/error" || fail 'found what is not there'
  grep -qF 'Error from server (NotFound): configmaps "none" not found' "$work/error"
}

raw() {
  step raw
  local path=/api/v1/pods version
  # What any resourceVersion came to, byte for byte, and pages of it by turns.
  through get --raw "$path?resourceVersion=0" >"$work/through"
  version=$(grep -o '"resourceVersion":"[0-9]*"' "$work/through" | head -1 | tr -dc 0-9)
  straight get --raw "$path?resourceVersion=$version&resourceVersionMatch=Exact" >"$work/direct"
  cmp "$work/through" "$work/direct"
  path="/api/v1/namespaces/$namespace/configmaps"
  through get --raw "$path?limit=2" >"$work/first"
  token=$(grep -o '"continue":"[^"]*"' "$work/first" | cut -d'"' -f4)
  through get --raw "$path?limit=2&continue=$token" >"$work/through"
  straight get --raw "$path?limit=2&continue=$token" >"$work/direct"
  cmp "$work/through" "$work/direct"
  same get --raw /version
  same get --raw /readyz
}

watches() {
  step watches
  touch "$work/watch"
  behind get configmaps -w --output-watch-events >"$work/watch" &
  local watch=$!
  saw() { grep -q "^$1  *$2 " "$work/watch"; }
  until_ok 'the watch begins with what is there' saw ADDED listed-5
  through create configmap watched --from-literal=key=value >/dev/null
  until_ok 'it is seen' saw ADDED watched
  through label configmap watched changed=yes >/dev/null
  until_ok 'its change is seen' saw MODIFIED watched
  behind wait --for=delete configmap/watched --timeout="${patience}s" >"$work/wait" &
  local wait=$!
  through delete configmap watched >/dev/null
  until_ok 'its end is seen' saw DELETED watched
  wait "$wait" || fail 'wait --for=delete'
  kill "$watch"
  wait "$watch" 2>/dev/null || true

  behind wait --for=jsonpath='{.data.key}'=new configmap/listed-1 --timeout="${patience}s" >"$work/wait" &
  wait=$!
  through patch configmap listed-1 --type=merge -p '{"data":{"key":"new"}}' >/dev/null
  wait "$wait" || fail 'wait --for=jsonpath'
}

rolls_out() {
  step 'applies and rolls out'
  manifest 1 >"$work/web.yaml"
  ! through diff -f "$work/web.yaml" >"$work/diff" || fail 'nothing to apply'
  grep -q '^+.*registry.example.com/none:1' "$work/diff"
  through apply -f "$work/web.yaml" | grep -q created
  rollout
  manifest 2 >"$work/web.yaml"
  ! through diff -f "$work/web.yaml" >"$work/diff" || fail 'nothing to apply'
  grep -q '^-.*none:1' "$work/diff"
  through apply -f "$work/web.yaml" | grep -q configured
  rollout
  through apply -f "$work/web.yaml" | grep -q unchanged
  # The simulator has no server-side apply.
  if straight apply --server-side --force-conflicts --dry-run=server -f "$work/web.yaml" &>/dev/null; then
    through apply --server-side --force-conflicts -f "$work/web.yaml" | grep -q serverside-applied
  else
    step 'skipped: server-side apply (the upstream has none)'
  fi
  through rollout history deployment/web | grep -q REVISION
  same get pods -l app=web -o json
  same get deployments,replicasets -o json
  until_ok 'tables are the same' equal_table deployments
  through delete deployment web --timeout="${patience}s" >/dev/null
  through wait --for=delete pods -l app=web --timeout="${patience}s" >/dev/null
}

rollout() {
  behind rollout status deployment/web --timeout="${patience}s" >"$work/rollout" &
  local rollout=$!
  until_ok 'the rollout ends' make_ready "$rollout"
  wait "$rollout" || fail 'rollout status'
  grep -q 'successfully rolled out' "$work/rollout"
  through wait --for=condition=Available deployment/web --timeout="${patience}s" >/dev/null
}

discovers() {
  step discovers
  same api-resources --sort-by=name
  same api-versions
  # The simulator has no schemas below this.
  same explain pods
  same auth can-i list pods
  through version >/dev/null
}

through create namespace "$namespace" >/dev/null
lists
raw
watches
rolls_out
discovers
