//! The walks of the comparison through one cache, and what is known of its round.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::cache::cached_resource::CachedResource;
use crate::cache::core::state::State;
use crate::cache::verification::check::{PagePlan, WholeObjects, page_objects};
use crate::cache::verification::walk::{RoundPages, Walk};
use crate::codec::object::Key;
use crate::upstream::lister_watcher::ExactServer;

/// The walks through one cache.
pub(super) struct CacheWalk {
    /// Another cache of the key begins other walks.
    cached: Weak<CachedResource>,
    /// The walk that completes rounds.
    first: Walk,
    /// The walk that compares only whole objects.
    second: Walk,
    /// The number of the next page.
    page: u32,
    /// The suspicions at the begin of the round.
    suspicions: u32,
    /// Whether the round began because of a suspicion.
    is_hurried: bool,
    /// When the last such round was complete.
    hurried_at: Option<Duration>,
    /// The page of which the next two fields speak: whether it is one of the second walk, and the
    /// key after which it begins.
    last_page: (bool, Option<Key>),
    /// The comparisons of its bytes in a row that proved nothing.
    byte_failures: u32,
    /// Since when its bytes differ under one resourceVersion.
    unsettled_since: Option<Duration>,
    /// Whether the next page is read from another API server.
    asks_other: bool,
}

/// The next page of a cache.
pub(super) struct NextPage {
    pub(super) plan: PagePlan,
    /// Whether it is one of the second walk.
    is_second: bool,
}

/// A round that is complete.
#[derive(Debug)]
pub(super) struct Round {
    /// The suspicions at its begin.
    pub(super) suspicions: u32,
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
            first: Walk::new(after.clone()),
            second: Walk::new(after),
            // The caches have their pages of the second walk at different times.
            page: fastrand::u32(..),
            suspicions: cached.findings.suspicions(),
            is_hurried: false,
            hurried_at: None,
            last_page: (false, None),
            byte_failures: 0,
            unsettled_since: None,
            asks_other: false,
        }
    }

    /// Whether the walks are through this cache.
    pub(super) fn is_through(&self, cached: &Arc<CachedResource>) -> bool {
        self.cached.as_ptr() == Arc::as_ptr(cached)
    }

    /// Whether the cache is there.
    pub(super) fn is_held(&self) -> bool {
        self.cached.strong_count() > 0
    }

    /// Whether a suspicion lets the pages be compared at once: at most in one round after another
    /// of the usual time, so that an upstream that causes them all the time is asked for twice as
    /// many pages.
    pub(super) fn may_hurry(&self, round: Duration, now: Duration) -> bool {
        let is_over = |at: Duration| now.saturating_sub(at) >= round;
        self.is_hurried || self.hurried_at.is_none_or(is_over)
    }

    /// Hurries through a round because of a suspicion. Begins one at the present position, unless
    /// there were no suspicions since the present one began.
    pub(super) fn hurry(&mut self, suspicions: u32) {
        if std::mem::replace(&mut self.is_hurried, true) || self.suspicions == suspicions {
            return;
        }
        self.suspicions = suspicions;
        self.first.begin_round();
    }

    /// Plans the next page. `has_bytes` is whether a difference of bytes would prove something.
    pub(super) fn next_page(
        &mut self,
        state: Arc<State>,
        pages: &RoundPages,
        has_bytes: bool,
    ) -> NextPage {
        let is_second = pages.is_second(self.page);
        let walk = if is_second { &self.second } else { &self.first };
        let page = (is_second, walk.after().cloned());
        if page != self.last_page {
            (self.last_page, self.byte_failures, self.unsettled_since) = (page, 0, None);
        }
        let bytes = if !has_bytes || self.byte_failures >= BYTE_FAILURES_MAX {
            WholeObjects::Never
        } else if pages.is_whole || is_second {
            WholeObjects::Always
        } else {
            WholeObjects::IfSmall
        };
        let server = if self.asks_other { ExactServer::OtherIfKnown } else { ExactServer::Own };
        NextPage { plan: PagePlan::new(state, walk, bytes, server), is_second }
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
    pub(super) fn note_failure(&mut self, page: &NextPage) {
        self.byte_failures += u32::from(page.plan.is_whole);
    }

    /// Goes on after a page was compared, whose last key is `through` if another one follows.
    /// Returns the round that it completes. `suspicions` are those of `now`.
    pub(super) fn advance(
        &mut self,
        page: &NextPage,
        through: Option<Key>,
        suspicions: u32,
        now: Duration,
    ) -> Option<Round> {
        self.unsettled_since = None;
        self.byte_failures = 0;
        self.page = self.page.wrapping_add(1);
        if page.is_second {
            self.second.advance(through);
            return None;
        }
        if !self.first.advance(through) {
            return None;
        }
        if std::mem::take(&mut self.is_hurried) {
            self.hurried_at = Some(now);
        }
        let before = std::mem::replace(&mut self.suspicions, suspicions);
        Some(Round { suspicions: before })
    }
}

/// For a tenth of a round, a minute, bytes must differ under one resourceVersion: a changed
/// definition, and the release of an API server, are noticed sooner.
const SETTLING_PARTS: u32 = 10;
/// The comparisons of a page's bytes, if they prove nothing, before its metadata are compared, and
/// the walk goes on: an object may have other bytes each time.
const BYTE_FAILURES_MAX: u32 = 4;
