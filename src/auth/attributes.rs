//! What a request does, in the words of authorization: exactly those that the API server would derive (semantics.md §12.3).
//!
//! They come from the one parse of the request ([`RequestInfo`]), so that what is authorized is what is answered. Selectors are those of
//! the query as written, before a kind's labels are looked up: they can only widen what is allowed (a kubelet may list the pods of its own
//! node), and so they are part of the question.
//!
//! Equality is of every field; a cache of decisions compares the attributes themselves and never only a hash of them.

use std::sync::Arc;

use crate::api::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::api::resource::GroupVersionResource;
use crate::api::selector::field::parse_terms;
use crate::api::selector::label::{LabelOperator, LabelSelector};

/// See the module. Built once a request; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attributes {
    /// Of a path that is no resource's.
    NonResource(Arc<NonResourceAttributes>),
    /// Of a resource.
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

/// `authorization.k8s.io/v1` ResourceAttributes. Empty stands for absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceAttributes {
    /// The verb; empty for a method that has none.
    pub verb: &'static str,
    /// Group, version and resource as in the path.
    pub gvr: GroupVersionResource,
    /// The subresource.
    pub subresource: String,
    /// The namespace; `namespaces/<ns>` has it both here and as `name`. Both are shared with the request.
    pub namespace: Arc<str>,
    /// The name of the path, or the one that a field selector requires.
    pub name: Arc<str>,
    /// The terms of the field selector, in the order in which the upstream evaluates them.
    pub fields: Vec<FieldRequirement>,
    /// The requirements of the label selector, by key.
    pub labels: Vec<LabelRequirement>,
}

/// `metav1.FieldSelectorRequirement`, which has one value here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// The field's label as written.
    pub key: String,
    /// Whether it is `In`, and not `NotIn`.
    pub equal: bool,
    /// The value.
    pub value: String,
}

/// `metav1.LabelSelectorRequirement`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// How its value relates to `values`.
    pub operator: LabelOperator,
    /// Sorted, each once; none for `Exists` and `DoesNotExist`.
    pub values: Vec<Box<str>>,
}

impl Attributes {
    /// Those of a request.
    pub fn of(info: &RequestInfo) -> Self {
        if let Some(request) = &info.resource {
            return Self::Resource(Arc::new(ResourceAttributes::of(info, request)));
        }
        let (path, verb) = match &info.non_resource {
            Some(request) => (request.path.clone(), request.verb.clone()),
            None => <(String, String)>::default(),
        };
        Self::NonResource(Arc::new(NonResourceAttributes { path, verb }))
    }

    /// The verb, as authorization knows it.
    pub fn verb(&self) -> &str {
        match self {
            Self::NonResource(attributes) => &attributes.verb,
            Self::Resource(attributes) => attributes.verb,
        }
    }

    /// The bytes that they take in memory, about. The client chooses how many, and of a long selector of short terms its texts are the least part.
    pub fn weight_bytes(&self) -> usize {
        match self {
            Self::NonResource(attributes) => attributes.path.len() + attributes.verb.len(),
            Self::Resource(attributes) => attributes.weight_bytes(),
        }
    }
}

impl ResourceAttributes {
    fn of(info: &RequestInfo, request: &ResourceRequest) -> Self {
        let collection = matches!(info.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        // The paths that begin with a verb do not support selectors consistently, so the upstream leaves them out.
        let selectors = collection && !request.watch_prefix;
        let text = |name| if selectors { info.query.first(name).unwrap_or_default() } else { "" };
        Self {
            verb: if info.verb == Verb::Other { "" } else { info.verb.as_str() },
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
        let names = [self.subresource.as_str(), &self.namespace, &self.name];
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

/// None if the upstream could not parse it: it asks without the selector then.
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

/// As [`field_requirements`].
fn label_requirements(text: &str) -> Vec<LabelRequirement> {
    if text.is_empty() {
        return Vec::new();
    }
    let selector = LabelSelector::parse(text).unwrap_or_default();
    // Exactly as many as there are: they are kept.
    let mut requirements = Vec::with_capacity(selector.for_authorization().count());
    requirements.extend(selector.for_authorization().map(|(key, operator, values)| {
        LabelRequirement { key: key.to_owned(), operator, values: values.to_vec() }
    }));
    requirements.sort_by(|one, other| one.key.cmp(&other.key));
    requirements
}

/// What a text costs beside itself: the rest of its allocation, and its place in a list.
const ALLOCATION_BYTES: usize = 32;

#[cfg(test)]
mod tests;
