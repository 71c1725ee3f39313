//! Which field labels a kind's field selectors may name, and where their values stand in an object
//! (semantics.md §7.2).
//!
//! The same values stand in protobuf under numbers ([`protobuf`]).
//!
//! A value is read from the object's JSON as the upstream wrote it, by a path of object keys and a rule: no
//! object is decoded whole for it. Where the upstream's internal field and the served one differ, the table here
//! names the served one (`status.podIP` always equals the first of `status.podIPs`).
//!
//! What is missing here costs speed, never truth: a selector with an unknown label is forwarded.

mod protobuf;

use std::borrow::Cow;

use crate::api::resource::{GroupVersionResource, Representation};

/// The selectable fields of one resource besides `metadata.name` and `metadata.namespace`, in a fixed order.
/// An object's values are kept in the same order ([`Attrs::fields`](crate::codec::attrs::Attrs::fields)). The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields {
    sources: Vec<FieldSource>,
    /// Whether `metadata.namespace` is refused.
    without_namespace: bool,
    /// Older labels and those that they are rewritten to.
    aliases: &'static [(&'static str, &'static str)],
    indexed: Option<usize>,
}

/// Where the value of one field label stands in an object's JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSource {
    /// The label, such as `spec.nodeName`.
    pub label: Box<str>,
    /// The object keys that lead to the value from the root; never empty.
    pub path: Vec<Box<str>>,
    /// The field numbers that lead to it in protobuf; `None` if they are not known.
    pub protobuf: Option<&'static [u32]>,
    /// How the JSON there becomes the value.
    pub rule: Rule,
}

/// How the JSON at a path becomes a field's value. JSON of another type than expected counts as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A boolean; `false` when absent.
    Bool,
    /// The label is accepted, but its value is always empty.
    Empty,
    /// An integer; `0` when absent.
    Number,
    /// The printed form of a scalar, as custom resources have it; empty when absent.
    Printed,
    /// A string; empty when absent.
    Text,
}

/// A value in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// An integer, as the 64 bits of its varint, or a boolean.
    Number(u64),
    /// A string.
    Text(&'a str),
}

/// What a field label means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`; empty for cluster-scoped objects.
    Namespace,
    /// The value at this index.
    Value(usize),
}

impl SelectableFields {
    /// The fields of a built-in resource.
    pub fn built_in(gvr: &GroupVersionResource) -> Self {
        let row =
            BUILT_IN.iter().find(|row| row.group == &*gvr.group && row.resource == &*gvr.resource);
        let Some(row) = row else {
            return Self::default();
        };
        let sources: Vec<_> = row
            .fields
            .iter()
            .map(|(label, path, rule)| FieldSource {
                protobuf: protobuf::path(gvr, label),
                ..FieldSource::new(label, path, *rule)
            })
            .collect();
        let indexed = INDEXED
            .iter()
            .find(|(group, resource, _)| *group == row.group && *resource == row.resource)
            .and_then(|(_, _, label)| sources.iter().position(|source| *source.label == **label));
        Self { sources, without_namespace: !row.namespaced, aliases: row.aliases, indexed }
    }

    /// The fields of a custom resource: the `selectableFields[].jsonPath` of its CRD's version, such as `.spec.color`.
    /// Only plain dotted paths are understood; a selector by any other is refused here, and so forwarded.
    pub fn custom(namespaced: bool, json_paths: &[String]) -> Self {
        let sources = json_paths
            .iter()
            .filter_map(|path| path.strip_prefix('.'))
            .filter(|label| label.split('.').all(is_plain_key))
            .map(|label| FieldSource::new(label, label, Rule::Printed))
            .collect();
        Self { sources, without_namespace: !namespaced, ..Self::default() }
    }

    /// How many values an object of this resource carries.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none besides name and namespace.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Where the values stand, in their order.
    pub fn sources(&self) -> &[FieldSource] {
        &self.sources
    }

    /// The field over which the upstream's watch cache keeps an index. It shows in pages: where a list of the newest state requires a
    /// value of it, objects with another value do not make a page have a next one. Seen on 1.36.2, absent from semantics.md.
    pub fn indexed(&self) -> Option<usize> {
        self.indexed
    }

    /// Whether the value at this index can be read from objects in this representation; where it can't, a selector by it is not to be
    /// evaluated.
    pub fn is_readable(&self, index: usize, representation: Representation) -> bool {
        let Some(source) = self.sources.get(index) else { return false };
        match representation {
            _ if source.rule == Rule::Empty => true,
            Representation::Json => true,
            Representation::Protobuf => source.protobuf.is_some(),
            Representation::MetadataJson | Representation::MetadataProtobuf => false,
        }
    }

    /// What a label means for this resource; `None` if the upstream refuses it.
    pub fn find(&self, label: &str) -> Option<Field> {
        match label {
            "metadata.name" => return Some(Field::Name),
            "metadata.namespace" if !self.without_namespace => return Some(Field::Namespace),
            _ => {}
        }
        let rewritten = self.aliases.iter().find(|(alias, _)| *alias == label);
        let wanted = rewritten.map_or(label, |(_, served)| served);
        self.sources.iter().position(|source| &*source.label == wanted).map(Field::Value)
    }
}

impl FieldSource {
    fn new(label: &str, path: &str, rule: Rule) -> Self {
        let path = path.split('.').map(Into::into).collect();
        Self { label: label.into(), path, protobuf: None, rule }
    }
}

