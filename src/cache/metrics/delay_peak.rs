//! The longest delay of a cache's events in the last one to two minutes.
//!
//! To note a delay costs one atomic. Two windows of a minute follow each other, so that the peak
//! stays visible for a minute at least, and is forgotten after two.
//!
//! Pure but for its atomics: the time is an argument.
//!
//! Lock order: the windows, with no other lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The longest delay of the last one to two minutes.
#[derive(Debug, Default)]
pub(super) struct DelayPeak {
    /// The longest one since it was last shown, in microseconds.
    latest: AtomicU64,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    began: Duration,
    before: u64,
    present: u64,
}

impl DelayPeak {
    /// Notes the delay of an event.
    pub(super) fn note(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.latest.fetch_max(micros, Ordering::Relaxed);
    }

    /// Returns the longest delay at `now`, a time that does not go back.
    pub(super) fn longest(&self, now: Duration) -> Duration {
        let latest = self.latest.swap(0, Ordering::Relaxed);
        let mut windows = self.windows.lock();
        let age = now.saturating_sub(windows.began);
        if age >= WINDOW {
            let before = if age < 2 * WINDOW { windows.present } else { 0 };
            *windows = Windows { began: now, before, present: 0 };
        }
        windows.present = windows.present.max(latest);
        Duration::from_micros(windows.present.max(windows.before))
    }
}

/// Longer than the interval in which people and Prometheus look.
const WINDOW: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_shown_for_one_to_two_minutes() {
        let peak = DelayPeak::default();
        let milli = Duration::from_millis;
        let peak_at = |second| peak.longest(Duration::from_secs(second));
        assert_eq!(peak_at(0), milli(0));
        peak.note(milli(7));
        peak.note(milli(3));
        assert_eq!([peak_at(2), peak_at(59), peak_at(61), peak_at(119)], [milli(7); 4]);
        peak.note(milli(4));
        assert_eq!(peak_at(125), milli(4));
        assert_eq!(peak_at(400), milli(0), "nobody looked for long");
    }
}
