//! The attributes of a request that authorization uses, exactly as the API server derives them
//! (`docs/semantics.md` §12.3).
//!
//! They come from the single parse of the request ([`RequestInfo`]), so that Weir authorizes what
//! it answers. The selectors are those of the query as written, before the labels of a kind are
//! looked up. They can only widen what is allowed (a kubelet may list the pods of its own node), so
//! they are part of the attributes.
//!
//! Equality compares every field. A cache of decisions compares the attributes themselves, never
//! only a hash of them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::api::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::api::resource::GroupVersionResource;
use crate::api::selector::field::parse_terms;
use crate::api::selector::label::{LabelOperator, LabelSelector};

/// The attributes of a request. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// A path that belongs to no resource.
    NonResource(Arc<NonResourceAttributes>),
    /// A resource.
    Resource(Arc<ResourceAttributes>),
}

/// `authorization.k8s.io/v1` NonResourceAttributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NonResourceAttributes {
    /// The decoded path.
    pub path: String,
    /// The method in lower case.
    pub verb: String,
}

/// `authorization.k8s.io/v1` ResourceAttributes. An empty string means absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceAttributes {
    /// The verb; empty for a method without a verb. A review may name any.
    pub verb: Cow<'static, str>,
    /// Group, version and resource as in the path.
    pub gvr: GroupVersionResource,
    /// The subresource.
    pub subresource: String,
    /// The namespace. The path `namespaces/<ns>` sets both this and `name`. Both are shared with
    /// the request.
    pub namespace: Arc<str>,
    /// The name in the path, or the one that a field selector requires.
    pub name: Arc<str>,
    /// The terms of the field selector, in the order in which the upstream evaluates them.
    pub fields: Vec<FieldRequirement>,
    /// The requirements of the label selector, by key.
    pub labels: Vec<LabelRequirement>,
}

/// `metav1.FieldSelectorRequirement`, with a single value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// The label of the field as written.
    pub key: String,
    /// Whether the operator is `In`; otherwise it is `NotIn`.
    pub equal: bool,
    /// The value.
    pub value: String,
}

/// `metav1.LabelSelectorRequirement`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// The key of the label.
    pub key: String,
    /// The operator.
    pub operator: LabelOperator,
    /// The values, sorted and without duplicates; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<Box<str>>,
}

impl Attributes {
    /// Returns the action without the name of an object or a namespace, for the log.
    pub fn describe_kind(&self) -> String {
        match self {
            Self::NonResource(attributes) => format!("{} {}", attributes.verb, attributes.path),
            Self::Resource(attributes) => {
                let ResourceAttributes { verb, gvr, subresource, .. } = &**attributes;
                let slash = if subresource.is_empty() { "" } else { "/" };
                format!("{verb} {gvr}{slash}{subresource}")
            }
        }
    }

    /// Whether the action is about Secrets, whose names are never logged.
    pub fn is_about_secrets(&self) -> bool {
        matches!(self, Self::Resource(attributes) if attributes.gvr.is_secrets())
    }

    /// Returns the attributes of a request.
    pub fn from_request(info: &RequestInfo) -> Self {
        if let Some(request) = &info.resource {
            return Self::Resource(Arc::new(ResourceAttributes::new(info, request)));
        }
        let (path, verb) = match &info.non_resource {
            Some(request) => (request.path.clone(), request.verb.clone()),
            None => <(String, String)>::default(),
        };
        Self::NonResource(Arc::new(NonResourceAttributes { path, verb }))
    }

    /// Returns the verb, or the method in lower case of a non-resource request.
    pub fn verb(&self) -> &str {
        match self {
            Self::NonResource(attributes) => &attributes.verb,
            Self::Resource(attributes) => &attributes.verb,
        }
    }

    /// Whether they are longer than those of any sensible request. Such a request is left to the
    /// API server, whichever way Weir would decide it.
    pub fn are_too_long(&self) -> bool {
        self.weight_bytes() > BYTES_MAX
    }

    /// Returns the approximate memory in bytes. The client determines it. For a long selector of
    /// short terms, the strings are the smallest part.
    pub fn weight_bytes(&self) -> usize {
        match self {
            Self::NonResource(attributes) => attributes.path.len() + attributes.verb.len(),
            Self::Resource(attributes) => attributes.weight_bytes(),
        }
    }
}

impl ResourceAttributes {
    fn new(info: &RequestInfo, request: &ResourceRequest) -> Self {
        let collection = matches!(info.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        // The upstream ignores selectors on paths that begin with a verb, which support them
        // inconsistently.
        let selectors = collection && !request.watch_prefix;
        let text = |name| if selectors { info.query.first(name).unwrap_or_default() } else { "" };
        Self {
            verb: Cow::Borrowed(if info.verb == Verb::Other { "" } else { info.verb.as_str() }),
            gvr: request.gvr.clone(),
            subresource: request.subresource.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            fields: field_requirements(text("fieldSelector")),
            labels: label_requirements(text("labelSelector")),
        }
    }

    fn weight_bytes(&self) -> usize {
        let gvr = [&self.gvr.group, &self.gvr.version, &self.gvr.resource];
        let names = [&*self.verb, &self.subresource, &self.namespace, &self.name];
        gvr.iter().map(|text| text.len()).sum::<usize>()
            + names.iter().map(|text| text.len()).sum::<usize>()
            + self.fields.iter().map(FieldRequirement::weight_bytes).sum::<usize>()
            + self.labels.iter().map(LabelRequirement::weight_bytes).sum::<usize>()
    }
}

impl FieldRequirement {
    fn weight_bytes(&self) -> usize {
        size_of::<Self>() + ALLOCATION_BYTES + self.key.len() + self.value.capacity()
    }
}

impl LabelRequirement {
    fn weight_bytes(&self) -> usize {
        let values = self.values.iter().map(|value| ALLOCATION_BYTES + value.len());
        size_of::<Self>() + ALLOCATION_BYTES + self.key.len() + values.sum::<usize>()
    }
}

/// Returns the terms of a field selector. Empty if it cannot be parsed: the upstream then
/// authorizes without the selector.
fn field_requirements(text: &str) -> Vec<FieldRequirement> {
    if text.is_empty() {
        return Vec::new();
    }
    let terms = parse_terms(text).unwrap_or_default().into_iter();
    terms
        .map(|term| FieldRequirement {
            key: term.label.to_owned(),
            equal: term.equal,
            value: term.value,
        })
        .collect()
}

/// Returns the requirements of a label selector. Empty if it cannot be parsed, as in
/// [`field_requirements`].
fn label_requirements(text: &str) -> Vec<LabelRequirement> {
    if text.is_empty() {
        return Vec::new();
    }
    let selector = LabelSelector::parse(text).unwrap_or_default();
    // Exact capacity, because the requirements are cached.
    let mut requirements = Vec::with_capacity(selector.requirements().count());
    requirements.extend(selector.requirements().map(|(key, operator, values)| LabelRequirement {
        key: key.to_owned(),
        operator,
        values: values.to_vec(),
    }));
    requirements.sort_by(|one, other| one.key.cmp(&other.key));
    requirements
}

/// Limit on attributes: some hundred selector requirements or values. A watch keeps its attributes
/// to be authorized again. With the limits on pending reviews this also bounds their memory, and
/// the time that each takes upstream.
const BYTES_MAX: usize = 16 * 1024;
/// Memory of a string besides its bytes: the overhead of its allocation, and its slot in a list.
const ALLOCATION_BYTES: usize = 32;

#[cfg(test)]
mod tests;
