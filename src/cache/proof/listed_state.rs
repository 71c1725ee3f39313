//! A state that was listed for a proof of freshness, beside the cache's own stream.

use std::sync::Arc;

use crate::api::resource_version::ResourceVersion;
use crate::cache::budget::Claim;
use crate::cache::core::watch_cache::State;

/// A state that was listed beside the cache's own stream.
///
/// It shares all equal objects with the cache's state. The other objects count against the byte
/// budget while requests wait with this state, and until the cache has come that far, because reads
/// show it meanwhile. A watcher that reads its initial events slowly keeps
/// the state longer than that, as it would any state of the cache.
#[derive(Debug)]
pub struct ListedState {
    pub(crate) state: Arc<State>,
    /// The generation of the upstream's history in which it was listed.
    pub(crate) generation: u64,
    pub(super) _claim: Claim,
}

impl ListedState {
    /// Returns the resourceVersion of the list.
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.resource_version()
    }

    /// Whether this state is newer than another.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let order = |state: &Self| (state.generation, state.resource_version());
        order(self) > order(other)
    }
}

/// The result of a list for a proof.
#[derive(Clone, Debug)]
pub(crate) enum ListProof {
    /// The list failed, or the collection has become large.
    Failed,
    /// An event brought the cache to the needed resourceVersion before the list was sent.
    Overtaken,
    /// The listed state.
    Listed(Arc<ListedState>),
}
