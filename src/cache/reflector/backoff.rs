//! The back-off of a reflector after a failure: client-go's exponential back-off with jitter.
//!
//! The figures are those of `wait.Backoff` in client-go's reflector: 0.8 s doubling to 30 s, each
//! stretched by up to as much again at random, and reset after two minutes without a failure
//! (`docs/decisions/reflector-failures.md`).

use std::time::Duration;

use tokio::time::Instant;

/// The state of one back-off.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    last: Option<Instant>,
}

impl Backoff {
    /// Returns the wait after one more failure, which is at least `retry_after`, and whether this
    /// failure follows another.
    pub(crate) fn next(&mut self, now: Instant, retry_after: Option<Duration>) -> (Duration, bool) {
        if self.last.is_some_and(|last| now.duration_since(last) >= RESET_AFTER) {
            self.failures = 0;
        }
        self.last = Some(now);
        let is_repeated = self.failures > 0;
        let doubled = BASE.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        let stretched = doubled.min(CAP).mul_f64(1.0 + fastrand::f64());
        (stretched.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)), is_repeated)
    }
}

/// Returns the wait of a reflector whose upstream has come back after it was away. The wait of a
/// resource that is `needed_first` ends before all others (`docs/decisions/upstream-away.md`).
pub(crate) fn after_return(needed_first: bool) -> Duration {
    let base = if needed_first { BASE / 2 } else { BASE };
    base.mul_f64(1.0 + fastrand::f64())
}

/// The first wait, before jitter; client-go's.
const BASE: Duration = Duration::from_millis(800);
/// The longest wait, before jitter; client-go's.
const CAP: Duration = Duration::from_secs(30);
/// The back-off starts again after this time without a failure; client-go's.
const RESET_AFTER: Duration = Duration::from_secs(120);
/// The largest number of doublings. It exceeds the cap, and keeps the shift from overflowing.
const DOUBLINGS_MAX: u32 = 6;
/// The largest `Retry-After` that is honored: a cache must not sleep for a day because of one
/// header.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wait_doubles_to_the_cap_and_is_reset() {
        let mut backoff = Backoff::default();
        let mut base = BASE;
        for _ in 0..10 {
            let (wait, is_repeated) = backoff.next(Instant::now(), None);
            assert_eq!(is_repeated, base > BASE);
            assert!(wait >= base.min(CAP) && wait <= base.min(CAP) * 2, "{wait:?} for {base:?}");
            base *= 2;
        }
        tokio::time::advance(RESET_AFTER).await;
        let (wait, is_repeated) = backoff.next(Instant::now(), None);
        assert!(wait <= BASE * 2 && !is_repeated);
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_honored_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let requested = Some(Duration::from_secs(20));
        assert_eq!(backoff.next(Instant::now(), requested).0, Duration::from_secs(20));
        let absurd = Some(Duration::from_secs(86_400));
        assert_eq!(backoff.next(Instant::now(), absurd).0, RETRY_AFTER_MAX);
    }
}
