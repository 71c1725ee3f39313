//! The initial objects of every cluster.

use serde_json::{Value, json};

use super::options::ClientCertificates;
use super::store::Store;
use super::write::{create, register};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Creates the initial namespaces, roles and other objects. With client certificates it also
/// creates the ConfigMap by which delegated servers learn the CAs (`docs/semantics.md` §12.1).
pub(super) fn bootstrap(store: &Store, certificates: Option<&ClientCertificates>) {
    let registry = store.registry();
    let add = |group: &str, resource: &str, namespace: &str, object: Value| {
        let kind = registry.find(group, "v1", resource);
        // The creation does not fail, because the store is empty.
        drop(kind.map(|kind| create(store, &kind, namespace, object, false)));
    };
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        add("", "namespaces", "", json!({"metadata": {"name": name}}));
        add("", "serviceaccounts", name, json!({"metadata": {"name": "default"}}));
    }
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let ports = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]);
    let service = json!({"metadata": {"name": "kubernetes", "labels": labels},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": ports}});
    add("", "services", "default", service);
    for (name, rules, groups) in cluster_roles() {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        add(RBAC, "clusterroles", "", role);
        if groups.is_empty() {
            continue;
        }
        let subject = |group: &&str| json!({"kind": "Group", "apiGroup": RBAC, "name": group});
        let subjects: Vec<Value> = groups.iter().map(subject).collect();
        let binding = json!({"metadata": {"name": name}, "subjects": subjects,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}});
        add(RBAC, "clusterrolebindings", "", binding);
    }
    if let Some(certificates) = certificates {
        add("", "configmaps", "kube-system", authentication(certificates));
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"],
            "resourceNames": [AUTHENTICATION], "verbs": ["get", "list", "watch"]}]);
        let name = format!("{AUTHENTICATION}-reader");
        add(RBAC, "roles", "kube-system", json!({"metadata": {"name": name}, "rules": rules}));
    }
    for (group, versions) in registry.groups() {
        for version in versions {
            register(store, group, version, None);
        }
    }
}

/// Returns the default cluster roles, and the groups that are bound to them.
fn cluster_roles() -> [(&'static str, Value, &'static [&'static str]); 5] {
    const EVERYONE: &[&str] = &["system:authenticated", "system:unauthenticated"];
    let get = |paths: &[&str]| json!([{"nonResourceURLs": paths, "verbs": ["get"]}]);
    let create = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["create"]});
    let (authentication, authorization) = ("authentication.k8s.io", "authorization.k8s.io");
    [
        (
            "cluster-admin",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
            &["system:masters"],
        ),
        (
            "system:auth-delegator",
            json!([
                create(authentication, &["tokenreviews"]),
                create(authorization, &["subjectaccessreviews"])
            ]),
            &[],
        ),
        (
            "system:basic-user",
            json!([
                create(authorization, &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                create(authentication, &["selfsubjectreviews"]),
            ]),
            &["system:authenticated"],
        ),
        (
            "system:discovery",
            get(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ]),
            &["system:authenticated"],
        ),
        (
            "system:public-info-viewer",
            get(&["/healthz", "/livez", "/readyz", "/version", "/version/"]),
            EVERYONE,
        ),
    ]
}

/// Returns the ConfigMap from which delegated servers learn the trusted CAs.
fn authentication(certificates: &ClientCertificates) -> Value {
    let mut data = json!({"client-ca-file": certificates.ca});
    if let Some(ca) = &certificates.request_header_ca {
        let names = json!(certificates.request_header_allowed_names).to_string();
        for (key, value) in [
            ("requestheader-allowed-names", names.as_str()),
            ("requestheader-client-ca-file", ca),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ] {
            data[key] = value.into();
        }
    }
    json!({"metadata": {"name": AUTHENTICATION}, "data": data})
}

const AUTHENTICATION: &str = "extension-apiserver-authentication";
