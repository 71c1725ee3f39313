//! Group, version and plural name of a resource.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use crate::keyed_hash::BuildKeyedHash;

/// Group, version and plural resource name, as in the URL. The core group is `""`. Cheap to clone,
/// to compare and to hash: the parts that every request needs are computed once.
#[derive(Clone)]
pub struct GroupVersionResource(Arc<Names>);

/// The three names of a [`GroupVersionResource`], which dereferences to it.
pub struct Names {
    /// The API group; empty for the core group.
    pub group: Box<str>,
    /// The version within the group, such as `v1`.
    pub version: Box<str>,
    /// The plural name in the path, such as `pods`.
    pub resource: Box<str>,
    /// A keyed hash of the three names: clients choose them and must not be able to cause
    /// collisions.
    hash: u64,
}

impl GroupVersionResource {
    /// Creates a value from its three names in the path.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        static KEY: LazyLock<BuildKeyedHash> = LazyLock::new(BuildKeyedHash::default);
        let hash = KEY.hash_one((group, version, resource));
        let (group, version, resource) = (group.into(), version.into(), resource.into());
        Self(Arc::new(Names { group, version, resource, hash }))
    }

    fn names(&self) -> [&str; 3] {
        [&self.group, &self.version, &self.resource]
    }

    /// Whether it consists of these three names.
    pub(crate) fn is(&self, names: [&str; 3]) -> bool {
        self.names() == names
    }

    /// Whether it is the Secrets, whose names may already be secrets.
    pub fn is_secrets(&self) -> bool {
        self.group.is_empty() && &*self.resource == "secrets"
    }

    /// Returns the `apiVersion` of its objects: `v1` for the core group, otherwise `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the URL path of the collection, in all namespaces or in one.
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

/// Writes `v1/pods` or `apps/v1/deployments`, as `cache.warm`, logs, events and spans have it.
impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.resource)
    }
}

/// How much of a resource a cache holds: the whole cluster, or one namespace if Weir's identity may
/// not list more (`docs/decisions/uncached-resources.md`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// All objects of the cluster.
    Cluster,
    /// The objects of one namespace.
    Namespace(Arc<str>),
}
