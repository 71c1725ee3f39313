//! One change that the reflector applies to the cache.

use crate::api::resource_version::ResourceVersion;
use crate::codec::object::Object;

/// One step that the upstream told.
#[derive(Debug)]
pub enum Change {
    /// An object was created or changed (ADDED or MODIFIED upstream; which, is computed from the state).
    Upsert(Object),
    /// An object was deleted: the object as the DELETED event carries it, with the event's resourceVersion.
    Delete(Object),
    /// Nothing changed up to this resourceVersion (a bookmark).
    Progress(ResourceVersion),
}
