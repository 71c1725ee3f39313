//! The monotonic clock of the caches.

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::core::watch_cache::Now;

/// A monotonic clock that starts at zero. Its copies share the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns the time as `cache::core` takes it.
    pub(crate) fn now(self) -> Now {
        Now(self.elapsed())
    }

    /// Returns a time as `cache::core` takes it; the start for an earlier one.
    pub(crate) fn at(self, time: Instant) -> Now {
        Now(time.saturating_duration_since(self.start))
    }

    /// Returns the time in milliseconds.
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn elapsed(self) -> Duration {
        self.start.elapsed()
    }
}
