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

mod built_in;
mod protobuf;
mod rule;

use self::built_in::{BUILT_IN, INDEXED};
pub use self::rule::{Rule, Scalar};
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

/// Whether a step of a JSON path needs no quoting anywhere, so that all readers agree on it.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[cfg(test)]
mod tests;
