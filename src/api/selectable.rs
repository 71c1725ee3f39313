//! The field labels that a field selector of a resource may name, and where an object has their
//! values (`docs/semantics.md` §7.2).
//!
//! A value is read from the object's JSON as the API server wrote it, by a path of object keys and
//! a rule ([`Rule`]), or from its protobuf by field numbers. No object is decoded as a whole for
//! it. Where the API server's internal field and the served one differ, the table names the served
//! one (`status.podIP` always equals the first of `status.podIPs`).
//!
//! A label that is missing here costs speed, not correctness: a selector with an unknown label is
//! forwarded.

mod built_in;
mod rule;

use self::built_in::{BUILT_IN, BuiltInFields};
pub use self::rule::{Rule, Scalar};
use crate::resource::{GroupVersionResource, Representation};

/// The selectable fields of one resource besides `metadata.name` and `metadata.namespace`, in a
/// fixed order. The values of an object have the same order
/// (`Attrs::fields` of the codecs). The default has no fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectableFields {
    sources: Vec<FieldSource>,
    /// Whether a selector by `metadata.namespace` is invalid.
    without_namespace: bool,
    /// Older labels, each with the label that replaces it.
    aliases: &'static [(&'static str, &'static str)],
    indexed: Option<usize>,
}

/// The source of one field label's value in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSource {
    /// The label, such as `spec.nodeName`.
    pub label: Box<str>,
    /// The object keys from the root to the value; never empty.
    pub path: Vec<Box<str>>,
    /// The protobuf field numbers to the value; `None` if they are not known.
    pub protobuf: Option<&'static [u32]>,
    /// How the value is derived from the JSON at the path.
    pub rule: Rule,
}

/// The meaning of a field label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`; empty for cluster-scoped objects.
    Namespace,
    /// The selectable field at this index.
    Value(usize),
}

impl SelectableFields {
    /// Returns the fields of a built-in resource.
    pub fn built_in(gvr: &GroupVersionResource) -> Self {
        let row =
            BUILT_IN.iter().find(|row| row.group == &*gvr.group && row.resource == &*gvr.resource);
        let Some(row) = row else {
            return Self::default();
        };
        let known = row.versions.contains(&&*gvr.version);
        let source = |&(label, rule, numbers): &(&str, Rule, &'static [u32])| FieldSource {
            protobuf: (known && !numbers.is_empty()).then_some(numbers),
            ..FieldSource::new(label, BuiltInFields::path(label), rule)
        };
        let sources: Vec<_> = row.fields.iter().map(source).collect();
        let indexed = row
            .indexed()
            .and_then(|label| sources.iter().position(|source| &*source.label == label));
        Self { sources, without_namespace: !row.namespaced, aliases: row.aliases(), indexed }
    }

    /// Returns the fields of a custom resource: the `selectableFields[].jsonPath` of its CRD's
    /// version, such as `.spec.color`. Only plain dotted paths are understood; a selector by any
    /// other path is forwarded.
    pub fn custom(namespaced: bool, json_paths: &[String]) -> Self {
        let sources = json_paths
            .iter()
            .filter_map(|path| path.strip_prefix('.'))
            .filter(|label| label.split('.').all(is_plain_key))
            .map(|label| FieldSource::new(label, label, Rule::Printed))
            .collect();
        Self { sources, without_namespace: !namespaced, ..Self::default() }
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are no fields besides name and namespace.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the sources of the values, in their order.
    pub fn sources(&self) -> &[FieldSource] {
        &self.sources
    }

    /// Returns the field over which the API server's watch cache has an index. The index affects
    /// pages: if a list of the newest state requires a value of this field, objects with another
    /// value do not cause a next page. Observed on 1.36.2; not described in `docs/semantics.md`.
    pub fn indexed(&self) -> Option<usize> {
        self.indexed
    }

    /// Whether the value at this index can be read from objects in this representation. If not, a
    /// selector by this field must not be evaluated.
    pub fn is_readable(&self, index: usize, representation: Representation) -> bool {
        let Some(source) = self.sources.get(index) else { return false };
        match representation {
            _ if source.rule == Rule::Empty => true,
            Representation::Json => true,
            Representation::Protobuf => source.protobuf.is_some(),
            Representation::MetadataJson | Representation::MetadataProtobuf => false,
        }
    }

    /// Returns the meaning of a label for this resource; `None` if the API server rejects it.
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

/// Whether a step of a JSON path needs no quoting, so that all parsers agree on it.
fn is_plain_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[cfg(test)]
mod tests;
