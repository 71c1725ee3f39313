//! The common part of token reviews and access reviews: sharing, admitting, sending and giving up a
//! review.
//!
//! Concurrent callers with the same key share one review. It runs in a task of its own, so that a
//! cancelled caller does not cancel it for the others. The reviews that run and wait are bounded,
//! in total and for one flow ([`admission`]). After failures the upstream counts as down, or gets
//! no review for a while ([`backoff`]), and a review that failed is not repeated at once. All of
//! this ends when the upstream comes back.
//!
//! Each kind decides what a verdict means, and for how long it is kept:
//! [`token_review`](super::token_review) and [`access_review`](super::access_review).
//!
//! Lock order: the map of reviews in flight, then the counters of the admission. The lock of the
//! back-off is taken alone. No lock is held across an await.

pub(super) mod admission;
pub(super) mod backoff;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use moka::sync::Cache;
use tokio::time::{Instant, timeout};

use crate::auth::reviewer::admission::{Admission, FlowLimits, QueueFull};
use crate::auth::reviewer::backoff::{BACKOFF, Failure, ReviewBackoff};
use crate::tasks::single_flight::{SharedOutcome, SingleFlight};
use crate::upstream::Upstream;
use crate::upstream::availability::Availability;
use crate::upstream::error::UpstreamError;
use crate::upstream::review::post_review;

/// Sends one kind of review. `K` identifies a review, `V` is its verdict, and `F` is whom it counts
/// for.
pub(super) struct Reviewer<K, V, F> {
    post: PostReview,
    pub(super) availability: Availability,
    pub(super) in_flight: SingleFlight<K, V>,
    pub(super) admission: Admission<F>,
    pub(super) backoff: ReviewBackoff<K>,
    /// The reviews that failed a moment ago.
    failed: Cache<K, FailedReview>,
    /// The number of returns of the upstream when `backoff` was last asked.
    returns: AtomicU64,
}

/// A review that failed.
#[derive(Clone, Copy, Debug)]
struct FailedReview {
    /// Whether the upstream was down.
    is_down: bool,
    /// The number of returns of the upstream before the review.
    returns: u64,
    /// The time until which it is not repeated. moka's own expiry only frees memory.
    until: Instant,
}

/// Posts a review and reads the body of its response.
pub(super) type PostReview =
    Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, UpstreamError>> + Send + Sync>;

/// The fate of a review that waits for its permit while nobody waits for its verdict any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenAbandoned {
    /// It is dropped.
    Drop,
    /// It is sent: its verdict is cached, or shows that the upstream is back.
    Send,
}

