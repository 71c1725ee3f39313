//! Cases from real clusters, in the form in which `kubectl get -o json` shows the objects.

use serde_json::{Value, json};

use super::{Objects, build, user};
use crate::auth::rbac::index::IndexWriter;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::rule::Action;

fn key(plural: &'static str, namespace: &str, name: &str) -> (&'static str, String, String) {
    (plural, namespace.to_owned(), name.to_owned())
}

fn to(kind: &str, role: &str, subjects: &Value) -> Value {
    json!({"subjects": subjects, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
}

/// Parses `verb group resource/subresource namespace name`, where `-` stands for an empty string,
/// or `verb /path`.
fn action(text: &str) -> Action<'_> {
    let words: Vec<_> = text.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    match words.as_slice() {
        [verb, path] => Action::NonResource { verb, path },
        [verb, group, resource, namespace, name] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            Action::Resource { verb, group, resource, subresource, namespace, name }
        }
        _ => panic!("{text}"),
    }
}

fn cluster() -> Objects {
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
    let service_account = |name: &str| json!([{"kind": "ServiceAccount", "name": name}]);
    let user = |name: &str| json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}]);
    let group = |name: &str| json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}]);
    let mut named = rule(&["get", "watch", "list"], &[""], &["configmaps"]);
    named["resourceNames"] = json!(["settings", "*"]);
    let urls = |urls: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": urls});
    let aggregated = json!({
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]},
        "rules": [rule(&["get"], &["example.com"], &["widgets"])],
    });
    let uncollected = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": null});
    Objects::from([
        (
            key("clusterroles", "", "admin"),
            json!({"rules": [rule(&["*"], &["*"], &["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]}),
        ),
        (
            key("clusterroles", "", "pods"),
            json!({"rules": [rule(&["get", "list"], &[""], &["pods", "pods/log"])]}),
        ),
        (
            key("clusterroles", "", "scaler"),
            json!({"rules": [rule(&["update"], &["*"], &["*/scale"])]}),
        ),
        (
            key("clusterroles", "", "discovery"),
            json!({"rules": [urls(&["/api", "/api/*", "/healthz*"])]}),
        ),
        (key("clusterroles", "", "view"), aggregated),
        (key("clusterroles", "", "empty"), uncollected),
        (key("roles", "one", "named"), json!({"rules": [named]})),
        (key("roles", "one", "urls"), json!({"rules": [urls(&["*"])]})),
        (key("clusterrolebindings", "", "admin"), to("ClusterRole", "admin", &user("root"))),
        (
            key("clusterrolebindings", "", "discovery"),
            to("ClusterRole", "discovery", &group("system:authenticated")),
        ),
        (
            key("clusterrolebindings", "", "scaler"),
            to(
                "ClusterRole",
                "scaler",
                &json!([{"kind": "ServiceAccount", "namespace": "one", "name": "scaler"}]),
            ),
        ),
        (
            key("clusterrolebindings", "", "nowhere"),
            to("ClusterRole", "admin", &service_account("scaler")),
        ),
        (key("clusterrolebindings", "", "role"), to("Role", "named", &user("mallory"))),
        (key("clusterrolebindings", "", "missing"), to("ClusterRole", "missing", &user("mallory"))),
        (key("clusterrolebindings", "", "empty"), to("ClusterRole", "empty", &user("mallory"))),
        (
            key("rolebindings", "one", "pods"),
            to("ClusterRole", "pods", &group("system:serviceaccounts:one")),
        ),
        (key("rolebindings", "one", "local"), to("ClusterRole", "pods", &service_account("local"))),
        (key("rolebindings", "two", "local"), to("ClusterRole", "pods", &service_account("local"))),
        (key("rolebindings", "one", "admin"), to("ClusterRole", "admin", &user("boss"))),
        (key("rolebindings", "one", "named"), to("Role", "named", &user("alice"))),
        (key("rolebindings", "one", "urls"), to("Role", "urls", &user("alice"))),
        (key("rolebindings", "two", "named"), to("Role", "named", &user("alice"))),
        (key("rolebindings", "two", "view"), to("ClusterRole", "view", &user("alice"))),
    ])
}

#[test]
fn typical_clusters_are_decided_as_by_kubernetes() {
    let index = build(&cluster()).index();
    let authenticated = ["system:authenticated"];
    let in_one = ["system:serviceaccounts", "system:serviceaccounts:one", "system:authenticated"];
    let cases: &[(&str, &[&str], &str, bool)] = &[
        // A cluster administrator.
        ("root", &[], "delete apps deployments/scale one a", true),
        ("root", &[], "post /anything", true),
        ("somebody", &["system:masters"], "delete apps deployments one a", true),
        ("somebody", &["system:mastersx"], "delete apps deployments one a", false),
        // A cluster role bound in a namespace applies only there.
        ("boss", &[], "delete apps deployments one a", true),
        ("boss", &[], "delete apps deployments two a", false),
        ("boss", &[], "delete apps deployments - a", false),
        ("boss", &[], "get /version", false),
        // Subresources.
        ("robot", &in_one, "get - pods one a", true),
        ("robot", &in_one, "get - pods/log one a", true),
        ("robot", &in_one, "get - pods/exec one a", false),
        ("robot", &in_one, "get - pods two a", false),
        ("robot", &in_one, "get apps pods one a", false),
        ("robot", &in_one, "watch - pods one -", false),
        ("system:serviceaccount:one:scaler", &[], "update apps deployments/scale two a", true),
        ("system:serviceaccount:one:scaler", &[], "update apps deployments two a", false),
        ("system:serviceaccount:one:scaler", &[], "update apps deployments/status two a", false),
        ("system:serviceaccount:two:scaler", &[], "update apps deployments/scale two a", false),
        // Resource names: the request must name the object, and `*` is an ordinary name.
        ("alice", &[], "get - configmaps one settings", true),
        ("alice", &[], "list - configmaps one settings", true),
        ("alice", &[], "list - configmaps one -", false),
        ("alice", &[], "get - configmaps one other", false),
        ("alice", &[], "get - secrets one settings", false),
        ("alice", &[], "get - configmaps one *", true),
        // A role of another namespace, and a role referred to by a cluster role binding.
        ("alice", &[], "get - configmaps two settings", false),
        ("mallory", &[], "get - configmaps one settings", false),
        ("mallory", &[], "get - pods one a", false),
        // Aggregated rules count as the controller wrote them.
        ("alice", &[], "get example.com widgets two a", true),
        // A service account without a namespace is in that of the binding. A cluster role binding
        // has none, so there the subject applies to no one.
        ("system:serviceaccount:one:local", &[], "get - pods one a", true),
        ("system:serviceaccount:one:local", &[], "get - pods two a", false),
        ("system:serviceaccount:two:local", &[], "get - pods two a", true),
        ("system:serviceaccount::scaler", &[], "get - pods two a", false),
        // Paths have no namespace.
        ("alice", &authenticated, "get /api", true),
        ("alice", &authenticated, "get /api/v1", true),
        ("alice", &authenticated, "get /apis", false),
        ("alice", &authenticated, "get /healthz/etcd", true),
        ("alice", &authenticated, "post /api", false),
        ("alice", &[], "get /api", false),
        // User names are case-sensitive.
        ("Root", &[], "get - pods one a", false),
        ("root", &[], "get - pods one a", true),
        // A group name is not a user name.
        ("system:authenticated", &[], "get /api", false),
    ];
    for &(name, groups, text, expected) in cases {
        let allowed = index.allows(&user(name, groups), &action(text));
        assert_eq!(allowed, expected, "{name} {groups:?}: {text}");
    }
}

/// A binding before its role, two bindings that give the same role, a role that is removed and
/// added again, and one that becomes unreadable.
#[test]
fn roles_and_bindings_are_added_and_removed_in_any_order() {
    let mut writer = IndexWriter::default();
    let alice = user("alice", &[]);
    let get_pods = action("get - pods one a");
    let allows = |writer: &IndexWriter| writer.index().allows(&alice, &get_pods);
    let (role, binding) = (RbacResource::ClusterRoles, RbacResource::RoleBindings);
    let rules = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})
        .to_string();
    let subjects = json!([{"kind": "User", "name": "alice"}, {"kind": "User", "name": "alice"}]);
    let given = to("ClusterRole", "pods", &subjects).to_string();

    writer.put(binding, "one", "b", given.as_bytes());
    assert!(!allows(&writer));
    writer.put(role, "", "pods", rules.as_bytes());
    assert!(allows(&writer));
    writer.put(binding, "one", "c", given.as_bytes());
    writer.remove(binding, "one", "b");
    assert!(allows(&writer));
    writer.remove(role, "", "pods");
    assert!(!allows(&writer));
    writer.put(role, "", "pods", rules.as_bytes());
    assert!(allows(&writer));
    writer.put(role, "", "pods", br#"{"rules":[{"verbs":"get"}]}"#);
    assert!(!allows(&writer));
    assert_eq!((writer.len(role), writer.unreadable(role)), (1, 1));
    writer.put(role, "", "pods", rules.as_bytes());
    assert!(allows(&writer) && writer.unreadable(role) == 0);
    writer.remove(binding, "one", "c");
    assert!(!allows(&writer));
}
