//! Binds a watch cache to the generation of the upstream's history in which its state was listed.
//!
//! Invariants: results that were obtained beside the cache's own stream (a probe, a second list, a
//! short watch) change the watch cache only in the generation in which they were obtained. They
//! never move it while its progress is held.
//!
//! Lock order: `current`, then the locks of the watch cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cache::core::watch_cache::WatchCache;
use crate::cache::upstream_history::UpstreamHistory;

/// The generation of a watch cache.
pub(crate) struct Generation {
    current: Mutex<u64>,
    history: Arc<UpstreamHistory>,
    watch_cache: Arc<WatchCache>,
    /// How many [`ProgressHold`]s there are. Written under the lock of `current`.
    holds: AtomicUsize,
}

/// Keeps proofs of freshness from moving a watch cache, until it is dropped.
pub(crate) struct ProgressHold<'a>(&'a Generation);

impl Generation {
    /// Starts in generation 0.
    pub(crate) fn new(history: Arc<UpstreamHistory>, watch_cache: Arc<WatchCache>) -> Self {
        Self { current: Mutex::new(0), history, watch_cache, holds: AtomicUsize::new(0) }
    }

    /// Enters `generation`. If a history was lost, the state of the watch cache is dropped.
    pub(crate) fn enter(&self, generation: u64) {
        let mut current = self.current.lock();
        *current = generation;
        if let Some(lost) = self.history.highest_lost() {
            self.watch_cache.rewind(lost);
        }
    }

    /// Keeps proofs of freshness from moving the watch cache past a list that is in progress.
    pub(crate) fn hold_progress(&self) -> ProgressHold<'_> {
        let _current = self.current.lock();
        self.holds.fetch_add(1, Ordering::Relaxed);
        ProgressHold(self)
    }

    /// Calls `advance` like [`Self::run_in`], unless the progress is held.
    pub(crate) fn advance_in<T>(
        &self,
        generation: u64,
        advance: impl FnOnce(&WatchCache) -> T,
    ) -> Option<T> {
        let act = |cache: &WatchCache| {
            let is_held = self.holds.load(Ordering::Relaxed) > 0;
            (!is_held).then(|| advance(cache))
        };
        self.run_in(generation, act).flatten()
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

impl Drop for ProgressHold<'_> {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::Relaxed);
    }
}
