//! The log of failed forwards, limited to one line a second.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::upstream::error::UpstreamError;

/// Logs upstream failures, at most one line per interval.
#[derive(Debug)]
pub(crate) struct FailureLog {
    start: Instant,
    /// When the next line may be logged, in milliseconds since `start`.
    next_ms: AtomicU64,
    /// The failures since the last line.
    suppressed: AtomicU64,
}

impl FailureLog {
    /// Creates a log that has logged nothing yet.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), next_ms: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Logs `error`, or counts it for the next line.
    pub(super) fn log(&self, error: &UpstreamError) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next = self.next_ms.load(Ordering::Relaxed);
        let may_log = now >= next
            && self
                .next_ms
                .compare_exchange(next, now + LOG_INTERVAL_MS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if may_log {
            let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
            tracing::warn!(%error, suppressed, "a request could not be forwarded");
        } else {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One line a second informs an operator as well as a thousand.
const LOG_INTERVAL_MS: u64 = 1000;
