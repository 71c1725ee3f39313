//! The objects and the grants: objects with a canary in every Secret, roles and bindings.

use serde_json::{Value, json};

use super::users::WEIR;

const RBAC: &str = "rbac.authorization.k8s.io";

/// All objects by the path of their collection, in the order of creation.
pub(crate) fn objects(canary: &str, impersonate: bool) -> Vec<(String, Value)> {
    let mut objects =
        vec![("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), widgets())];
    for namespace in ["a", "b"] {
        objects.push(("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": namespace}})));
        let account = json!({"metadata": {"name": "robot"}});
        objects.push((format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account));
        for name in ["x", "y"] {
            let metadata = json!({"name": name, "labels": {"app": name}});
            let core = format!("/api/v1/namespaces/{namespace}");
            let containers = json!([{"name": "c", "image": "none"}]);
            let template =
                json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}});
            let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template});
            objects.extend([
                (format!("{core}/configmaps"), json!({"metadata": metadata, "data": {"k": "<&>"}})),
                (format!("{core}/secrets"), json!({"metadata": metadata, "stringData": {"k": secret(canary)}})),
                (format!("{core}/pods"), json!({"metadata": metadata, "spec": {"containers": containers}})),
                (format!("/apis/apps/v1/namespaces/{namespace}/deployments"), json!({"metadata": metadata, "spec": spec})),
                (
                    format!("/apis/example.com/v1/namespaces/{namespace}/widgets"),
                    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"n": 1}}),
                ),
            ]);
        }
    }
    for name in ["x", "y"] {
        objects.push(("/api/v1/nodes".to_owned(), json!({"metadata": {"name": name}})));
    }
    objects.extend(grants(impersonate));
    objects
}

/// The value of every Secret.
pub(crate) fn secret(canary: &str) -> String {
    format!("secret-{canary}")
}

fn grants(impersonate: bool) -> Vec<(String, Value)> {
    const READ: [&str; 3] = ["get", "list", "watch"];
    let rule = |verbs: &[&str], group: &str, resources: &[&str]| json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
    let named = |mut rule: Value, names: &[&str]| {
        rule["resourceNames"] = json!(names);
        rule
    };
    let user = |name: &str| json!({"kind": "User", "apiGroup": RBAC, "name": name});
    let group = |name: &str| json!({"kind": "Group", "apiGroup": RBAC, "name": name});
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "a"});
    let core = ["configmaps", "pods", "nodes", "namespaces"];
    let most = json!([
        rule(&READ, "", &core),
        rule(&READ, "apps", &["deployments"]),
        rule(&READ, "example.com", &["widgets"])
    ]);
    let mut roles = Vec::new();
    roles.extend(role("", "weir", weir(impersonate), &[user(WEIR)]));
    roles.extend(role("", "readers", most, &[group("readers")]));
    let devs = json!([
        rule(&READ, "", &["configmaps", "pods"]),
        rule(&["get", "list"], "apps", &["deployments"])
    ]);
    roles.extend(role("a", "devs", devs, &[group("devs"), robot]));
    let one = json!([
        named(rule(&READ, "", &["configmaps"]), &["x"]),
        named(rule(&["get"], "", &["namespaces"]), &["a"])
    ]);
    roles.extend(role("", "one", one, &[user("nina")]));
    roles.extend(role("a", "secrets", json!([rule(&READ, "", &["secrets"])]), &[user("sven")]));
    let subresources = json!([
        rule(&["get"], "", &["pods/status", "*/log"]),
        rule(&["get"], "apps", &["deployments/scale"])
    ]);
    roles.extend(role("", "subresources", subresources, &[user("sue")]));
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/nope", "/logs/*"]}]);
    roles.extend(role("", "paths", paths, &[user("nora")]));
    // Every resource but Secrets, by name: `*` allows no exception.
    let gets = json!([rule(
        &["get"],
        "*",
        &["configmaps", "pods", "nodes", "widgets", "deployments", "*/status"]
    )]);
    roles.extend(role("", "gets", gets, &[user("gus")]));
    roles.extend(role("b", "maps", json!([rule(&["*"], "", &["configmaps"])]), &[user("dan")]));
    roles.extend(role(
        "",
        "accounts",
        json!([rule(&READ, "example.com", &["*"])]),
        &[group("system:serviceaccounts:a")],
    ));
    let impersonate = |group: &str, resource: &str, names: &[&str]| {
        named(rule(&["impersonate"], group, &[resource]), names)
    };
    let as_others = json!([
        impersonate("", "users", &["tom", "system:anonymous"]),
        impersonate("", "groups", &["devs", "readers"]),
        impersonate("authentication.k8s.io", "uids", &["u-1"]),
        impersonate("authentication.k8s.io", "userextras/a/scope", &["view"])
    ]);
    roles.extend(role("", "as-others", as_others, &[user("ida")]));
    let as_robot = json!([impersonate("", "serviceaccounts", &["robot"])]);
    roles.extend(role("a", "as-robot", as_robot, &[user("ida")]));
    roles.extend(role("", "odd", json!([rule(&["list"], "", &["pods"])]), &[user("<&>\"")]));
    // A binding of a role that does not exist, which the 403 mentions.
    let gone = role("", "gone", json!([]), &[user("mia")]);
    roles.extend(gone.into_iter().skip(1));
    roles
}

/// Exactly the permissions that Weir needs: resources to cache, reviews, and the cluster's CAs.
fn weir(impersonate: bool) -> Value {
    let rule = |verbs: &[&str], group: &str, resources: &[&str]| json!({"verbs": verbs, "apiGroups": [group], "resources": resources});
    let read = ["list", "watch"];
    let mut rules = json!([
        rule(&read, "", &["configmaps", "pods", "nodes", "namespaces", "secrets"]),
        rule(&read, "apps", &["deployments"]),
        rule(&read, "example.com", &["widgets"]),
        rule(&read, "apiextensions.k8s.io", &["customresourcedefinitions"]),
        rule(&read, "apiregistration.k8s.io", &["apiservices"]),
        rule(&["create"], "authentication.k8s.io", &["tokenreviews"]),
        rule(&["create"], "authorization.k8s.io", &["subjectaccessreviews"]),
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"]},
        rule(&read, RBAC, &["roles", "rolebindings", "clusterroles", "clusterrolebindings"]),
    ]);
    if impersonate {
        // The extra field of every certificate, and the one that the front proxy sends.
        let extras = ["userextras/authentication.kubernetes.io/credential-id", "userextras/a/b"];
        let more = [
            rule(&["impersonate"], "", &["users", "groups"]),
            rule(&["impersonate"], "authentication.k8s.io", &["uids", extras[0], extras[1]]),
        ];
        rules.as_array_mut().unwrap().extend(more);
    }
    rules
}

/// A role and its binding, in a namespace or for the cluster.
pub(crate) fn role(
    namespace: &str,
    name: &str,
    rules: Value,
    subjects: &[Value],
) -> Vec<(String, Value)> {
    let (prefix, plural, place) = match namespace {
        "" => ("Cluster", "cluster", String::new()),
        namespace => ("", "", format!("/namespaces/{namespace}")),
    };
    let base = format!("/apis/{RBAC}/v1{place}/{plural}");
    let reference = json!({"apiGroup": RBAC, "kind": format!("{prefix}Role"), "name": name});
    vec![
        (format!("{base}roles"), json!({"metadata": {"name": name}, "rules": rules})),
        (
            format!("{base}rolebindings"),
            json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": reference}),
        ),
    ]
}

fn widgets() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}}});
    let names = json!({"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"});
    json!({"metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}})
}
