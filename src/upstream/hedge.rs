//! Hedged probes: a probe that waits for long is sent to a second API server as well.
//!
//! Only probes of the present resourceVersion are, lists of one object: sending one twice is
//! harmless, and many requests wait for each. The first answer is taken, and if both are there the
//! one with the higher resourceVersion: both are consistent reads that were sent after the requests
//! arrived that wait for them. The other one is cancelled.
//!
//! A second request makes an overload worse. So at most a twentieth of all probes are hedged, and
//! none at API servers that seem to be able to do less than half of their seats
//! (`docs/decisions/adaptive-limits.md`).
//!
//! Lock: that of the latencies, held for a few instructions.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use parking_lot::Mutex;

/// The budget of hedged probes, of all resources.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget {
    /// The budget in parts of a probe. Each probe adds one part.
    parts: AtomicU32,
}

impl HedgeBudget {
    /// Notes a probe.
    pub(super) fn note_probe(&self) {
        let add = |parts: u32| (parts < PARTS_MAX).then_some(parts + 1);
        // A full budget stays as it is.
        let _is_noted = self.parts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
    }

    /// Takes a hedged probe from the budget. Returns false if there is none left.
    pub(super) fn try_take(&self) -> bool {
        let take = |parts: u32| parts.checked_sub(PARTS_OF_ONE);
        self.parts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// How long the last probes of a resource took.
#[derive(Debug, Default)]
pub(super) struct ProbeTimes {
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    times: Vec<Duration>,
    next: usize,
}

impl ProbeTimes {
    /// Notes how long a probe took.
    pub(super) fn add(&self, time: Duration) {
        let mut recent = self.recent.lock();
        let Recent { times, next } = &mut *recent;
        match times.get_mut(*next) {
            Some(oldest) => *oldest = time,
            None => times.push(time),
        }
        *next = (*next + 1) % TIMES_MAX;
    }

    /// Returns after which time a probe is hedged: 50 ms, and longer than 19 of 20 took. `None`
    /// while too few are known.
    pub(super) fn hedge_after(&self) -> Option<Duration> {
        let mut times = self.recent.lock().times.clone();
        if times.len() < TIMES_MIN {
            return None;
        }
        times.sort_unstable();
        let p95 = times.get((times.len() * 19).div_ceil(20).saturating_sub(1))?;
        Some((*p95).max(AFTER_MIN))
    }
}

/// The outcome of a hedged request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HedgeResult {
    First,
    Second,
    Failed,
}

impl HedgeResult {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::First, Self::Second, Self::Failed];

    /// Returns the label value in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Failed => "failed",
        }
    }
}

/// Waits for the answer of either request, and for the other one if that fails. If both are there,
/// returns that of the higher `rank`.
pub(super) async fn either<T, E, R: Ord>(
    first: impl Future<Output = Result<T, E>>,
    second: impl Future<Output = Result<T, E>>,
    rank: impl Fn(&T) -> R,
) -> (Result<T, E>, HedgeResult) {
    let (first, second) = (pin!(first), pin!(second));
    let (one, two) = match select(first, second).await {
        Either::Left((Ok(one), second)) => (Some(Ok(one)), second.now_or_never()),
        Either::Left((Err(error), second)) => (Some(Err(error)), Some(second.await)),
        Either::Right((Ok(two), first)) => (first.now_or_never(), Some(Ok(two))),
        Either::Right((Err(error), first)) => (Some(first.await), Some(Err(error))),
    };
    match (one, two) {
        (Some(Ok(one)), Some(Ok(two))) if rank(&two) > rank(&one) => (Ok(two), HedgeResult::Second),
        (Some(Ok(one)), _) => (Ok(one), HedgeResult::First),
        (_, Some(Ok(two))) => (Ok(two), HedgeResult::Second),
        (Some(Err(error)), _) | (None, Some(Err(error))) => (Err(error), HedgeResult::Failed),
        // One of them was awaited.
        (None, None) => std::future::pending().await,
    }
}

/// A twentieth of all probes may be hedged...
const PARTS_OF_ONE: u32 = 20;
/// ...and five at once after a time without any.
const PARTS_MAX: u32 = 5 * PARTS_OF_ONE;
const TIMES_MAX: usize = 64;
const TIMES_MIN: usize = 20;
/// A probe usually takes a few milliseconds.
const AFTER_MIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::{Instant, sleep};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    async fn answer(after_ms: u32, result: Result<u32, u32>) -> Result<u32, u32> {
        sleep(MS * after_ms).await;
        result
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_counts_and_of_two_the_newer_one() {
        for (first, second, expected, ms) in [
            ((10, Ok(1)), (20, Ok(2)), (Ok(1), HedgeResult::First), 10),
            ((20, Ok(1)), (10, Ok(2)), (Ok(2), HedgeResult::Second), 10),
            ((10, Ok(1)), (10, Ok(2)), (Ok(2), HedgeResult::Second), 10),
            ((10, Ok(2)), (10, Ok(1)), (Ok(2), HedgeResult::First), 10),
            ((10, Err(9)), (20, Ok(2)), (Ok(2), HedgeResult::Second), 20),
            ((20, Ok(1)), (10, Err(8)), (Ok(1), HedgeResult::First), 20),
            ((20, Err(9)), (10, Err(8)), (Err(9), HedgeResult::Failed), 20),
        ] {
            let began = Instant::now();
            let (first, second) = (answer(first.0, first.1), answer(second.0, second.1));
            assert_eq!(either(first, second, |number| *number).await, expected);
            assert_eq!(began.elapsed(), MS * ms);
        }
    }

    #[test]
    fn a_probe_is_hedged_after_most_others_were_answered() {
        let times = ProbeTimes::default();
        (1..20).for_each(|number| times.add(MS * number));
        assert_eq!(times.hedge_after(), None, "too few are known");
        times.add(20 * MS);
        assert_eq!(times.hedge_after(), Some(50 * MS));
        (1..=100).for_each(|number| times.add(MS * number));
        // The last 64 times are 37 to 100 ms.
        assert_eq!(times.hedge_after(), Some(97 * MS));
    }

    proptest! {
        #[test]
        fn at_most_a_twentieth_of_probes_is_hedged(steps in proptest::collection::vec(any::<bool>(), 1..2000)) {
            let budget = HedgeBudget::default();
            let (mut probes, mut hedged) = (0, 0);
            for is_slow in steps {
                budget.note_probe();
                probes += 1;
                hedged += usize::from(is_slow && budget.try_take());
                prop_assert!(hedged * 20 <= probes);
            }
        }
    }
}
