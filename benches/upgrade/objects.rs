//! The objects of the API server, and the numbers in those that change.

use serde_json::{Value, json};

/// A resource that is watched.
pub(crate) struct Resource {
    pub(crate) plural: &'static str,
    /// The path of the API group and version.
    group: &'static str,
    api_version: &'static str,
    kind: &'static str,
}

/// Those of which a control plane without controllers watches none by itself.
pub(crate) const RESOURCES: [Resource; 4] = [
    Resource { plural: "configmaps", group: "/api/v1", api_version: "v1", kind: "ConfigMap" },
    Resource { plural: "endpoints", group: "/api/v1", api_version: "v1", kind: "Endpoints" },
    Resource {
        plural: "endpointslices",
        group: "/apis/discovery.k8s.io/v1",
        api_version: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
    },
    Resource {
        plural: "poddisruptionbudgets",
        group: "/apis/policy/v1",
        api_version: "policy/v1",
        kind: "PodDisruptionBudget",
    },
];

pub(crate) const NAMESPACE: &str = "upgrade";
/// The object that changes.
pub(crate) const TICKER: &str = "ticker";

impl Resource {
    /// The path of all objects.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.group, self.plural)
    }

    /// The path of the objects of [`NAMESPACE`].
    pub(crate) fn namespaced(&self) -> String {
        format!("{}/namespaces/{NAMESPACE}/{}", self.group, self.plural)
    }

    pub(crate) fn object(&self, name: &str) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": name, "annotations": {"filler": "x".repeat(500), "tick": "0"}}});
        if let (Some(object), "EndpointSlice") = (object.as_object_mut(), self.kind) {
            object.insert("addressType".to_owned(), "IPv4".into());
            object.insert("endpoints".to_owned(), json!([]));
        }
        object
    }
}

/// The merge patch that sets the number of a change.
pub(crate) fn patch(tick: u64) -> Value {
    json!({"metadata": {"annotations": {"tick": tick.to_string()}}})
}

/// Returns the number of the change in an object in JSON.
pub(crate) fn tick(object: &str) -> Option<u64> {
    number_after(object, r#""tick":""#)
}

/// Returns the first resourceVersion in JSON.
pub(crate) fn resource_version(text: &str) -> Option<u64> {
    number_after(text, r#""resourceVersion":""#)
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    rest.split('"').next()?.parse().ok()
}
