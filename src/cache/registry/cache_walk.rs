//! The walk of the comparison through one cache, and what is known of its next page.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::cache::cached_resource::CachedResource;
use crate::cache::core::state::State;
use crate::cache::verification::check::{PagePlan, WholeObjects, page_objects};
use crate::cache::verification::walk::{RoundPages, Walk, WholePages};
use crate::codec::object::Key;
use crate::upstream::lister_watcher::ExactServer;

/// The walk through one cache.
pub(super) struct CacheWalk {
    /// Another cache of the key begins another walk.
    cached: Weak<CachedResource>,
    walk: Walk,
    /// The comparisons of the next page's bytes in a row that proved nothing.
    byte_failures: u32,
    /// The time since which its bytes differ under one resourceVersion.
    unsettled_since: Option<Duration>,
    /// Whether it is read from another API server.
    asks_other: bool,
}

impl CacheWalk {
    /// Begins after a random key, or at the begin of a collection that one page may hold.
    pub(super) fn begin(cached: &Arc<CachedResource>) -> Self {
        let state = cached.watch_cache.state();
        let state = state.filter(|state| state.len() > page_objects(state.len()) as usize);
        let after = state.and_then(|state| {
            let number = fastrand::usize(..=state.len());
            let before = number.checked_sub(1)?;
            state.store().iter().nth(before).map(|object| object.key.clone())
        });
        Self {
            cached: Arc::downgrade(cached),
            walk: Walk::new(after),
            byte_failures: 0,
            unsettled_since: None,
            asks_other: false,
        }
    }

    pub(super) fn is_through(&self, cached: &Arc<CachedResource>) -> bool {
        self.cached.as_ptr() == Arc::as_ptr(cached)
    }

    /// Whether the cache is there.
    pub(super) fn is_held(&self) -> bool {
        self.cached.strong_count() > 0
    }

    /// Begins a round at the present position: an event came too late, or the number of objects
    /// differs.
    pub(super) fn begin_round(&mut self) {
        self.walk.begin_round();
    }

    pub(super) fn next_page(&self, state: Arc<State>, pages: RoundPages) -> PagePlan {
        let bytes = match pages.whole {
            WholePages::None => WholeObjects::Never,
            _ if self.byte_failures >= BYTE_FAILURES_MAX => WholeObjects::Never,
            WholePages::All => WholeObjects::Always,
            WholePages::Run(run) if self.walk.is_in_run(run) => WholeObjects::Always,
            WholePages::Run(_) => WholeObjects::IfSmall,
        };
        let server = if self.asks_other { ExactServer::OtherIfKnown } else { ExactServer::Own };
        PagePlan::new(state, &self.walk, bytes, server)
    }

    /// Notes that a page was read.
    pub(super) fn note_read(&mut self) {
        self.asks_other = !self.asks_other;
    }

    /// Notes that bytes differ under one resourceVersion.
    pub(super) fn note_unsettled(&mut self, now: Duration) {
        self.unsettled_since.get_or_insert(now);
    }

    /// Whether such a difference has lasted.
    pub(super) fn is_settled(&self, round: Duration, now: Duration) -> bool {
        let settling = round / SETTLING_PARTS;
        self.unsettled_since.is_some_and(|since| now.saturating_sub(since) >= settling)
    }

    /// Notes that a comparison proved nothing.
    pub(super) fn note_failure(&mut self, page: &PagePlan) {
        self.byte_failures += u32::from(page.is_whole);
    }

    /// Goes on after a page was compared, whose last key is `through` if another one follows.
    /// Returns whether that completes a round.
    pub(super) fn advance(&mut self, through: Option<Key>, pages: RoundPages) -> bool {
        self.unsettled_since = None;
        self.byte_failures = 0;
        let run = if let WholePages::Run(run) = pages.whole { run } else { 0 };
        self.walk.advance(through, run)
    }
}

/// For a tenth of a round, a minute, bytes must differ under one resourceVersion: a changed
/// definition, and the release of an API server, are noticed sooner.
const SETTLING_PARTS: u32 = 10;
/// The comparisons of a page's bytes, if they prove nothing, before its metadata are compared, and
/// the walk goes on: an object may have other bytes each time.
const BYTE_FAILURES_MAX: u32 = 4;
