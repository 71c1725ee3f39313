//! Keeps comparisons within a share of one processor.
//!
//! A bucket leaks at the share and fills with the time for which comparisons ran. While it is full,
//! no comparison begins. Pure: the time is an argument.

use std::time::Duration;

/// The CPU time of comparisons, as far as their share has not paid for it yet.
#[derive(Debug)]
pub(crate) struct Pace {
    share: f64,
    /// Seconds that are not paid for.
    level: f64,
    at: Duration,
}

impl Pace {
    /// Creates the pace of a share of one processor.
    pub(crate) fn new(share: f64) -> Self {
        Self { share, level: 0.0, at: Duration::ZERO }
    }

    /// Adds time for which comparisons ran.
    pub(crate) fn spend(&mut self, now: Duration, busy: Duration) {
        self.leak(now);
        self.level += busy.as_secs_f64();
    }

    /// Whether no further comparison should begin now.
    pub(crate) fn is_spent(&mut self, now: Duration) -> bool {
        self.leak(now);
        self.level > BURST_SECONDS
    }

    fn leak(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level - passed * self.share).max(0.0);
        self.at = self.at.max(now);
    }
}

/// A start of many clients at once is compared without a pause: some hundred lists.
const BURST_SECONDS: f64 = 1.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_paid_for_over_time() {
        let mut pace = Pace::new(0.1);
        pace.spend(Duration::ZERO, Duration::from_millis(1500));
        assert!(pace.is_spent(Duration::ZERO));
        assert!(pace.is_spent(Duration::from_secs(4)));
        assert!(!pace.is_spent(Duration::from_secs(6)));
    }

    proptest! {
        /// No more is spent than the share, the burst and one comparison, whatever arrives.
        #[test]
        fn the_share_bounds_what_is_spent(
            share in 0.01..1.0_f64,
            steps in prop::collection::vec((0..5_000_u64, 0..2_000_u64), 1..200),
        ) {
            let (mut pace, mut now, mut spent) = (Pace::new(share), Duration::ZERO, 0.0);
            let mut longest = 0.0_f64;
            for (pause, busy) in steps {
                now += Duration::from_millis(pause);
                if !pace.is_spent(now) {
                    let busy = Duration::from_millis(busy);
                    pace.spend(now, busy);
                    spent += busy.as_secs_f64();
                    longest = longest.max(busy.as_secs_f64());
                }
            }
            let most = share * now.as_secs_f64() + BURST_SECONDS + longest + 1e-6;
            prop_assert!(spent <= most, "{spent} of {most}");
        }
    }
}
