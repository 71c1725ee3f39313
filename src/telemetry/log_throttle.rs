//! Limits a log message to one line per interval.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Decides whether a line may be logged now. Lock-free; the message itself stays at the call site.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    start: Instant,
    interval_ms: u64,
    /// When the next line may be logged, in milliseconds after `start`.
    next_ms: AtomicU64,
    /// The events since the last line.
    suppressed: AtomicU64,
}

impl LogThrottle {
    /// Creates a throttle that allows the first line at once, and then one line per `interval`.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            start: Instant::now(),
            interval_ms: millis(interval),
            next_ms: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// If a line may be logged now, returns the number of events suppressed since the last line.
    /// Otherwise counts this event as suppressed and returns `None`.
    pub(crate) fn try_acquire(&self) -> Option<u64> {
        let now = millis(self.start.elapsed());
        let next = self.next_ms.load(Ordering::Relaxed);
        let following = now.saturating_add(self.interval_ms);
        // Only one of several concurrent events can move the time, and that one logs.
        let may_log = now >= next
            && self
                .next_ms
                .compare_exchange(next, following, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if may_log {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_per_interval_counts_the_suppressed_events() {
        let throttle = LogThrottle::new(Duration::from_secs(10));
        assert_eq!(throttle.try_acquire(), Some(0));
        assert_eq!((throttle.try_acquire(), throttle.try_acquire()), (None, None));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(throttle.try_acquire(), Some(2));
        assert_eq!(throttle.try_acquire(), None);
    }
}
