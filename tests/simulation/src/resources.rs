//! The resources that clients read, and which objects of them a request selects.

use std::sync::atomic::{AtomicBool, Ordering};

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
    /// The text with which each object in JSON begins, and an item of a list does not; `None` for a
    /// custom resource, whose items are whole objects.
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

/// Whether clients and writers draw from everything.
static IS_VARIED: AtomicBool = AtomicBool::new(false);

/// Lets clients and writers draw from everything, or from what the first plans knew: whole objects
/// with a label, few selectors, few starts. Those plans would change their meaning. A process runs
/// one plan.
pub(crate) fn vary(is_varied: bool) {
    IS_VARIED.store(is_varied, Ordering::Relaxed);
}

/// Whether clients and writers draw from everything.
pub(crate) fn is_varied() -> bool {
    IS_VARIED.load(Ordering::Relaxed)
}

/// The objects that a list or a watch selects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<&'static str>,
    /// The name of the one object.
    pub(crate) name: Option<usize>,
    /// The requirement of the label `app`.
    pub(crate) label: Option<LabelTerm>,
    /// The required node, of pods.
    pub(crate) node: Option<&'static str>,
}

/// A requirement of a label selector. Some objects have no label.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LabelTerm {
    Is(&'static str),
    /// The label is not this one; an object without a label matches, too.
    IsNot(&'static str),
    OneOf([&'static str; 2]),
    Present,
    Absent,
}

impl Selection {
    /// Selects all objects of a resource.
    pub(crate) fn every_object(resource: &'static Resource) -> Self {
        Self { resource, namespace: None, name: None, label: None, node: None }
    }

    /// Draws a selection.
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Self {
        let resource = &RESOURCES[rng.usize(..RESOURCES.len())];
        let namespace = (rng.u8(..3) == 0).then(|| NAMESPACES[rng.usize(..NAMESPACES.len())]);
        let name = (is_varied() && rng.u8(..8) == 0).then(|| rng.usize(..NAMES));
        let label = (rng.u8(..3) == 0).then(|| LabelTerm::draw(rng));
        let has_nodes = resource.plural == "pods" && rng.bool();
        let node = has_nodes.then(|| NODES[rng.usize(..NODES.len())]);
        Self { resource, namespace, name, label, node }
    }

    /// Whether it selects an object in this state.
    pub(crate) fn matches(&self, version: &Version) -> bool {
        let (namespace, name) = version.key.split_once('/').unwrap_or_default();
        self.namespace.is_none_or(|wanted| namespace == wanted)
            && self.name.is_none_or(|wanted| name == self.resource.name(wanted))
            && self.label.is_none_or(|wanted| wanted.holds(&version.label))
            && self.node.is_none_or(|wanted| version.node == wanted)
    }

    /// Returns the path and the query of a request.
    pub(crate) fn path(&self, parameters: &str) -> String {
        let Resource { root, plural, .. } = self.resource;
        let scope = match self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        };
        let labels = self.label.map(|label| format!("labelSelector={}", label.text()));
        let name = self.name.map(|name| format!("metadata.name%3D{}", self.resource.name(name)));
        let node = self.node.map(|node| format!("spec.nodeName%3D{node}"));
        let fields: Vec<String> = name.into_iter().chain(node).collect();
        let fields = match fields.as_slice() {
            [] => String::new(),
            fields => format!("fieldSelector={}", fields.join("%2C")),
        };
        let query = [parameters, labels.as_deref().unwrap_or_default(), &fields].into_iter();
        let query: Vec<&str> = query.filter(|part| !part.is_empty()).collect();
        if query.is_empty() { scope } else { format!("{scope}?{}", query.join("&")) }
    }
}

impl LabelTerm {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let at = rng.usize(..LABELS.len());
        let (label, next) = (LABELS[at], LABELS[(at + 1) % LABELS.len()]);
        if !is_varied() {
            return Self::Is(label);
        }
        match rng.u8(..8) {
            0 => Self::IsNot(label),
            1 => Self::OneOf([label, next]),
            2 => Self::Present,
            3 => Self::Absent,
            _ => Self::Is(label),
        }
    }

    /// Whether it holds for a value of the label, which is empty where there is no label.
    fn holds(self, value: &str) -> bool {
        match self {
            Self::Is(wanted) => value == wanted,
            Self::IsNot(other) => value != other,
            Self::OneOf(wanted) => wanted.contains(&value),
            Self::Present => !value.is_empty(),
            Self::Absent => value.is_empty(),
        }
    }

    /// Returns the text in a query.
    fn text(self) -> String {
        match self {
            Self::Is(wanted) => format!("app%3D{wanted}"),
            Self::IsNot(other) => format!("app%21%3D{other}"),
            Self::OneOf([one, other]) => format!("app%20in%20%28{one}%2C{other}%29"),
            Self::Present => "app".to_owned(),
            Self::Absent => "%21app".to_owned(),
        }
    }
}

impl Resource {
    /// Returns the name of an object.
    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.plural)
    }

    /// Returns the names of all objects in a namespace.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (0..NAMES).map(|number| self.name(number))
    }

    /// Returns the kind and the version of objects in a form, and those of lists.
    pub(crate) fn kind(&self, is_metadata: bool, is_list: bool) -> (String, &'static str) {
        let (kind, version) = match is_metadata {
            true => ("PartialObjectMetadata", "meta.k8s.io/v1"),
            false => (self.kind, self.api_version),
        };
        (format!("{kind}{}", if is_list { "List" } else { "" }), version)
    }

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
        let name = self.name(rng.usize(..NAMES));
        let mut object = json!({
            "kind": self.kind, "apiVersion": self.api_version,
            "metadata": {"name": name, "namespace": namespace},
        });
        if !is_varied() || rng.u8(..5) > 0 {
            object["metadata"]["labels"] = json!({"app": LABELS[rng.usize(..LABELS.len())]});
        }
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
/// definition of the moment, and no resourceVersion shows which one that is.
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
