//! Whether requests wait for the upstream and nothing arrives: a frozen API server accepts
//! connections and never answers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The requests that wait for the head of a response.
#[derive(Debug)]
pub(super) struct Traffic {
    start: Instant,
    waiting: AtomicUsize,
    /// The milliseconds from `start` to the last response, or to the first request that waits.
    quiet_since: AtomicU64,
}

/// A request that waits for the head of its response. Dropping it ends the wait.
pub(crate) struct Waiting<'a> {
    traffic: &'a Traffic,
}

impl Default for Traffic {
    fn default() -> Self {
        let (waiting, quiet_since) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { start: Instant::now(), waiting, quiet_since }
    }
}

impl Traffic {
    /// Counts a request that waits.
    pub(super) fn begin(&self) -> Waiting<'_> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            self.restart();
        }
        Waiting { traffic: self }
    }

    /// Whether requests wait, and no response arrived for [`SILENCE`].
    pub(super) fn is_silent(&self) -> bool {
        let quiet_for = self.millis().saturating_sub(self.quiet_since.load(Ordering::Relaxed));
        self.waiting.load(Ordering::Relaxed) > 0 && Duration::from_millis(quiet_for) >= SILENCE
    }

    fn restart(&self) {
        self.quiet_since.store(self.millis(), Ordering::Relaxed);
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Waiting<'_> {
    /// Notes that the head of the response arrived.
    pub(crate) fn responded(self) {
        self.traffic.restart();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.traffic.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests that wait this long without any response ask for a check.
const SILENCE: Duration = Duration::from_secs(1);
