//! The budget of repeated requests: a tenth of the requests of the last ten seconds, or three a
//! second where that is more.
//!
//! When an API server fails, many requests fail together. If all were sent again, the servers that
//! are left would get twice the load at the worst moment. Beyond the budget, a request is answered
//! with its first error.
//!
//! A request notes itself with two atomic operations; a repetition takes a lock.
//!
//! Lock: that of `spent`, held for a few instructions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Requests and repetitions by second.
#[derive(Debug)]
pub(super) struct RetryBudget {
    start: Instant,
    requests: [AtomicU64; SLOTS],
    /// The seconds of the last repetitions.
    spent: Mutex<Vec<u64>>,
}

impl RetryBudget {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, requests: Default::default(), spent: Mutex::default() }
    }

    /// Notes a request that is sent for the first time.
    pub(super) fn note_request(&self, now: Instant) {
        let second = self.second(now);
        let Some(slot) = self.slot(second) else { return };
        // The upper half is the second, and the lower half the number of requests in it.
        if slot.load(Ordering::Relaxed) >> COUNT_BITS == second {
            slot.fetch_add(1, Ordering::Relaxed);
        } else {
            // If two requests do this at once, one may be lost.
            slot.store((second << COUNT_BITS) + 1, Ordering::Relaxed);
        }
    }

    /// Takes a repetition from the budget. Returns false if there is none left.
    pub(super) fn try_take(&self, now: Instant) -> bool {
        let second = self.second(now);
        let is_recent = |at: u64| at + WINDOW_SECONDS > second;
        let requests: u64 = (self.requests.iter().map(|slot| slot.load(Ordering::Relaxed)))
            .filter(|slot| is_recent(slot >> COUNT_BITS))
            .map(|slot| slot & COUNT_MASK)
            .sum();
        let allowed = (requests / REQUESTS_PER_RETRY).max(LEAST_PER_SECOND * WINDOW_SECONDS);
        let mut spent = self.spent.lock();
        spent.retain(|&at| is_recent(at));
        let may_retry = (spent.len() as u64) < allowed;
        if may_retry {
            spent.push(second);
        }
        may_retry
    }

    fn slot(&self, second: u64) -> Option<&AtomicU64> {
        self.requests.get(usize::try_from(second % SLOTS as u64).ok()?)
    }

    /// The seconds since the start, plus one so that an empty slot is of no second.
    fn second(&self, now: Instant) -> u64 {
        let elapsed: Duration = now.saturating_duration_since(self.start);
        elapsed.as_secs() + WINDOW_SECONDS
    }
}

const WINDOW_SECONDS: u64 = 10;
/// One more than the seconds of the window, so that a slot is reused only when it has left it.
const SLOTS: usize = 11;
const REQUESTS_PER_RETRY: u64 = 10;
const LEAST_PER_SECOND: u64 = 3;
const COUNT_BITS: u32 = 32;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn retries(budget: &RetryBudget, now: Instant) -> usize {
        (0..1000).take_while(|_| budget.try_take(now)).count()
    }

    #[test]
    fn a_tenth_of_the_requests_or_three_a_second_are_sent_again() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        assert_eq!(retries(&budget, start), 30, "without a request");
        let later = start + Duration::from_secs(20);
        for second in 0..10 {
            for _ in 0..100 {
                budget.note_request(later + Duration::from_secs(second));
            }
        }
        let at = later + Duration::from_secs(9);
        assert_eq!(retries(&budget, at), 100);
        assert_eq!(retries(&budget, at), 0);
    }

    #[test]
    fn requests_and_repetitions_are_forgotten_after_ten_seconds() {
        let start = Instant::now();
        let budget = RetryBudget::new(start);
        for _ in 0..1000 {
            budget.note_request(start);
        }
        assert_eq!(retries(&budget, start + Duration::from_secs(9)), 100);
        assert_eq!(retries(&budget, start + Duration::from_secs(10)), 0, "spent just now");
        assert_eq!(retries(&budget, start + Duration::from_secs(19)), 30);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// Requests come at random rates, and many fail, as do their repetitions. Where there are
        /// 30 requests a second or more, load grows by a tenth at most.
        #[test]
        fn a_tenth_of_all_requests_is_sent_again_at_most(
            rates in proptest::collection::vec(0_u64..400, 1..30),
            failing_percent in 0_u8..=100,
            seed: u64,
        ) {
            let start = Instant::now();
            let budget = RetryBudget::new(start);
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut requests, mut retries) = (0, 0);
            for (second, rate) in (0..).zip(rates) {
                let now = start + Duration::from_secs(second);
                for _ in 0..rate {
                    budget.note_request(now);
                    requests += 1;
                    while random.u8(..100) < failing_percent && budget.try_take(now) {
                        retries += 1;
                    }
                }
                // Windows of ten seconds that share no second.
                let least = LEAST_PER_SECOND * WINDOW_SECONDS * (second / WINDOW_SECONDS + 1);
                prop_assert!(retries <= requests / REQUESTS_PER_RETRY + least);
            }
        }
    }
}
