//! Rates by the generic cell rate algorithm (GCRA, ITU-T I.371): a token bucket in one number.
//!
//! The number is the theoretical arrival time: when the bucket will be full again. It is kept in
//! nanoseconds since a begin that the caller chooses, so that a bucket is one atomic.
//!
//! Invariant: what was accepted in a window is at most the burst and the rate times its length.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The allowed units: a number for each second, and a number at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units a second; at least 1.
    pub per_second: u64,
    /// Units that may come at once; at least 1.
    pub burst: u64,
}

/// The used part of a rate.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Begins with half of the burst used: the place of a bucket that was forgotten.
    pub fn half_full(rate: Rate, now: Duration) -> Self {
        let used = rate.time_of(rate.burst / 2);
        Self(AtomicU64::new(nanos(now).saturating_add(used)))
    }

    /// Takes one unit. An error is the time after which there will be one.
    pub fn take(&self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let (now, tolerated) = (nanos(now), rate.time_of(rate.burst));
        let step = rate.time_of(1);
        let next = |full_at: u64| {
            let next = full_at.max(now).saturating_add(step);
            (next - now <= tolerated).then_some(next)
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(()),
            Err(full_at) => {
                let over = (full_at.max(now) - now).saturating_add(step) - tolerated;
                Err(Duration::from_nanos(over))
            }
        }
    }

    /// Returns the time after which a unit is there; `None` if one is there now.
    pub fn wait(&self, rate: Rate, now: Duration) -> Option<Duration> {
        let used = self.0.load(Ordering::Relaxed).saturating_sub(nanos(now));
        let over = used.saturating_add(rate.time_of(1)).saturating_sub(rate.time_of(rate.burst));
        (over > 0).then(|| Duration::from_nanos(over))
    }

    /// Takes units that were used already, also beyond the burst.
    pub fn charge(&self, rate: Rate, now: Duration, units: u64) {
        let (now, used) = (nanos(now), rate.time_of(units));
        let next = |full_at: u64| Some(full_at.max(now).saturating_add(used));
        let charged = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        debug_assert!(charged.is_ok(), "`next` always returns a number");
    }
}

impl Rate {
    /// Returns the nanoseconds in which this number of units becomes free.
    fn time_of(self, units: u64) -> u64 {
        let nanos = u128::from(units) * NANOS_PER_SECOND / u128::from(self.per_second.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let (rate, bucket) = (Rate { per_second: 10, burst: 3 }, Bucket::default());
        let at = Duration::from_millis;
        for _ in 0..3 {
            bucket.take(rate, at(0)).unwrap();
        }
        assert_eq!(bucket.take(rate, at(0)), Err(at(100)));
        assert_eq!(bucket.wait(rate, at(40)), Some(at(60)));
        bucket.take(rate, at(100)).unwrap();
        assert_eq!(bucket.take(rate, at(150)), Err(at(50)));
    }

    #[test]
    fn what_was_used_is_waited_for_also_beyond_the_burst() {
        let (rate, bucket) = (Rate { per_second: 100, burst: 100 }, Bucket::default());
        assert_eq!(bucket.wait(rate, Duration::ZERO), None);
        bucket.charge(rate, Duration::ZERO, 300);
        assert_eq!(bucket.wait(rate, Duration::ZERO), Some(Duration::from_millis(2010)));
        assert_eq!(bucket.wait(rate, Duration::from_millis(2010)), None);
    }

    #[test]
    fn a_forgotten_bucket_has_half_of_its_burst() {
        let (rate, now) = (Rate { per_second: 1, burst: 10 }, Duration::from_secs(50));
        let bucket = Bucket::half_full(rate, now);
        let taken = (0..20).filter(|_| bucket.take(rate, now).is_ok()).count();
        assert_eq!(taken, 5);
    }

    proptest! {
        /// Overload reference, §4: never more than the burst and the rate times the time.
        #[test]
        fn no_window_has_more_than_the_burst_and_the_rate(
            per_second in 1_u64..1000,
            burst in 1_u64..50,
            gaps in prop::collection::vec(0_u64..200_000_000, 1..200),
        ) {
            let (rate, bucket) = (Rate { per_second, burst }, Bucket::default());
            let (mut now, mut taken) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                match bucket.take(rate, Duration::from_nanos(now)) {
                    Ok(()) => taken.push(now),
                    // The promise holds: at that time there is one.
                    Err(wait) => {
                        let then = Duration::from_nanos(now) + wait;
                        prop_assert_eq!(bucket.wait(rate, then), None);
                    }
                }
            }
            for (first, begin) in taken.iter().enumerate() {
                for (last, end) in taken.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as f64;
                    let length = (end - begin) as f64 / 1e9;
                    prop_assert!(count <= burst as f64 + per_second as f64 * length + 1e-3);
                }
            }
        }
    }
}
