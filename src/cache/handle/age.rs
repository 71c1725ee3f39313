//! How old what a cache holds may be.

use std::time::Duration;

use tokio::time::Instant;

use super::CacheHandle;

impl CacheHandle {
    /// Returns how long ago the cache was last known to have every event. `None` while its watch is
    /// open and an API server is usable.
    pub fn age(&self) -> Option<Duration> {
        self.cached.outdated_since().map(|since| since.elapsed())
    }

    /// Returns the age of a cache that cannot follow the upstream, although an API server is
    /// usable: its reflector has failed since its watch was open, or the watch is closed for longer
    /// than it takes to open the next one. Such a cache knows of no object that is new.
    pub(crate) fn failing_for(&self) -> Option<Duration> {
        let cached = &self.cached;
        let age = cached.lifecycle.unwatched_since()?.elapsed();
        let is_failing = cached.lifecycle.has_failed() || age >= REOPENED_WITHIN;
        (is_failing && cached.context.availability.is_usable()).then_some(age)
    }

    /// Whether the cache was created after `moment`, so that it never knew what was absent before.
    pub(crate) fn began_after(&self, moment: Instant) -> bool {
        self.cached.lifecycle.created >= moment
    }

    /// Whether the cache may have begun in a restart whose clients still come
    /// (`docs/decisions/herds.md`).
    pub(crate) fn is_new(&self) -> bool {
        self.cached.lifecycle.created.elapsed() < HERD_DURATION
    }
}

/// The clients of a restart back off for half a minute at most, as client-go does.
const HERD_DURATION: Duration = Duration::from_secs(30);
/// The watches of the upstream end every few minutes. The next one is open within milliseconds.
const REOPENED_WITHIN: Duration = Duration::from_secs(1);
