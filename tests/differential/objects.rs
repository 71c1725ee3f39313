//! The objects to read: many kinds, some with values that are hard to encode; and the writes after
//! the caches have begun.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use super::read_request::Marks;
use super::wire::{Answer, Call, Connection, Endpoint};

/// A resource's collection path, its name in `Marks`, and an object of it.
type Object = (String, &'static str, Value);

/// Creates all objects, and returns the marks `old`: the first write to each resource, or the last
/// of all for resources that are not written again.
pub(crate) async fn fill(direct: &Endpoint, marks: &mut Marks) {
    let mut connection = direct.connection();
    let mut last = 0;
    for (path, resource, object) in objects() {
        let made = create(&mut connection, &path, &object).await;
        last = revision(&made.json());
        marks.versions.entry((resource, "old")).or_insert(last);
    }
    for resource in UNTOUCHED {
        for mark in ["old", "recent", "current"] {
            marks.versions.insert((resource, mark), last);
        }
    }
}

/// Writes twice to each resource, so that `recent` is another state than `current`.
pub(crate) async fn touch(direct: &Endpoint, marks: &mut Marks) {
    let mut connection = direct.connection();
    let mut first = HashMap::new();
    for (path, resource, mut object) in objects() {
        if UNTOUCHED.contains(&resource) || first.contains_key(resource) {
            continue;
        }
        object["metadata"]["name"] = "late".into();
        let made = create(&mut connection, &path, &object).await;
        first.insert(resource, revision(&made.json()));
        let patch = json!({"metadata": {"annotations": {"touched": "<&>"}}});
        let call = Call::json(Method::PATCH, &format!("{path}/late"), &patch);
        let patched = connection.send(&call).await;
        assert_eq!(patched.status, 200, "{call}: {}", String::from_utf8_lossy(&patched.body));
        marks.versions.insert((resource, "recent"), first[resource]);
        marks.versions.insert((resource, "current"), revision(&patched.json()));
    }
}

/// Creates an object; a definition that is not served yet may delay this.
pub(crate) async fn create(connection: &mut Connection, path: &str, object: &Value) -> Answer {
    for _ in 0..CREATE_TRIES {
        let made = connection.send(&Call::json(Method::POST, path, object)).await;
        match made.status {
            200 | 201 => return made,
            403 | 404 | 429 | 500..=504 => tokio::time::sleep(CREATE_PAUSE).await,
            _ => panic!("{path}: {} {}", made.status, String::from_utf8_lossy(&made.body)),
        }
    }
    panic!("{path} is not served");
}

/// Returns an object's resourceVersion.
pub(crate) fn revision(object: &Value) -> u64 {
    let digits = object["metadata"]["resourceVersion"].as_str();
    digits.unwrap_or_else(|| panic!("no object: {object}")).parse().unwrap()
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn objects() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut put = |path: &str, resource, api_version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind});
        for (key, value) in rest.as_object().into_iter().flatten() {
            object[key.as_str()] = value.clone();
        }
        objects.push((path.to_owned(), resource, object));
    };
    for (plural, kind, scope) in [
        ("widgets", "Widget", "Namespaced"),
        ("gadgets", "Gadget", "Cluster"),
        ("trinkets", "Trinket", "Namespaced"),
    ] {
        let crd = definition(plural, kind, scope);
        put(
            crds,
            "customresourcedefinitions",
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            crd,
        );
    }
    for namespace in ["a", "a-b", "long", "short"] {
        put(
            "/api/v1/namespaces",
            "namespaces",
            "v1",
            "Namespace",
            json!({"metadata": meta(namespace)}),
        );
    }
    for name in ["n1", "n2"] {
        put("/api/v1/nodes", "nodes", "v1", "Node", json!({"metadata": meta(name)}));
    }
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    for namespace in ["a", "a-b"] {
        let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
        for name in ["x", "x.y", "x-y", "z"] {
            let data = json!({"t": "<&>\u{2028}\u{e9}\u{1}\"\\\n\u{1f600}\u{7f}"});
            put(
                &core("configmaps"),
                "configmaps",
                "v1",
                "ConfigMap",
                json!({"metadata": meta(name), "data": data}),
            );
            let mut spec = pod.clone();
            if name == "z" {
                spec["nodeName"] = "n1".into();
            }
            put(&core("pods"), "pods", "v1", "Pod", json!({"metadata": meta(name), "spec": spec}));
            let spec = json!({"n": 9007199254740993_i64, "big": 1e300, "small": -0.0, "e": 1e21, "f": 100000.0,
                "color": "grey", "list": [{}, [], null, "<&>\u{2029}"]});
            let widgets = format!("/apis/example.com/v1/namespaces/{namespace}/widgets");
            put(
                &widgets,
                "widgets",
                "example.com/v1",
                "Widget",
                json!({"metadata": meta(name), "spec": spec}),
            );
        }
        let secret = json!({"metadata": meta("s"), "type": "Opaque", "data": {"k": "dg=="}});
        put(&core("secrets"), "secrets", "v1", "Secret", secret);
        let service = json!({"metadata": meta("s"), "spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}});
        put(&core("services"), "services", "v1", "Service", service);
        put(&core("endpoints"), "endpoints", "v1", "Endpoints", json!({"metadata": meta("e")}));
        let spec = json!({"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod}});
        put(
            &format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            "deployments",
            "apps/v1",
            "Deployment",
            json!({"metadata": meta("d"), "spec": spec}),
        );
        let spec = json!({"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.000000Z"});
        put(
            &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            "leases",
            "coordination.k8s.io/v1",
            "Lease",
            json!({"metadata": meta("l"), "spec": spec}),
        );
    }
    // Just long enough to be compressed, and just too short (docs/semantics.md §8.7); in a
    // namespace of its own, because it is slow to read.
    for (namespace, size) in [("long", 133_000), ("short", 129_000)] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let data = json!({"t": "y".repeat(size)});
        let object = json!({"metadata": meta("long"), "data": data});
        put(&path, "configmaps", "v1", "ConfigMap", object);
    }
    put(
        "/apis/example.com/v1/gadgets",
        "gadgets",
        "example.com/v1",
        "Gadget",
        json!({"metadata": meta("g"), "spec": {"color": "red"}}),
    );
    objects
}

fn meta(name: &str) -> Value {
    json!({"name": name, "labels": {"app": name, "n": "5", "empty": "", "in": "in"},
        "annotations": {"z": "<&>\u{2028}", "a": "\u{e9}"}})
}

/// Two versions, the older one deprecated; selectable fields in one of them.
pub(crate) fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"color": {"type": "string"}, "n": {"type": "integer"}}}}}});
    // If both schemas were equal, they would count as one schema of all versions, which allows no
    // selectable fields of a version.
    let mut older = schema.clone();
    older["openAPIV3Schema"]["description"] = "older".into();
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}Collection")},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema,
                    "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}]},
                {"name": "v1beta1", "served": true, "storage": false, "schema": older, "deprecated": true},
            ]},
    })
}

/// Read, but not written after the caches have begun.
const UNTOUCHED: [&str; 6] = [
    "limitranges",
    "persistentvolumes",
    "customresourcedefinitions",
    "clusterroles",
    "events",
    "trinkets",
];

const CREATE_TRIES: u32 = 300;
const CREATE_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