impl<K, V, F> Reviewer<K, V, F>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    F: Clone + Eq + Hash + Send + Sync + 'static,
{
    /// Creates a reviewer that posts to `path`, with the identity of `upstream`. At most
    /// `slots_max` reviews run and wait. A key weighs `weigh` bytes.
    pub(super) fn new(
        upstream: Upstream,
        path: &'static str,
        slots_max: usize,
        weigh: fn(&K) -> u32,
    ) -> Self {
        let availability = upstream.availability().clone();
        let post = move |body| -> BoxFuture<'static, _> {
            let upstream = upstream.clone();
            Box::pin(async move { post_review(&upstream, path, body, RESPONSE_BYTES_MAX).await })
        };
        Self::with_post(Arc::new(post), availability, slots_max, weigh)
    }

    pub(super) fn with_post(
        post: PostReview,
        availability: Availability,
        slots_max: usize,
        weigh: fn(&K) -> u32,
    ) -> Self {
        let failed = Cache::builder()
            .max_capacity(FAILED_BYTES_MAX)
            .weigher(move |key, _: &FailedReview| weigh(key))
            .time_to_live(FAILED_KEPT_FOR)
            .build();
        Self {
            post,
            availability,
            in_flight: SingleFlight::default(),
            admission: Admission::new(slots_max),
            backoff: ReviewBackoff::default(),
            failed,
            returns: AtomicU64::new(0),
        }
    }

    /// Joins the review of this key that is in flight. If there is none, starts one, unless too
    /// many run and wait: `run` sends it once it has a permit. Its argument is whether it got one
    /// within [`WAIT_MAX`]. A review that was sent runs to its end: a cancelled request costs the
    /// upstream more than a completed one.
    pub(super) fn join<R>(
        &self,
        key: &K,
        (flow, limits): (F, FlowLimits),
        when_abandoned: WhenAbandoned,
        run: impl FnOnce(bool) -> R + Send + 'static,
    ) -> Result<SharedOutcome<V>, QueueFull>
    where
        R: Future<Output = V> + Send,
    {
        let enqueue = || self.admission.enqueue(flow, limits);
        let (outcome, started) = self.in_flight.try_join(key, enqueue)?;
        if let Some((mut guard, slot)) = started {
            tokio::spawn(async move {
                let permit = tokio::select! {
                    permit = timeout(WAIT_MAX, slot.acquire()) => permit.ok(),
                    () = guard.until_abandoned(), if when_abandoned == WhenAbandoned::Drop => return,
                };
                let verdict = run(permit.is_some()).await;
                // A caller that is woken may start its next review at once.
                drop((permit, slot));
                guard.complete(verdict);
            });
        }
        Ok(outcome)
    }

    /// Posts a review. The caller notes the outcome.
    pub(super) async fn post(&self, body: Bytes) -> Result<Bytes, UpstreamError> {
        (self.post)(body).await
    }

    /// Whether no review may be sent now. A pause ends when the upstream comes back.
    pub(super) fn is_paused(&self) -> bool {
        let returns = self.availability.returns();
        if self.returns.swap(returns, Ordering::Relaxed) != returns {
            self.backoff.resume();
        }
        self.backoff.is_paused()
    }

    /// Returns whether the upstream was down for the review of this key, if that failed less than
    /// [`BACKOFF`] ago. Such a review is not repeated, unless the upstream was down and is back.
    pub(super) fn recent_failure(&self, key: &K) -> Option<bool> {
        let FailedReview { is_down, returns, until } = self.failed.get(key)?;
        let is_over = is_down && returns != self.availability.returns();
        (!is_over && Instant::now() < until).then_some(is_down)
    }

    /// Remembers that a review failed that was sent when the upstream had come back `returns`
    /// times.
    pub(super) fn remember_failure(&self, key: K, is_down: bool, returns: u64) {
        let until = Instant::now() + BACKOFF;
        self.failed.insert(key, FailedReview { is_down, returns, until });
    }

    /// Returns the approximate number of reviews that failed a moment ago.
    pub(super) fn failed_count(&self) -> u64 {
        self.failed.entry_count()
    }

    /// Notes that a review failed that was sent when the upstream had come back `returns` times.
    /// Returns whether this is the first failure since a review was answered.
    pub(super) fn failed(&self, key: K, failure: Failure, returns: u64) -> bool {
        // An upstream that is back since is down no longer.
        let is_over = failure.outage.is_some() && returns != self.availability.returns();
        !is_over && self.backoff.failed(key, failure)
    }
}

/// The longest wait of a review for its permit. An upstream that is this far behind will not answer
/// the next review quickly either.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);
/// The memory of reviews that failed a moment ago.
const FAILED_BYTES_MAX: u64 = 4 << 20;
/// Longer than [`BACKOFF`], since moka's clock is not tokio's.
const FAILED_KEPT_FOR: Duration = Duration::from_secs(10);
/// A response repeats the review, escaped (at worst six times as long), and lists at most about a
/// thousand groups, or has a line of managed fields for each of its fields.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::testing::availability;

    #[tokio::test(start_paused = true)]
    async fn a_failure_counts_for_a_second_or_until_the_upstream_is_back() {
        let availability = availability();
        let post: PostReview = Arc::new(|_| Box::pin(async { Ok(Bytes::new()) }));
        let reviewer = Reviewer::<_, (), ()>::with_post(post, availability.clone(), 1, |_| 1);
        reviewer.remember_failure("down", true, 0);
        reviewer.remember_failure("refused", false, 0);
        assert_eq!(reviewer.recent_failure(&"down"), Some(true));
        availability.note_check(Instant::now(), false);
        availability.note_check(Instant::now(), true);
        assert_eq!(reviewer.recent_failure(&"down"), None);
        assert_eq!(reviewer.recent_failure(&"refused"), Some(false));
        tokio::time::advance(BACKOFF).await;
        assert_eq!(reviewer.recent_failure(&"refused"), None);
    }
}
