//! The resources that clients read, and which objects of them a request selects.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::write_log::Version;

/// A namespaced resource.
#[derive(Debug)]
pub(crate) struct Resource {
    /// Its name in the record of writes.
    pub(crate) storage: &'static str,
    /// The path of its group and version.
    pub(crate) root: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) api_version: &'static str,
    kind: &'static str,
    /// What each object in JSON begins with, and an item of a list does not: `None` for a custom
    /// resource, whose items are whole objects.
    lead: Option<&'static str>,
}

/// The resources of all scenarios.
pub(crate) static RESOURCES: [Resource; 3] = [
    Resource {
        storage: "/configmaps",
        root: "/api/v1",
        plural: "configmaps",
        api_version: "v1",
        kind: "ConfigMap",
        lead: Some("{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\","),
    },
    Resource {
        storage: "/pods",
        root: "/api/v1",
        plural: "pods",
        api_version: "v1",
        kind: "Pod",
        lead: Some("{\"kind\":\"Pod\",\"apiVersion\":\"v1\","),
    },
    Resource {
        storage: "example.com/widgets",
        root: "/apis/example.com/v1",
        plural: "widgets",
        api_version: "example.com/v1",
        kind: "Widget",
        lead: None,
    },
];

/// The namespaces. The second sorts before the first as a key, and after it as a name.
pub(crate) const NAMESPACES: [&str; 3] = ["ns1", "ns1-a", "ns2"];
/// The values of the label `app`.
pub(crate) const LABELS: [&str; 3] = ["red", "green", "blue"];
/// The nodes of pods. A write may move a pod, which selects it for other watches.
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// How many names a writer draws from, in each namespace.
const NAMES: usize = 12;

/// The objects that a list or a watch selects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<&'static str>,
    /// The required value of the label `app`.
    pub(crate) label: Option<&'static str>,
    /// The required node, of pods.
    pub(crate) node: Option<&'static str>,
}

impl Selection {
    /// Selects all objects of a resource.
    pub(crate) fn all(resource: &'static Resource) -> Self {
        Self { resource, namespace: None, label: None, node: None }
    }

    /// Draws a selection.
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Self {
        let resource = &RESOURCES[rng.usize(..RESOURCES.len())];
        let namespace = (rng.u8(..3) == 0).then(|| NAMESPACES[rng.usize(..NAMESPACES.len())]);
        let label = (rng.u8(..3) == 0).then(|| LABELS[rng.usize(..LABELS.len())]);
        let has_nodes = resource.plural == "pods" && rng.bool();
        let node = has_nodes.then(|| NODES[rng.usize(..NODES.len())]);
        Self { resource, namespace, label, node }
    }

    /// Whether it selects an object in this state.
    pub(crate) fn matches(&self, version: &Version) -> bool {
        let namespace = version.key.split('/').next();
        self.namespace.is_none_or(|wanted| namespace == Some(wanted))
            && self.label.is_none_or(|wanted| version.label == wanted)
            && self.node.is_none_or(|wanted| version.node == wanted)
    }

    /// Returns the path and the query of a request.
    pub(crate) fn path(&self, parameters: &str) -> String {
        let Resource { root, plural, .. } = self.resource;
        let scope = match self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        };
        let selector = self.label.map(|label| format!("labelSelector=app%3D{label}"));
        let node = self.node.map(|node| format!("fieldSelector=spec.nodeName%3D{node}"));
        let [selector, node] = [&selector, &node].map(|part| part.as_deref().unwrap_or_default());
        let query = [parameters, selector, node].into_iter();
        let query: Vec<&str> = query.filter(|part| !part.is_empty()).collect();
        if query.is_empty() { scope } else { format!("{scope}?{}", query.join("&")) }
    }
}

impl Resource {
    /// Whether the API server writes it in protobuf: a built-in resource.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.lead.is_some()
    }

    /// Returns an object in the form in which it stands in a list.
    pub(crate) fn item(&self, json: &[u8]) -> Vec<u8> {
        match self.lead.and_then(|lead| json.strip_prefix(lead.as_bytes())) {
            Some(rest) => [b"{", rest].concat(),
            None => json.to_vec(),
        }
    }

    /// Draws an object to write.
    pub(crate) fn object(&self, rng: &mut fastrand::Rng) -> Value {
        let namespace = NAMESPACES[rng.usize(..NAMESPACES.len())];
        let name = format!("{}-{}", self.plural, rng.usize(..NAMES));
        let mut object = json!({
            "kind": self.kind, "apiVersion": self.api_version,
            "metadata": {"name": name, "namespace": namespace,
                "labels": {"app": LABELS[rng.usize(..LABELS.len())]}},
        });
        let text = format!("<a&b> {}", rng.u32(..));
        let padding = "x".repeat(rng.usize(..200));
        let (field, value) = match self.plural {
            "configmaps" => ("data", json!({"text": text, "padding": padding})),
            "pods" => (
                "spec",
                json!({"nodeName": NODES[rng.usize(..NODES.len())], "containers": [
                {"name": "c", "image": "none", "env": [{"name": "T", "value": text}]}]}),
            ),
            _ => ("spec", json!({"color": text, "padding": padding})),
        };
        object[field] = value;
        object
    }
}

/// The definition of the custom resource, in one of many versions. Each has a default of its own,
/// which API servers add to what they read: it changes all bytes, and no resourceVersion.
pub(crate) fn definition(version: u32) -> Value {
    let field = format!("{DEFAULTED}{}", version % 4);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {
                "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList",
            },
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "description": format!("version {version}"),
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"spec": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {field: {"type": "string", "default": "gray"}},
                    }},
                }}}],
        },
    })
}

/// Returns the JSON without the fields that a definition adds by default: they depend on the
/// definition of the moment, and no resourceVersion tells which one that is.
pub(crate) fn without_defaults(json: Bytes) -> Bytes {
    let start = format!(",\"{DEFAULTED}");
    let mut rest = &*json;
    let mut plain = Vec::new();
    while let Some(at) = rest.windows(start.len()).position(|part| part == start.as_bytes()) {
        plain.extend_from_slice(&rest[..at]);
        rest = rest.get(at + start.len() + DEFAULTED_REST..).unwrap_or_default();
    }
    if plain.is_empty() {
        return json;
    }
    plain.extend_from_slice(rest);
    plain.into()
}

/// How the names of fields with defaults begin. They sort behind the other fields.
pub(crate) const DEFAULTED: &str = "shade";
/// The length of what follows: `0":"gray"`.
const DEFAULTED_REST: usize = 9;
