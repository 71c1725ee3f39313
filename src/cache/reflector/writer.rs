//! The writer of a cache: whatever changes its state or its history is done here.
//!
//! A reflector lists and applies events, which only its own modules can call. The other methods are
//! the commands that all others send: a proof's progress, the events of a backfill, the budgets'
//! limits, and the end. Readers have a [`CacheReader`], which changes nothing.
//!
//! Invariants: what was obtained beside the reflector's own stream (a probe, a second list, a short
//! watch) counts only in the generation of the upstream's history in which it was obtained. It does
//! not move the cache while the reflector lists, so that no list is older than the cache when it
//! arrives.
//!
//! Lock order: `current`, then the locks of the watch cache.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::earlier::{DoesNotJoin, EarlierEvents};
use crate::cache::core::watch_cache::{
    CacheReader, Change, CompleteList, Discontinuity, EndCause, Now, WatchCache,
};
use crate::cache::upstream_history::UpstreamHistory;
use crate::config::OnRelist;

/// The writer of a cache.
pub(crate) struct Writer {
    cache: WatchCache,
    history: Arc<UpstreamHistory>,
    current: Mutex<Current>,
}

/// Decides which commands count.
#[derive(Default)]
struct Current {
    /// The generation of the upstream's history in which the state was listed.
    generation: u64,
    /// Whether the reflector lists.
    is_listing: bool,
}

/// A list in progress. Nobody moves the cache until it is dropped.
pub(super) struct Listing<'a>(&'a Writer);

impl Writer {
    /// Starts in generation 0.
    pub(crate) fn new(cache: WatchCache, history: Arc<UpstreamHistory>) -> Self {
        Self { cache, history, current: Mutex::default() }
    }

    /// Returns the read half.
    pub(crate) fn reader(&self) -> &CacheReader {
        &self.cache
    }

    /// Returns the generation in which the state was listed.
    pub(crate) fn generation(&self) -> u64 {
        self.current.lock().generation
    }

    /// Calls `read` with the cache, if its state is of `generation` and no later rewind was
    /// detected.
    pub(crate) fn read_in<T>(
        &self,
        generation: u64,
        read: impl FnOnce(&CacheReader) -> T,
    ) -> Option<T> {
        let current = self.current.lock();
        self.is_current(&current, generation).then(|| read(&self.cache))
    }

    fn is_current(&self, current: &Current, generation: u64) -> bool {
        current.generation == generation && self.history.generation() == generation
    }

    /// Enters `generation`. If a history was lost, drops the state.
    pub(super) fn enter(&self, generation: u64) {
        let mut current = self.current.lock();
        current.generation = generation;
        if let Some(lost) = self.history.highest_lost() {
            self.cache.rewind(lost);
        }
    }

    pub(super) fn begin_list(&self) -> Listing<'_> {
        self.current.lock().is_listing = true;
        Listing(self)
    }

    /// Replaces the state with a complete list. Returns false and changes nothing if the list is
    /// older than the cache, or if the cache is closed.
    pub(super) fn replace(
        &self,
        listed: CompleteList,
        resource_version: ResourceVersion,
        on_relist: OnRelist,
        now: Now,
    ) -> bool {
        match on_relist {
            OnRelist::EndStreams => return self.cache.replace(listed, resource_version),
            OnRelist::KeepStreams => match self.cache.relist(listed, resource_version, now) {
                Ok(events) => tracing::debug!(events, "watches continue after the list"),
                Err(Discontinuity::Overtaken) => return false,
                Err(reason) => tracing::info!(%reason, "watches end"),
            },
        }
        true
    }

    /// Applies changes from the reflector's watch. `continues` is whether they came with those
    /// before them, in one read.
    pub(super) fn apply(&self, changes: Vec<Change>, (received, continues): (Now, bool)) {
        if continues {
            self.cache.apply_rest(changes, received);
        } else {
            self.cache.apply(changes, received);
        }
    }

    /// Notes that the upstream has no change up to `resource_version`, as it was found in
    /// `generation`. Returns whether that counts.
    pub(crate) fn advance(
        &self,
        generation: u64,
        resource_version: ResourceVersion,
        now: Now,
    ) -> bool {
        let current = self.current.lock();
        let counts = self.is_current(&current, generation) && !current.is_listing;
        if counts {
            self.cache.apply_rest(vec![Change::Progress(resource_version)], now);
        }
        counts
    }

    /// Puts earlier events, which were received in `generation`, before the history
    /// ([`WatchCache::prepend`]). Fails if they do not lead to the state where it begins.
    pub(crate) fn prepend(
        &self,
        generation: u64,
        (earlier, through): (EarlierEvents, ResourceVersion),
        weight_max: usize,
        now: Now,
    ) -> Result<(), DoesNotJoin> {
        let state = self.read_in(generation, |cache| cache.state()).flatten().ok_or(DoesNotJoin)?;
        let from = earlier.from();
        // The comparison of a large collection takes time, so it runs before the lock is taken.
        // Later events change nothing in it.
        let events = earlier.into_events(&state, now)?;
        let current = self.current.lock();
        if !self.is_current(&current, generation) {
            return Err(DoesNotJoin);
        }
        self.cache.prepend(events, (from, through), weight_max)
    }

    /// Drops the oldest events of the history until it has at most `bytes_max`.
    pub(crate) fn trim_history(&self, bytes_max: usize) {
        self.cache.trim_history(bytes_max);
    }

    /// Drops the events beyond the history's limits that no watcher has still to read.
    pub(crate) fn drop_read(&self) {
        self.cache.drop_read();
    }

    /// Replaces the limit in bytes of the history, and trims it to that.
    pub(crate) fn limit_history(&self, bytes_max: usize) {
        self.cache.limit_history(bytes_max);
    }

    /// Drops the state, and lets no watch start up to `through`, where clients may have seen what
    /// was lost or wrong.
    pub(crate) fn distrust(&self, through: ResourceVersion) {
        self.cache.rewind(through);
    }

    /// Drops the state and ends every watcher with `cause`.
    pub(crate) fn invalidate(&self, cause: EndCause) {
        self.cache.invalidate(cause);
    }

    /// Drops the state for good and ends every watcher with `cause`.
    pub(crate) fn close(&self, cause: EndCause) {
        self.cache.close(cause);
    }

    /// Sets the state of a cache that has no reflector.
    #[cfg(test)]
    pub(crate) fn fill(&self, at: ResourceVersion) {
        self.cache.replace(Vec::new(), at);
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.current.lock().is_listing = false;
    }
}
