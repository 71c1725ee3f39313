//! Back-off after failed reviews: detects that the upstream is down, and pauses reviews.
//!
//! A failure that is certainly the upstream's (no connection) counts at once. Other failures may be
//! specific to one review, so the upstream is treated as down only after two different reviews
//! failed in a row. Any answer clears the state. The state also expires soon: if no review was sent
//! meanwhile, an old failure must not justify the use of an expired decision.
//!
//! Lock order: the state, alone and never across an await.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::upstream::error::UpstreamError;

/// Remembers the failures of one kind of review. `K` identifies a review.
#[derive(Debug)]
pub(in crate::auth) struct ReviewBackoff<K> {
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// The end of the time for which the upstream is considered down.
    down_until: Option<Instant>,
    /// The review that the upstream's being down made fail last, if none was answered since.
    last_lost: Option<K>,
    /// The end of the time in which no review is sent.
    paused_until: Option<Instant>,
    /// Whether a review failed and none was answered since.
    is_failing: bool,
}

/// The consequences of a failed review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::auth) struct Failure {
    /// The upstream was down for this review; `None` if it answered.
    pub(in crate::auth) outage: Option<Outage>,
    /// The time in which no review is sent.
    pub(in crate::auth) pause: Option<Duration>,
}

/// A review failed because the upstream is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::auth) struct Outage {
    /// Whether the cause is certainly not this review, such as a failed connection.
    pub(in crate::auth) is_certain: bool,
    /// The time for which the upstream is considered down.
    pub(in crate::auth) remember_for: Duration,
}

impl<K> Default for ReviewBackoff<K> {
    fn default() -> Self {
        let (down_until, paused_until) = (None, None);
        let state = State { down_until, last_lost: None, paused_until, is_failing: false };
        Self { state: Mutex::new(state) }
    }
}

impl<K: PartialEq> ReviewBackoff<K> {
    /// Returns whether the upstream was down a moment ago, for any review.
    pub(in crate::auth) fn is_down(&self) -> bool {
        self.state.lock().down_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns whether no review may be sent now.
    pub(in crate::auth) fn is_paused(&self) -> bool {
        self.state.lock().paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that a review was answered. Returns whether reviews failed before it.
    pub(in crate::auth) fn answered(&self) -> bool {
        self.state.lock().answered()
    }

    /// Ends a pause early.
    pub(in crate::auth) fn resume(&self) {
        self.state.lock().paused_until = None;
    }

    /// Notes that a review was answered, and ends a pause early. Returns whether reviews failed
    /// before it.
    pub(in crate::auth) fn answered_and_resume(&self) -> bool {
        let mut state = self.state.lock();
        state.paused_until = None;
        state.answered()
    }

    /// Notes that the review `key` failed. Returns whether this is the first failure since a review
    /// was answered.
    pub(in crate::auth) fn failed(&self, key: K, failure: Failure) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        match failure.outage {
            Some(outage) => state.lost(key, outage.is_certain, now + outage.remember_for),
            None => state.clear_outage(),
        }
        if let Some(pause) = failure.pause {
            state.paused_until = state.paused_until.max(Some(now + pause));
        }
        !std::mem::replace(&mut state.is_failing, true)
    }
}

impl<K: PartialEq> State<K> {
    /// Notes that a review was answered. Returns whether reviews failed before it.
    fn answered(&mut self) -> bool {
        self.clear_outage();
        std::mem::take(&mut self.is_failing)
    }

    fn clear_outage(&mut self) {
        (self.down_until, self.last_lost) = (None, None);
    }

    /// Notes that the upstream was down for a review. It is considered down until `until` if that
    /// is certain, or if a different review failed before.
    fn lost(&mut self, key: K, is_certain: bool, until: Instant) {
        let is_first = self.last_lost.as_ref().is_none_or(|last| *last == key);
        if is_certain || !is_first {
            self.down_until = self.down_until.max(Some(until));
        }
        self.last_lost = Some(key);
    }
}

/// Returns whether a review failed because the upstream is down. Otherwise the upstream refused it,
/// or Weir could not send it.
pub(in crate::auth) fn is_outage(error: &UpstreamError) -> bool {
    match error {
        UpstreamError::Connect { .. }
        | UpstreamError::Exhausted { .. }
        | UpstreamError::Lost(_)
        | UpstreamError::Timeout(_) => true,
        UpstreamError::Status { code, .. } => code.is_server_error(),
        UpstreamError::Credentials(_)
        | UpstreamError::TooLong(_)
        | UpstreamError::Request(_)
        | UpstreamError::Malformed(_) => false,
    }
}

/// Returns how long to pause after a response with this `Retry-After`.
pub(in crate::auth) fn throttle_pause(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or(BACKOFF).clamp(BACKOFF, PAUSE_MAX)
}

/// The shortest pause, and how long an outage is remembered at least.
pub(in crate::auth) const BACKOFF: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that Weir respects. Until then requests that need a review are
/// forwarded.
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_is_respected_within_limits() {
        for (sent, respected) in [(None, 1), (Some(0), 1), (Some(5), 5), (Some(3600), 10)] {
            let pause = throttle_pause(sent.map(Duration::from_secs));
            assert_eq!(pause, Duration::from_secs(respected), "{sent:?}");
        }
    }

    fn outage(is_certain: bool) -> Failure {
        Failure { outage: Some(Outage { is_certain, remember_for: BACKOFF }), pause: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certain_failure_counts_at_once_and_expires() {
        let backoff = ReviewBackoff::default();
        backoff.failed("a", outage(true));
        assert!(backoff.is_down());
        tokio::time::advance(BACKOFF).await;
        assert!(!backoff.is_down());
        backoff.failed("a", outage(true));
        backoff.answered();
        assert!(!backoff.is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_count_after_two_different_reviews() {
        let backoff = ReviewBackoff::default();
        let fail = |review| {
            backoff.failed(review, outage(false));
            backoff.is_down()
        };
        assert!(!fail("a"));
        assert!(!fail("a"));
        assert!(fail("b"));
        backoff.answered();
        assert!(!fail("b"));
        backoff.answered();
        assert!(!fail("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_pause_counts_and_the_first_failure_is_reported() {
        let backoff = ReviewBackoff::default();
        let pause = |seconds| Failure { outage: None, pause: Some(Duration::from_secs(seconds)) };
        assert!(backoff.failed("a", pause(10)));
        assert!(!backoff.failed("b", pause(1)));
        assert!(backoff.answered());
        assert!(!backoff.answered());
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(backoff.is_paused());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!backoff.is_paused());
        backoff.failed("a", pause(10));
        assert!(backoff.answered_and_resume());
        assert!(!backoff.is_paused());
    }
}
