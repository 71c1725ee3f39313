//! One change that the reflector applies to the cache.

use crate::api::resource_version::ResourceVersion;
use crate::codec::object::Object;
use crate::codec::unreadable::UnreadableObject;

/// A change that the upstream reported.
#[derive(Debug)]
pub enum Change {
    /// An object was created or changed. The cache computes from its own state which of the two it
    /// was.
    Upsert(Object),
    /// An object was deleted. Holds the object from the DELETED event, with the resourceVersion of
    /// that event.
    Delete(Object),
    /// An object that cannot be read was created, changed or deleted.
    Unreadable {
        /// The identity and the resourceVersion of the object.
        object: UnreadableObject,
        /// Whether it was deleted.
        is_deletion: bool,
    },
    /// Nothing else changed up to this resourceVersion (a bookmark).
    Progress(ResourceVersion),
}

impl Change {
    pub(crate) fn resource_version(&self) -> ResourceVersion {
        match self {
            Self::Upsert(object) | Self::Delete(object) => object.resource_version,
            Self::Unreadable { object, .. } => object.resource_version,
            Self::Progress(resource_version) => *resource_version,
        }
    }

    /// Returns the object that changed after `held`, if it cannot be read.
    pub(super) fn unreadable_after(&self, held: ResourceVersion) -> Option<&UnreadableObject> {
        match self {
            Self::Unreadable { object, .. } if object.resource_version > held => Some(object),
            _ => None,
        }
    }
}
