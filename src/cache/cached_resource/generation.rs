//! Binds a watch cache to the generation of the upstream's history in which its state was listed.
//!
//! Invariant: results that were obtained beside the cache's own stream (a probe, a second list, a
//! short watch) change the watch cache only in the generation in which they were obtained.
//!
//! Lock order: `current`, then the locks of the watch cache.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::core::watch_cache::WatchCache;
use crate::cache::upstream_history::UpstreamHistory;

/// The generation of a watch cache.
pub(crate) struct Generation {
    current: Mutex<u64>,
    history: Arc<UpstreamHistory>,
    watch_cache: Arc<WatchCache>,
}

impl Generation {
    /// Starts in generation 0.
    pub(crate) fn new(history: Arc<UpstreamHistory>, watch_cache: Arc<WatchCache>) -> Self {
        Self { current: Mutex::new(0), history, watch_cache }
    }

    /// Enters `generation`. If a history was lost, the state of the watch cache is dropped.
    pub(crate) fn enter(&self, generation: u64) {
        let mut current = self.current.lock();
        *current = generation;
        if let Some(lost) = self.history.highest_lost() {
            self.watch_cache.rewind(lost);
        }
    }

    /// Returns the generation in which the state was listed.
    pub(crate) fn current(&self) -> u64 {
        *self.current.lock()
    }

    /// Calls `act` with the watch cache, if its state is of `generation` and no later rewind was
    /// detected.
    pub(crate) fn run_in<T>(
        &self,
        generation: u64,
        act: impl FnOnce(&WatchCache) -> T,
    ) -> Option<T> {
        let current = self.current.lock();
        let is_current = *current == generation && self.history.generation() == generation;
        is_current.then(|| act(&self.watch_cache))
    }
}
