//! The resources and scopes that are written and read.

use fastrand::Rng;
use serde_json::{Value, json};

/// The paths of the collections in all namespaces.
pub(super) const COLLECTIONS: [&str; 3] =
    ["/api/v1/configmaps", "/api/v1/pods", "/apis/example.com/v1/widgets"];

/// The prefixes of their keys in etcd.
pub(super) const PREFIXES: [&str; 3] =
    ["/registry/configmaps/", "/registry/pods/", "/registry/example.com/widgets/"];

/// A collection: a resource in one namespace, or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    pub(super) resource: usize,
    pub(super) namespace: Option<&'static str>,
}

impl Scope {
    /// Returns all scopes that are read.
    pub(super) fn every_scope() -> Vec<Self> {
        let namespaces = [None, Some("a"), Some("a-b")];
        let scope = |resource| namespaces.map(|namespace| Self { resource, namespace });
        (0..COLLECTIONS.len()).flat_map(scope).collect()
    }

    pub(super) fn path(self) -> String {
        let Some(namespace) = self.namespace else { return COLLECTIONS[self.resource].to_owned() };
        let (group, plural) = COLLECTIONS[self.resource].rsplit_once('/').unwrap();
        format!("{group}/namespaces/{namespace}/{plural}")
    }

    /// Whether it has an object.
    pub(super) fn contains(self, key: &str) -> bool {
        let mut parts = key.splitn(3, '/');
        parts.next().is_some_and(|resource| resource.parse() == Ok(self.resource))
            && parts.next().is_some_and(|object_namespace| {
                self.namespace.is_none_or(|namespace| namespace == object_namespace)
            })
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path())
    }
}

/// Returns an object to create.
pub(super) fn new_object(resource: usize, metadata: &Value, rng: &mut Rng) -> Value {
    let mut object = json!({"metadata": metadata});
    let text = "x".repeat(rng.usize(10..400));
    match resource {
        0 => object["data"] = json!({"text": text}),
        1 => object["spec"] = json!({"containers": [{"name": "c", "image": "i", "args": [text]}]}),
        _ => {
            object["apiVersion"] = json!("example.com/v1");
            object["kind"] = json!("Widget");
            object["spec"] = json!({"color": "red", "text": text});
        }
    }
    object
}
