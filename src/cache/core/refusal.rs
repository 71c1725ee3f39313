//! Why the cache refuses a watch.

use crate::api::resource_version::ResourceVersion;

/// The reason why the cache refuses a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchRefusal {
    /// The cache has no complete state.
    NotReady,
    /// An object that the watch may match cannot be read, or could not since its start.
    Unreadable,
    /// The history does not have all events after the requested resourceVersion.
    Expired {
        /// The oldest resourceVersion from which a watch can start.
        oldest: ResourceVersion,
        /// Whether the requested resourceVersion is below the first list that this cache ever held.
        /// The upstream may then still have the events, so the request must be forwarded and not
        /// answered with 410. False if the resourceVersion may belong to a history that the
        /// upstream has lost (`WatchCache::rewind`).
        began_after: bool,
    },
}
