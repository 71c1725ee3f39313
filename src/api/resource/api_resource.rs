//! A resource as discovery describes it.

use std::sync::Arc;

use super::gvr::GroupVersionResource;
use super::representation::Representation;
use crate::api::media_type::{Encoding, Form, View};
use crate::api::selectable::SelectableFields;

/// How the upstream writes lists and objects of a resource (semantics.md §3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// Typed Go structs: `kind` and `apiVersion` lead an object and are absent from list items.
    BuiltIn,
    /// Unstructured: all keys sorted, list items keep `apiVersion` and `kind`, `continue` is always there.
    Custom,
}

/// What discovery says of one resource, with what is needed to read its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiResource {
    /// Where it is served.
    pub gvr: GroupVersionResource,
    /// The kind of its objects, such as `Pod`.
    pub kind: Arc<str>,
    /// The kind of its lists, such as `PodList`.
    pub list_kind: Arc<str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `list` and `watch` are both among its verbs.
    pub list_watchable: bool,
    /// Who serves it, as far as discovery tells.
    pub shape: Shape,
    /// Whether an aggregated API server serves it; such a resource is never cached (design, section 4).
    pub aggregated: bool,
    /// Changes with everything that can change an object's bytes without its resourceVersion: a custom resource's
    /// definition (design, section 4). Zero for built-in resources.
    pub revision: u64,
    /// The field labels that a field selector may name.
    pub selectable: Arc<SelectableFields>,
}

impl ApiResource {
    /// The one from which a form of a resource's answers is made.
    pub fn representation(&self, form: Form) -> Representation {
        let splices = self.shape == Shape::BuiltIn && !self.converts_metadata();
        match (form.encoding, form.view) {
            (Encoding::Json, View::Metadata) if !splices => Representation::MetadataJson,
            (Encoding::Protobuf, View::Metadata) if !splices => Representation::MetadataProtobuf,
            (Encoding::Json, _) => Representation::Json,
            (Encoding::Protobuf, _) => Representation::Protobuf,
        }
    }

    /// Whether the version that clients see adds to the metadata (annotations that carry what it has no field for), so that the metadata
    /// of the full object is not what a metadata-only view shows: that one the upstream makes before the conversion.
    fn converts_metadata(&self) -> bool {
        let of = |(group, resource): &(&str, &str)| {
            *group == &*self.gvr.group && *resource == &*self.gvr.resource
        };
        METADATA_CONVERTED.iter().any(of)
    }
}

/// The built-in resources of which some version's conversion touches the metadata.
const METADATA_CONVERTED: &[(&str, &str)] = &[
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
];

/// What other modules' tests make their resources from: a namespaced built-in one.
#[cfg(test)]
pub(crate) fn built_in(gvr: GroupVersionResource, kind: &str) -> ApiResource {
    ApiResource {
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        namespaced: true,
        list_watchable: true,
        shape: Shape::BuiltIn,
        aggregated: false,
        revision: 0,
        selectable: Arc::new(SelectableFields::built_in(&gvr)),
        gvr,
    }
}
