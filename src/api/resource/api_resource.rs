//! A resource as discovery describes it.

use std::sync::Arc;

use super::gvr::GroupVersionResource;
use super::representation::Representation;
use crate::media_type::{Encoding, Form};
use crate::selectable::SelectableFields;

/// How the API server writes lists and objects of a resource (`docs/semantics.md` §3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// Typed Go structs: `kind` and `apiVersion` come first in an object and are absent from list
    /// items.
    BuiltIn,
    /// Unstructured: all keys are sorted, list items keep `apiVersion` and `kind`, and `continue`
    /// is always present.
    Custom,
}

/// The description of one resource from discovery, with everything that is needed to read its
/// objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiResource {
    /// Its group, version and plural name.
    pub gvr: GroupVersionResource,
    /// The kind of its objects, such as `Pod`.
    pub kind: Arc<str>,
    /// The kind of its lists, such as `PodList`.
    pub list_kind: Arc<str>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether `list` and `watch` are both among its verbs.
    pub list_watchable: bool,
    /// How its objects are written, which depends on the server behind it.
    pub shape: Shape,
    /// Whether an aggregated API server serves it. Such a resource is never cached
    /// (`docs/decisions/uncached-resources.md`).
    pub aggregated: bool,
    /// A hash of the definition of a custom resource: it changes with everything that can change an
    /// object's bytes without its resourceVersion (`docs/decisions/upstream-bytes.md`). Zero
    /// for built-in resources.
    pub revision: u64,
    /// The field labels that a field selector may name.
    pub selectable: Arc<SelectableFields>,
}

impl ApiResource {
    /// Returns the representation from which Weir makes a form of response.
    pub fn representation(&self, form: Form) -> Representation {
        let splices = self.shape == Shape::BuiltIn && !self.converts_metadata();
        match (form.encoding, form.view.is_metadata()) {
            (Encoding::Json, true) if !splices => Representation::MetadataJson,
            (Encoding::Protobuf, true) if !splices => Representation::MetadataProtobuf,
            (Encoding::Json, _) => Representation::Json,
            (Encoding::Protobuf, _) => Representation::Protobuf,
        }
    }

    /// Whether a version conversion changes the metadata (by annotations for values that a version
    /// has no field for). The API server makes a metadata-only view before the conversion, so the
    /// view is not part of the whole object.
    fn converts_metadata(&self) -> bool {
        let is_resource = |(group, resource): &(&str, &str)| {
            *group == &*self.gvr.group && *resource == &*self.gvr.resource
        };
        METADATA_CONVERTED.iter().any(is_resource)
    }
}

/// The built-in resources with a version whose conversion changes the metadata.
const METADATA_CONVERTED: &[(&str, &str)] = &[
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
];

/// Returns a namespaced built-in resource, for tests and for benches of other modules.
pub fn built_in(gvr: GroupVersionResource, kind: &str) -> ApiResource {
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
