//! A stored object: its encoded form, and the values that lists and watches select by, which are
//! extracted once at the write.
//!
//! It holds only the bytes and not the decoded tree, which would be several times larger: a demo
//! has many pods.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::defaults;
use super::encode;
use super::json::{array, text};
use super::kinds::Kind;
use super::normalize::normalize;
use super::protobuf::{self, UnknownField};
use super::raw_bytes::in_json;

/// One state of one object.
#[derive(Debug)]
pub(super) struct Object {
    /// `namespace/name`, or `name`: the sort key.
    pub(super) key: Arc<str>,
    /// Empty for none.
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub(super) revision: u64,
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    /// The values of its kind's own selectable fields.
    pub(super) fields: Vec<(Box<str>, Box<str>)>,
    /// The uids of its owners.
    pub(super) owners: Vec<Box<str>>,
    /// The JSON in the version in which it was written, without a newline.
    pub(super) json: Bytes,
    /// The `apiVersion` within `json`.
    pub(super) api_version: Box<str>,
    /// Its protobuf message, encoded at the first use.
    protobuf: OnceLock<Bytes>,
    /// The decoded state, for objects that are read often.
    decoded: OnceLock<Arc<Value>>,
}

impl Object {
    /// Encodes and indexes a state whose resourceVersion is already set.
    pub(super) fn new(kind: &Kind, revision: u64, value: Value) -> Self {
        let value = normalize(kind, value);
        let (namespace, name) =
            (text(&value, "/metadata/namespace"), text(&value, "/metadata/name"));
        let owners = array(&value, "/metadata/ownerReferences").iter();
        Self {
            key: key(namespace, name).into(),
            namespace: namespace.into(),
            name: name.into(),
            uid: text(&value, "/metadata/uid").into(),
            revision,
            labels: labels(&value),
            fields: indexed(kind, &value),
            owners: owners.map(|owner| text(owner, "/uid").into()).collect(),
            api_version: text(&value, "/apiVersion").into(),
            json: encode::encode(&value),
            protobuf: OnceLock::new(),
            decoded: OnceLock::new(),
        }
    }

    /// Returns its protobuf message, without an envelope. All versions of a built-in kind have the
    /// same message.
    pub(super) fn protobuf(&self, kind: &Kind) -> Result<Bytes, UnknownField> {
        if let Some(bytes) = self.protobuf.get() {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(protobuf::message(&kind.kind, &self.value())?);
        Ok(self.protobuf.get_or_init(|| bytes).clone())
    }

    /// Decodes the state.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// Returns the decoded state and caches it. Only for objects that are few and read often, such
    /// as roles.
    pub(super) fn decoded(&self) -> Arc<Value> {
        Arc::clone(self.decoded.get_or_init(|| Arc::new(self.value())))
    }

    /// Returns the bytes in the version of `kind`: the stored ones, or re-encoded with another
    /// `apiVersion` and its defaults.
    pub(super) fn render(&self, kind: &Kind) -> Bytes {
        if *self.api_version == *kind.api_version() && !kind.defaults {
            return in_json(self.json.clone());
        }
        in_json(encode::encode(&normalize(kind, self.served(kind))))
    }

    /// Returns the decoded state in the version of `kind`.
    pub(super) fn served(&self, kind: &Kind) -> Value {
        let mut value = self.value();
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), kind.api_version().into());
        }
        if kind.defaults {
            defaults::apply(&kind.schema, &mut value);
        }
        value
    }

    /// Returns the same state with another resourceVersion: the object of a DELETED event
    /// (`docs/semantics.md` §5.5).
    pub(super) fn at(&self, kind: &Kind, revision: u64) -> Self {
        let mut value = self.value();
        set_revision(&mut value, revision);
        Self::new(kind, revision, value)
    }
}

/// Sets `metadata.resourceVersion`.
pub(super) fn set_revision(value: &mut Value, revision: u64) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
}

/// Returns the storage key of an object.
pub(super) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn labels(value: &Value) -> Vec<(Box<str>, Box<str>)> {
    let map = value.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

/// Returns the values that selectors match: those of the object as it is served.
fn indexed(kind: &Kind, value: &Value) -> Vec<(Box<str>, Box<str>)> {
    if !kind.defaults {
        return fields(kind, value);
    }
    let mut served = value.clone();
    defaults::apply(&kind.schema, &mut served);
    fields(kind, &served)
}

/// Returns the values of the fields that a kind's selectors may name besides name and namespace
/// (`docs/semantics.md` §7.2).
fn fields(kind: &Kind, value: &Value) -> Vec<(Box<str>, Box<str>)> {
    let flag = |pointer: &str| match value.pointer(pointer) {
        Some(Value::Bool(true)) => "true",
        _ => "false",
    };
    let named = labels_of(kind).iter().map(|label| {
        let field_text = match *label {
            "spec.hostNetwork" => flag("/spec/hostNetwork").to_owned(),
            "spec.unschedulable" => flag("/spec/unschedulable").to_owned(),
            "status.podIP" => text(value, "/status/podIPs/0/ip").to_owned(),
            "status.podIPs" => String::new(),
            "source" => text(value, "/source/component").to_owned(),
            label => printed(value.pointer(&pointer(label))),
        };
        ((*label).into(), field_text.into())
    });
    let custom = kind.indexed.iter().map(|path| {
        let label = path.trim_start_matches('.');
        (label.into(), printed(value.pointer(&pointer(label))).into())
    });
    named.chain(custom).collect()
}

/// Returns the field labels of a built-in kind besides `metadata.name` and `metadata.namespace`.
pub(super) fn labels_of(kind: &Kind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    }
}

/// Returns `a.b` as `/a/b`.
fn pointer(label: &str) -> String {
    format!("/{}", label.replace('.', "/"))
}

/// Returns a JSON value as field selectors compare it.
fn printed(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
