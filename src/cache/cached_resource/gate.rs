//! The gate of a cache: what clients may see of it.
//!
//! Invariant: nothing that a client was shown is taken back (`docs/decisions/shown-states.md`).
//! Reads get the newest state that any of them was shown: the cache's own, or one that a proof
//! listed beside it. While the cache is behind what a probe or another cache of the resource has
//! shown, it answers only watches that start at a resourceVersion. When it ends, the newest state
//! that it has shown stays in the [floors](crate::cache::floors), so that no later cache goes back
//! behind it. A quarantine (`src/cache/registry/quarantines.rs`) hides a cache altogether.
//!
//! Lock order: a shard of the floors, `behind`, and the generation of the writer, each alone.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use crate::api::resource::GroupVersionResource;
use crate::api::resource_version::ResourceVersion;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::{CacheReader, State};
use crate::cache::proof::listed_state::ListedState;
use crate::cache::reflector::writer::Writer;

/// The gate of a cache.
pub(crate) struct Gate {
    gvr: GroupVersionResource,
    context: Arc<CacheContext>,
    cache: CacheReader,
    writer: Arc<Writer>,
    /// The newest state listed by a proof that a client may have been shown. Dropped once the cache
    /// has come that far.
    listed: ArcSwapOption<ListedState>,
    behind: watch::Sender<Behind>,
}

/// Whether a state is only for watches that start at a resourceVersion, since clients may know a
/// later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// All reads may use it.
    No,
    /// It is from before the cache was created, and nobody has asked the upstream since.
    Unknown,
    /// Another cache of the resource, or a probe, has shown this resourceVersion.
    Until { needed: ResourceVersion, generation: u64 },
}

impl Behind {
    /// Whether another resourceVersion is needed now. The first one of a cache that began in the
    /// past is that of a probe, which is compared with the floor.
    fn rises_to(self, needed: ResourceVersion, generation: u64, is_probed: bool) -> bool {
        match self {
            Self::No => true,
            Self::Unknown => is_probed,
            Self::Until { needed: before, generation: at } => (at, before) < (generation, needed),
        }
    }

    /// Whether a state at `at` ends it. `needed` in another history has no meaning.
    fn ends_at(self, at: Option<ResourceVersion>, generation: u64, is_present: bool) -> bool {
        match self {
            Self::No => false,
            Self::Unknown => is_present,
            Self::Until { needed, generation: needed_in } => {
                needed_in != generation || Some(needed) <= at
            }
        }
    }
}

impl Gate {
    /// Starts without a state, and open.
    pub(crate) fn new(
        gvr: GroupVersionResource,
        writer: Arc<Writer>,
        context: Arc<CacheContext>,
    ) -> Self {
        let cache = writer.reader().clone();
        let behind = watch::Sender::new(Behind::No);
        Self { gvr, context, cache, writer, listed: ArcSwapOption::empty(), behind }
    }

    /// Returns the newest state that a client may have been shown; `None` while there is none.
    pub(crate) fn state(&self) -> Option<Arc<State>> {
        // The cache's own state is read last. If it overtakes the listed one meanwhile, or if a
        // rewind drops that, the own state is the newest.
        let listed = self.listed().map(|listed| Arc::clone(&listed.state));
        let held = self.cache.state()?;
        let is_newer = |listed: &Arc<State>| listed.resource_version() > held.resource_version();
        Some(listed.filter(is_newer).unwrap_or(held))
    }

    /// Returns the resourceVersion of [`Self::state`].
    pub(crate) fn resource_version(&self) -> Option<ResourceVersion> {
        let listed = self.listed().map(|listed| listed.resource_version());
        listed.or(*self.cache.progress().borrow())
    }

    /// Returns the newest listed state that a client may have been shown, if the cache has not come
    /// that far.
    pub(crate) fn listed(&self) -> Option<Arc<ListedState>> {
        let listed = self.listed.load();
        listed.as_ref().filter(|listed| self.is_ahead(listed)).map(Arc::clone)
    }

    /// Notes that clients may be shown a state that was listed beside the cache's stream. Reads
    /// show it from now on, until the cache has come that far.
    pub(crate) fn show(&self, listed: &Arc<ListedState>) {
        self.context.floors.raise(&self.gvr, listed.resource_version(), listed.generation);
        self.listed.rcu(|before| match before {
            Some(before) if before.is_newer_than(listed) => Some(Arc::clone(before)),
            _ => Some(Arc::clone(listed)),
        });
    }

    /// Drops the listed state that clients were shown, if the cache has come that far.
    pub(crate) fn drop_overtaken(&self) {
        if self.listed.load().is_some() {
            self.listed.rcu(|listed| listed.clone().filter(|listed| self.is_ahead(listed)));
        }
    }

    /// Whether a listed state is newer than the cache's own.
    fn is_ahead(&self, listed: &ListedState) -> bool {
        let held = self.held();
        held.is_some_and(|held| held < listed.resource_version())
            && listed.generation == self.writer.generation()
    }

    fn held(&self) -> Option<ResourceVersion> {
        self.cache.state().map(|state| state.resource_version())
    }

    /// Returns the resourceVersion below which no state may be shown any more: the cache's own, or
    /// what another cache of the resource or a proof of freshness has shown.
    pub(crate) fn floor(&self) -> Option<ResourceVersion> {
        let generation = self.context.history.generation();
        self.held().max(self.context.floors.get(&self.gvr, generation))
    }

