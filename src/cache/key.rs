//! The key of a cache in the registry.

use std::fmt;

use crate::api::resource::{GroupVersionResource, Representation, Scope};

/// The key of a cache. There is at most one running cache for each key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CacheKey {
    pub(crate) gvr: GroupVersionResource,
    /// The encoding of the objects.
    pub(crate) representation: Representation,
    /// The cluster, or one namespace.
    pub(crate) scope: Scope,
}

impl CacheKey {
    /// Returns the namespace of the scope, or an empty string for the cluster.
    pub(crate) fn namespace(&self) -> &str {
        match &self.scope {
            Scope::Cluster => "",
            Scope::Namespace(namespace) => namespace,
        }
    }

    /// Returns the values of the labels group, version, resource, namespace and representation.
    pub(crate) fn labels(&self) -> [&str; 5] {
        let gvr = &self.gvr;
        let representation = self.representation.as_str();
        [&gvr.group, &gvr.version, &gvr.resource, self.namespace(), representation]
    }

    /// Whether other answers depend on the resource: those of roles and bindings decide who may
    /// read, and clients look up namespaces before all else.
    pub(crate) fn is_needed_first(&self) -> bool {
        let is_namespaces = self.gvr.group.is_empty() && &*self.gvr.resource == "namespaces";
        is_namespaces || &*self.gvr.group == "rbac.authorization.k8s.io"
    }

    /// Whether the cache holds a single namespace.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope != Scope::Cluster
    }
}

/// Writes it for operators, such as `apps/v1/deployments, namespace ns, protobuf`.
impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.gvr)?;
        if self.is_namespaced() {
            write!(f, ", namespace {}", self.namespace())?;
        }
        write!(f, ", {}", self.representation.as_str())
    }
}