impl Rule {
    /// The field's value, from the JSON text that stands at the path, or `None` if nothing does.
    pub fn value_of(self, raw: Option<&str>) -> Cow<'_, str> {
        let raw = raw.map(str::trim).filter(|raw| *raw != "null");
        match self {
            Self::Bool => raw.filter(|raw| *raw == "true").unwrap_or("false").into(),
            Self::Empty => "".into(),
            Self::Number => raw.filter(|raw| is_integer(raw)).unwrap_or("0").into(),
            Self::Printed => match raw {
                Some(raw) if raw.starts_with('"') => text(raw),
                Some(raw) if !raw.starts_with(['{', '[']) => raw.into(),
                Some(_) | None => "".into(),
            },
            Self::Text => raw.map_or_else(|| "".into(), text),
        }
    }

    /// The same of a value in protobuf. Of another type than expected it counts as absent.
    pub fn value_of_scalar(self, scalar: Option<Scalar<'_>>) -> Cow<'_, str> {
        match (self, scalar) {
            (Self::Bool, Some(Scalar::Number(number))) if number != 0 => "true".into(),
            (Self::Bool, _) => "false".into(),
            // Negative ones come as 64 bits too.
            (Self::Number, Some(Scalar::Number(number))) => number.cast_signed().to_string().into(),
            (Self::Number, _) => "0".into(),
            (Self::Text, Some(Scalar::Text(text))) => text.into(),
            (Self::Empty | Self::Printed | Self::Text, _) => "".into(),
        }
    }
}

/// The built-in kinds that differ from the default. `Event` is not among them: events are not cached, and a
/// selector by any of their many labels is forwarded.
const BUILT_IN: &[BuiltInFields] = &[
    BuiltInFields {
        aliases: &[("spec.host", "spec.nodeName")],
        ..namespaced(
            "",
            "pods",
            &[
                ("spec.nodeName", "spec.nodeName", Rule::Text),
                ("spec.restartPolicy", "spec.restartPolicy", Rule::Text),
                ("spec.schedulerName", "spec.schedulerName", Rule::Text),
                ("spec.serviceAccountName", "spec.serviceAccountName", Rule::Text),
                ("spec.hostNetwork", "spec.hostNetwork", Rule::Bool),
                ("status.phase", "status.phase", Rule::Text),
                ("status.podIP", "status.podIP", Rule::Text),
                ("status.podIPs", "status.podIPs", Rule::Empty),
                ("status.nominatedNodeName", "status.nominatedNodeName", Rule::Text),
            ],
        )
    },
    cluster_scoped("", "nodes", &[("spec.unschedulable", "spec.unschedulable", Rule::Bool)]),
    cluster_scoped("", "namespaces", &[("status.phase", "status.phase", Rule::Text)]),
    namespaced("", "secrets", &[("type", "type", Rule::Text)]),
    namespaced(
        "",
        "services",
        &[("spec.clusterIP", "spec.clusterIP", Rule::Text), ("spec.type", "spec.type", Rule::Text)],
    ),
    namespaced(
        "",
        "replicationcontrollers",
        &[("status.replicas", "status.replicas", Rule::Number)],
    ),
    namespaced("batch", "jobs", &[("status.successful", "status.succeeded", Rule::Number)]),
    cluster_scoped(
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[("spec.signerName", "spec.signerName", Rule::Text)],
    ),
    cluster_scoped(
        "certificates.k8s.io",
        "clustertrustbundles",
        &[("spec.signerName", "spec.signerName", Rule::Text)],
    ),
    cluster_scoped(
        "certificates.k8s.io",
        "podcertificaterequests",
        &[
            ("spec.signerName", "spec.signerName", Rule::Text),
            ("spec.podName", "spec.podName", Rule::Text),
            ("spec.nodeName", "spec.nodeName", Rule::Text),
        ],
    ),
    cluster_scoped(
        "resource.k8s.io",
        "resourceslices",
        &[
            ("spec.nodeName", "spec.nodeName", Rule::Text),
            ("spec.driver", "spec.driver", Rule::Text),
        ],
    ),
];

/// The upstream's indexes: group, resource and label.
const INDEXED: [(&str, &str, &str); 2] =
    [("", "pods", "spec.nodeName"), ("resource.k8s.io", "resourceslices", "spec.nodeName")];

/// A row of the table. Its fields are label, path in the served JSON, and rule.
struct BuiltInFields {
    group: &'static str,
    resource: &'static str,
    namespaced: bool,
    fields: &'static [(&'static str, &'static str, Rule)],
    aliases: &'static [(&'static str, &'static str)],
}

const fn namespaced(
    group: &'static str,
    resource: &'static str,
    fields: &'static [(&'static str, &'static str, Rule)],
) -> BuiltInFields {
    BuiltInFields { group, resource, namespaced: true, fields, aliases: &[] }
}

const fn cluster_scoped(
    group: &'static str,
    resource: &'static str,
    fields: &'static [(&'static str, &'static str, Rule)],
) -> BuiltInFields {
    BuiltInFields { group, resource, namespaced: false, fields, aliases: &[] }
}

/// Whether a step of a JSON path needs no quoting anywhere, so that all readers agree on it.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn is_integer(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The content of a JSON string; empty for any other JSON.
fn text(raw: &str) -> Cow<'_, str> {
    let plain = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match plain {
        Some(plain) if !plain.contains(['\\', '"']) => plain.into(),
        Some(_) => serde_json::from_str(raw).unwrap_or_default(),
        None => "".into(),
    }
}

#[cfg(test)]
mod tests;
