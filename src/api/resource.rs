//! What a resource is: its group, version and plural name, and what discovery says of it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use crate::api::media_type::{Encoding, Form, View};
use crate::api::memo;
use crate::api::selectable::SelectableFields;

/// Group, version and plural resource name, as they stand in the URL. The core group is `""`. Cheap to clone, to compare and to
/// hash: the parts of it that every request needs are computed when it is made.
#[derive(Clone)]
pub struct GroupVersionResource(Arc<Names>);

/// What a [`GroupVersionResource`] names; read through it.
pub struct Names {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The version within the group, such as `v1`.
    pub version: Box<str>,
    /// The plural path word, such as `pods`.
    pub resource: Box<str>,
    /// Of the three, keyed: clients choose the names, and must not be able to choose names whose hashes are alike.
    hash: u64,
}

impl GroupVersionResource {
    /// Builds one from its three path words.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = KEY.hash_one((group, version, resource));
        let (group, version, resource) = (group.into(), version.into(), resource.into());
        Self(Arc::new(Names { group, version, resource, hash }))
    }

    /// The same for a request: those asked for most are found again and not made anew ([`memo`]).
    pub(crate) fn of_path(group: &str, version: &str, resource: &str) -> Self {
        memo::resource(group, version, resource)
    }

    fn names(&self) -> [&str; 3] {
        [&self.group, &self.version, &self.resource]
    }

    /// Whether it is made of these three.
    pub(crate) fn is(&self, names: [&str; 3]) -> bool {
        self.names() == names
    }

    /// `v1` for the core group, else `group/version`: the `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The collection's URL path, of all namespaces or of one.
    pub fn collection_path(&self, scope: &Scope) -> String {
        let prefix = if self.group.is_empty() { "/api/" } else { "/apis/" };
        let api_version = self.api_version();
        match scope {
            Scope::Cluster => format!("{prefix}{api_version}/{}", self.resource),
            Scope::Namespace(namespace) => {
                format!("{prefix}{api_version}/namespaces/{namespace}/{}", self.resource)
            }
        }
    }
}

impl Deref for GroupVersionResource {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.0
    }
}

impl PartialEq for GroupVersionResource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.hash == other.hash && self.is(other.names()))
    }
}

impl Eq for GroupVersionResource {}

impl Hash for GroupVersionResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Ord for GroupVersionResource {
    fn cmp(&self, other: &Self) -> Ordering {
        self.names().cmp(&other.names())
    }
}

impl PartialOrd for GroupVersionResource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupVersionResource").field(&self.names()).finish()
    }
}

/// `pods.v1` or `deployments.v1.apps`: the form of `kubectl get`, used in logs and metrics.
impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// How much of a resource a cache holds: all of it, or one namespace where the rights of Weir's
/// identity end there (design, section 4).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// All objects of the cluster.
    Cluster,
    /// The objects of one namespace.
    Namespace(Arc<str>),
}

/// Which of its encodings of an object a cache holds. Each has its own reflector and its own cache,
/// since both encodings come from the upstream as they are (design, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Representation {
    /// `application/json`, the full object.
    Json,
    /// `application/vnd.kubernetes.protobuf`, the full object; built-in resources only.
    Protobuf,
    /// `PartialObjectMetadata` in JSON: of custom resources, whose metadata it re-orders (semantics.md §9.2), and of the few built-in
    /// ones whose metadata their version changes. That of all others is a splice of the full object.
    MetadataJson,
    /// The same in protobuf.
    MetadataProtobuf,
}

impl Representation {
    /// The one from which a form of a resource's answers is made.
    pub fn of(form: Form, resource: &ApiResource) -> Self {
        let splices = resource.shape == Shape::BuiltIn && !resource.converts_metadata();
        match (form.encoding, form.view) {
            (Encoding::Json, View::Metadata) if !splices => Self::MetadataJson,
            (Encoding::Protobuf, View::Metadata) if !splices => Self::MetadataProtobuf,
            (Encoding::Json, _) => Self::Json,
            (Encoding::Protobuf, _) => Self::Protobuf,
        }
    }

    /// How its bytes are made.
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Json | Self::MetadataJson => Encoding::Json,
            Self::Protobuf | Self::MetadataProtobuf => Encoding::Protobuf,
        }
    }

    /// The word in metrics and logs, such as `json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::MetadataJson => "metadata-json",
            Self::MetadataProtobuf => "metadata-protobuf",
        }
    }
}

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
