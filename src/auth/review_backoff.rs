//! Back-off after failed access reviews or token reviews: detects that the upstream is down, and
//! pauses reviews.
//!
//! Lock order: the state, alone and never across an await.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::outage::OutageDetector;
use crate::upstream::error::UpstreamError;

/// Remembers the failures of one kind of review. `K` identifies a review.
#[derive(Debug)]
pub(super) struct ReviewBackoff<K> {
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    outage: OutageDetector<K>,
    /// Until when no review is sent.
    paused_until: Option<Instant>,
    /// Whether a review failed and none was answered since.
    is_failing: bool,
}

/// The consequences of a failed review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The upstream was down for this review; `None` if it answered.
    pub(super) outage: Option<Outage>,
    /// How long to send no review at all.
    pub(super) pause: Option<Duration>,
}

/// A review failed because the upstream is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// Whether the cause is certainly not this review, such as a failed connection.
    pub(super) is_certain: bool,
    /// How long the upstream is considered down.
    pub(super) remember_for: Duration,
}

impl<K> Default for ReviewBackoff<K> {
    fn default() -> Self {
        let state =
            State { outage: OutageDetector::default(), paused_until: None, is_failing: false };
        Self { state: Mutex::new(state) }
    }
}

impl<K: PartialEq> ReviewBackoff<K> {
    /// Returns whether the upstream was down a moment ago, for any review.
    pub(super) fn is_down(&self) -> bool {
        self.state.lock().outage.is_down()
    }

    /// Returns whether no review may be sent now.
    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that a review was answered. Returns whether reviews failed before it.
    pub(super) fn answered(&self) -> bool {
        self.state.lock().answered()
    }

    /// Ends a pause early.
    pub(super) fn resume(&self) {
        self.state.lock().paused_until = None;
    }

    /// Notes that a review was answered, and ends a pause early. Returns whether reviews failed
    /// before it.
    pub(super) fn answered_and_resume(&self) -> bool {
        let mut state = self.state.lock();
        state.paused_until = None;
        state.answered()
    }

    /// Notes that the review `key` failed. Returns whether this is the first failure since a review
    /// was answered.
    pub(super) fn failed(&self, key: K, failure: Failure) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        match failure.outage {
            Some(outage) => state.outage.failed(key, outage.is_certain, now + outage.remember_for),
            None => state.outage.answered(),
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
        self.outage.answered();
        std::mem::take(&mut self.is_failing)
    }
}

/// Returns whether a review failed because the upstream is down. Otherwise the upstream refused it,
/// or Weir could not send it.
pub(super) fn is_outage(error: &UpstreamError) -> bool {
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
pub(super) fn throttle_pause(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or(BACKOFF).clamp(BACKOFF, PAUSE_MAX)
}

/// The shortest pause, and how long an outage is remembered at least.
pub(super) const BACKOFF: Duration = Duration::from_secs(1);
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
