#!/usr/bin/env bash
# Creates a tenant of two of three namespaces, and a dashboard that may impersonate the tenant.
#
#     setup.sh GATEWAY_KUBECONFIG DIRECT_KUBECONFIG DIRECTORY
#
# The second kubeconfig is an administrator's. Writes a kubeconfig of each user to the directory,
# through Weir and directly: tenant.through, tenant.direct, dashboard.through, dashboard.direct.
set -euo pipefail

gateway=$1
direct=$2
directory=$3

admin() { kubectl --kubeconfig "$direct" --cache-dir "$directory/cache" "$@"; }

# The server of a kubeconfig, with the token of another user.
kubeconfig() {
  local from=$1 to=$2 token=$3
  kubectl --kubeconfig "$from" config view --raw --minify --flatten >"$to"
  chmod 600 "$to"
  kubectl --kubeconfig "$to" config set-credentials user --token="$token" >/dev/null
  kubectl --kubeconfig "$to" config set-context --current --user=user >/dev/null
}

# The simulated cluster has no schemas to validate with.
admin apply --validate=false -f - >/dev/null <<'YAML'
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: weir-tenant-a}}
- {apiVersion: v1, kind: Namespace, metadata: {name: weir-tenant-b}}
- {apiVersion: v1, kind: Namespace, metadata: {name: weir-tenant-c}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant, namespace: weir-tenant-a}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: dashboard, namespace: weir-tenant-a}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: weir-tenant}
  rules:
  - {apiGroups: [""], resources: [configmaps, pods, namespaces], verbs: [get, list, watch]}
  - {apiGroups: [apps], resources: [deployments], verbs: ["*"]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: weir-tenant-dashboard}
  rules:
  - apiGroups: [""]
    resources: [serviceaccounts]
    verbs: [impersonate]
    resourceNames: [tenant]
  - apiGroups: [""]
    resources: [groups]
    verbs: [impersonate]
    resourceNames: ["system:serviceaccounts", "system:serviceaccounts:weir-tenant-a", "system:authenticated"]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: weir-tenant-dashboard}
  subjects: [{kind: ServiceAccount, name: dashboard, namespace: weir-tenant-a}]
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: weir-tenant-dashboard}
YAML
for namespace in weir-tenant-a weir-tenant-b weir-tenant-c; do
  for number in 1 2 3; do
    admin create configmap "listed-$number" -n "$namespace" --from-literal="number=$number" >/dev/null
  done
done
for namespace in weir-tenant-a weir-tenant-b; do
  admin create rolebinding tenant -n "$namespace" --clusterrole=weir-tenant \
    --serviceaccount=weir-tenant-a:tenant >/dev/null
done
for user in tenant dashboard; do
  # `create token` sends protobuf, which the simulated cluster does not read here.
  token=$(admin create --raw "/api/v1/namespaces/weir-tenant-a/serviceaccounts/$user/token" -f - \
    <<<'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}' |
    grep -o '"token": *"[^"]*"' | cut -d'"' -f4)
  kubeconfig "$gateway" "$directory/$user.through" "$token"
  kubeconfig "$direct" "$directory/$user.direct" "$token"
done
