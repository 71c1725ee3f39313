//! The backfill of one cache: which older resourceVersions watchers wait for, and below which the
//! upstream has none.
//!
//! Lock order: `wanted`, with no other lock.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::api::resource_version::ResourceVersion;
use crate::tasks::single_flight::SingleFlight;

/// The backfill of one cache.
#[derive(Default)]
pub(crate) struct BackfillState {
    /// The run in progress.
    pub(super) runs: SingleFlight<(), RunResult>,
    wanted: Mutex<Wanted>,
}

#[derive(Default)]
struct Wanted {
    /// The resourceVersions from which watchers want to start.
    asked: BTreeSet<ResourceVersion>,
    /// No watch can start below it: the upstream no longer has the events, or the cache has no
    /// place for them.
    expired_below: ResourceVersion,
    /// The highest of the oldest resourceVersions that the upstream named.
    named: Option<ResourceVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunResult {
    /// The history reaches further back, or it is known that it cannot.
    Done,
    /// The upstream did not answer.
    Failed,
}

impl BackfillState {
    /// Notes that a watcher wants to start at `after`. If too many are noted already, a lower one
    /// takes the place of the highest.
    pub(super) fn ask(&self, after: ResourceVersion) {
        let mut wanted = self.wanted.lock();
        wanted.asked.insert(after);
        if wanted.asked.len() > ASKED_MAX {
            wanted.asked.pop_last();
        }
    }

    /// Returns which of the resourceVersions that are asked for, below `oldest`, is tried next: the
    /// lowest, or, after the upstream refused it without naming its own oldest, the middle one.
    pub(super) fn next(&self, oldest: ResourceVersion, refused: bool) -> Option<ResourceVersion> {
        let mut wanted = self.wanted.lock();
        let expired_below = wanted.expired_below;
        wanted.asked.retain(|asked| (expired_below..oldest).contains(asked));
        let middle = if refused { wanted.asked.len() / 2 } else { 0 };
        wanted.asked.iter().nth(middle).copied()
    }

    /// Notes that no watch can start below `oldest`.
    pub(super) fn expire_below(&self, oldest: ResourceVersion) {
        let mut wanted = self.wanted.lock();
        wanted.expired_below = wanted.expired_below.max(oldest);
    }

    /// Notes that the upstream refused a watch from `from` with a 410, which named `oldest` as the
    /// oldest resourceVersion that it has. `from` itself is refused whatever it names.
    pub(super) fn refuse(&self, from: ResourceVersion, oldest: Option<ResourceVersion>) {
        let next = ResourceVersion(from.0.saturating_add(1));
        let mut wanted = self.wanted.lock();
        wanted.expired_below = wanted.expired_below.max(next).max(oldest.unwrap_or(next));
        wanted.named = wanted.named.max(oldest);
    }

    /// Returns the resourceVersion that a 410 for a watch from `after` names, as the upstream's
    /// does. `None` if the upstream named none that is above `after`.
    pub(crate) fn named_above(&self, after: ResourceVersion) -> Option<ResourceVersion> {
        self.wanted.lock().named.filter(|named| *named > after)
    }

    /// Whether it is known that no watch can start at `after`.
    pub(super) fn is_expired(&self, after: ResourceVersion) -> bool {
        after < self.wanted.lock().expired_below
    }

    /// Forgets the resourceVersions that are asked for. Watchers that wait still ask again.
    pub(super) fn forget_asked(&self) {
        self.wanted.lock().asked.clear();
    }
}

/// The largest number of different resourceVersions that are noted. Clients choose them.
const ASKED_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const OLDEST: ResourceVersion = ResourceVersion(100);

    #[test]
    fn the_lowest_is_tried_first_and_the_middle_after_a_refusal() {
        let state = BackfillState::default();
        for at in [50, 10, 90, 120, 70] {
            state.ask(ResourceVersion(at));
        }
        assert_eq!(state.next(OLDEST, false), Some(ResourceVersion(10)));
        state.expire_below(ResourceVersion(11));
        assert_eq!(state.next(OLDEST, true), Some(ResourceVersion(70)));
        assert!(state.is_expired(ResourceVersion(10)) && !state.is_expired(ResourceVersion(11)));
        state.expire_below(ResourceVersion(100));
        assert_eq!(state.next(OLDEST, true), None);
    }

    #[test]
    fn the_number_of_noted_resource_versions_is_bounded() {
        let state = BackfillState::default();
        for at in (1..=2 * ASKED_MAX as u64).rev() {
            state.ask(ResourceVersion(at));
        }
        assert_eq!(state.wanted.lock().asked.len(), ASKED_MAX);
        assert_eq!(state.next(OLDEST, false), Some(ResourceVersion(1)));
    }
}
