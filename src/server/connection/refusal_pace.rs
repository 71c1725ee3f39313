//! Holds a connection back of which many requests are refused: its client does not heed 429s
//! (`docs/decisions/own-overload.md`).
//!
//! Beyond [`REFUSALS`] in a second, nothing is read from the connection for a second, and the
//! client is asked to use another one, which may lead to another Weir: over HTTP/2 by GOAWAY, once;
//! open watches go on. Over HTTP/1.1 the refusal itself is sent a second later, with
//! `Connection: close`.
//!
//! The pause is bounded, since window updates and pings of open watches wait for it as well.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::flow::rate_limit::{Bucket, Rate};

/// The refusals of a connection, and the pause that follows from them.
#[derive(Debug)]
pub(crate) struct RefusalPace {
    began: Instant,
    refusals: Bucket,
    /// When reading goes on, in nanoseconds since `began`; 0 if it never paused.
    reads_at: AtomicU64,
    /// Wakes the task that asks the client to use another connection.
    asked: Notify,
}

impl RefusalPace {
    /// Begins without refusals.
    pub(crate) fn new() -> Self {
        let (refusals, reads_at) = (Bucket::default(), AtomicU64::new(0));
        Self { began: Instant::now(), refusals, reads_at, asked: Notify::new() }
    }

    /// Notes a refusal. Beyond [`REFUSALS`] in a second, pauses reading, and returns for how long.
    pub(crate) fn refuse(&self) -> Option<Duration> {
        let now = self.began.elapsed();
        self.refusals.take(REFUSALS, now).err()?;
        let reads_at = u64::try_from((now + READ_DELAY).as_nanos()).unwrap_or(u64::MAX);
        self.reads_at.fetch_max(reads_at, Ordering::Relaxed);
        Some(READ_DELAY)
    }

    /// Returns when reading goes on; `None` if it does not pause.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        let reads_at = self.reads_at.load(Ordering::Relaxed);
        if reads_at == 0 {
            return None;
        }
        let until = self.began + Duration::from_nanos(reads_at);
        (until > Instant::now()).then_some(until)
    }

    /// Has the client of an HTTP/2 connection asked to use another one. Further calls do nothing.
    pub(crate) fn ask_to_leave(&self) {
        self.asked.notify_one();
    }

    /// Resolves once the client is to be asked to use another connection. Only one task may call
    /// this.
    pub(super) async fn until_asked_to_leave(&self) {
        self.asked.notified().await;
    }
}

/// The refusals that a client may get: more than a controller does that starts, and finds each of
/// its informers refused a few times.
const REFUSALS: Rate = Rate { per_second: 200, burst: 200 };
/// Nothing is read for this time. A client-go client waits as long by itself after a 429.
const READ_DELAY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_refusals_in_a_second_pause_the_reading() {
        let pace = RefusalPace::new();
        for _ in 0..200 {
            assert_eq!(pace.refuse(), None);
        }
        assert_eq!(pace.paused_until(), None);
        assert_eq!(pace.refuse(), Some(READ_DELAY));
        assert_eq!(pace.paused_until(), Some(Instant::now() + READ_DELAY));
        tokio::time::sleep(READ_DELAY).await;
        assert_eq!(pace.paused_until(), None);
        for _ in 0..200 {
            assert_eq!(pace.refuse(), None, "a second later it may have as many again");
        }
        assert_eq!(pace.refuse(), Some(READ_DELAY));
        pace.ask_to_leave();
        pace.ask_to_leave();
        pace.until_asked_to_leave().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_is_never_paused() {
        let pace = RefusalPace::new();
        for _ in 0..1000 {
            assert_eq!(pace.refuse(), None);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
