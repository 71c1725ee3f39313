//! Why the cache refuses a watch.

use crate::api::resource_version::ResourceVersion;

/// Why a watch can't be served from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchRefusal {
    /// The cache has no complete state.
    NotReady,
    /// The events after the asked resourceVersion are no longer (or never were) in the history; `oldest` is the
    /// oldest from which a watch could begin. `began_after` says that this cache's whole life began after the asked
    /// resourceVersion: it must not word a 410 then, but forward (design, section 7).
    Expired {
        /// The oldest resourceVersion from which a watch can begin.
        oldest: ResourceVersion,
        /// Whether the asked one lies before the first list that this cache ever held, so that the upstream may still have it; false where it
        /// may be of a history that the upstream has lost ([`rewind`]).
        began_after: bool,
    },
}