    /// Raises the floor of the resource to what clients were shown, or are about to be.
    pub(crate) fn raise_floor(&self, at: Option<ResourceVersion>) {
        if let Some(at) = at {
            self.context.floors.raise(&self.gvr, at, self.writer.generation());
        }
    }

    /// Whether only watches that start at a resourceVersion may use the state.
    pub(crate) fn is_behind(&self) -> bool {
        *self.behind.borrow() != Behind::No
    }

    /// Whether the state is from before the cache was created, and nobody knows how far it must
    /// come. Only a consistent list opens it.
    pub(crate) fn needs_consistent_list(&self) -> bool {
        *self.behind.borrow() == Behind::Unknown
    }

    /// Waits until all reads may use the state. Cancel safe.
    pub(crate) async fn opened(&self) -> bool {
        self.behind.subscribe().wait_for(|behind| *behind == Behind::No).await.is_ok()
    }

    /// Waits until the cache is behind a resourceVersion, and returns that. Cancel safe.
    pub(crate) async fn needed(&self) -> Option<ResourceVersion> {
        let mut behind = self.behind.subscribe();
        let is_known = |behind: &Behind| matches!(behind, Behind::Until { .. });
        match *behind.wait_for(is_known).await.ok()? {
            Behind::Until { needed, .. } => Some(needed),
            Behind::No | Behind::Unknown => None,
        }
    }

    /// Notes that the state will be one from before the cache was created: it is listed at a
    /// resourceVersion that a watcher requested.
    pub(crate) fn begin_in_the_past(&self) {
        self.behind.send_replace(Behind::Unknown);
    }

    /// Closes the state to reads until the cache has come to `needed`. `is_probed` says that the
    /// upstream returned it after the cache was created.
    pub(crate) fn hold(&self, needed: ResourceVersion, is_probed: bool) {
        let generation = self.writer.generation();
        self.behind.send_if_modified(|behind| {
            let rises = behind.rises_to(needed, generation, is_probed);
            if rises {
                *behind = Behind::Until { needed, generation };
            }
            rises
        });
    }

    /// Closes the state to reads until the cache has come to the floor of the resource, if that is
    /// above what it has shown, or shows next. Without either there is nothing to hold.
    pub(crate) fn hold_below_floor(&self, next: Option<ResourceVersion>, is_probed: bool) {
        let newest_shown = self.resource_version().max(next);
        let floor = self.context.floors.get(&self.gvr, self.writer.generation());
        if newest_shown.is_some()
            && let Some(floor) = floor.filter(|floor| Some(*floor) > newest_shown)
        {
            self.hold(floor, is_probed);
        }
    }

    /// Closes the state to reads until the cache has come as far as another of the resource, if it
    /// has shown less of the same history.
    pub(crate) fn hold_behind(&self, other: &Self) {
        let Some(needed) = other.resource_version() else { return };
        let is_older = self.resource_version().is_some_and(|newest_shown| newest_shown < needed);
        if is_older && self.writer.generation() == other.writer.generation() {
            // For one that began in the past, and is to come to a probe that may be older.
            self.raise_floor(Some(needed));
            self.hold(needed, false);
        }
    }

    /// Opens the state to all reads, if the cache has come as far as it needs to and as others have
    /// shown. `is_present` says that the upstream listed its state after it was created.
    pub(crate) fn settle(&self, is_present: bool) {
        self.hold_below_floor(None, is_present);
        let (at, generation) = (self.resource_version(), self.writer.generation());
        self.behind.send_if_modified(|behind| {
            let ends = behind.ends_at(at, generation, is_present);
            if ends {
                *behind = Behind::No;
            }
            ends
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(number: u64) -> ResourceVersion {
        ResourceVersion(number)
    }

    fn until(number: u64, generation: u64) -> Behind {
        Behind::Until { needed: rv(number), generation }
    }

    #[test]
    fn a_held_state_opens_at_the_highest_that_is_needed() {
        assert!(Behind::No.rises_to(rv(10), 0, false));
        assert!(until(10, 0).rises_to(rv(20), 0, false));
        assert!(!until(20, 0).rises_to(rv(15), 0, true));
        assert!(!until(20, 0).ends_at(Some(rv(19)), 0, true));
        assert!(until(20, 0).ends_at(Some(rv(20)), 0, false));
        assert!(!until(20, 0).ends_at(None, 0, false));
    }

    #[test]
    fn a_cache_from_the_past_opens_at_its_probe_or_with_a_list() {
        assert!(!Behind::Unknown.rises_to(rv(10), 0, false));
        assert!(!Behind::Unknown.ends_at(Some(rv(30)), 0, false), "nobody knows how far to come");
        assert!(Behind::Unknown.rises_to(rv(40), 0, true));
        assert!(Behind::Unknown.ends_at(Some(rv(1)), 0, true));
    }

    #[test]
    fn what_was_needed_in_a_lost_history_is_not_waited_for() {
        assert!(until(100, 0).rises_to(rv(30), 1, false));
        assert!(!until(30, 1).rises_to(rv(200), 0, false));
        assert!(until(30, 1).ends_at(Some(rv(1)), 2, false));
    }
}
