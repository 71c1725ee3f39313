//! Detects that the upstream is down, from the results of reviews.
//!
//! A failure that is certainly the upstream's (no connection) counts at once. Other failures may be
//! specific to one request, so the upstream is treated as down only after two different requests
//! failed in a row. Any answer clears the state. The state also expires soon: if no request was
//! sent meanwhile, an old failure must not justify the use of an expired decision.

use tokio::time::Instant;

/// Remembers the failures since the last answer. `Q` identifies a request.
#[derive(Debug)]
pub(super) struct OutageDetector<Q> {
    down_until: Option<Instant>,
    /// The request that failed last, if none was answered since.
    last_failed: Option<Q>,
}

impl<Q> Default for OutageDetector<Q> {
    fn default() -> Self {
        Self { down_until: None, last_failed: None }
    }
}

impl<Q: PartialEq> OutageDetector<Q> {
    /// Returns whether the upstream is considered down.
    pub(super) fn is_down(&self) -> bool {
        self.down_until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that the upstream answered a request.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Notes that `request` failed. The upstream is considered down until `until` if the failure is
    /// `certain` to be the upstream's, or if a different request failed before it.
    pub(super) fn failed(&mut self, request: Q, certain: bool, until: Instant) {
        let is_first = self.last_failed.as_ref().is_none_or(|last| *last == request);
        if certain || !is_first {
            self.down_until = self.down_until.max(Some(until));
        }
        self.last_failed = Some(request);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SHORT_TIME: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_certain_failure_counts_at_once_and_expires() {
        let mut outage = OutageDetector::default();
        outage.failed("a", true, Instant::now() + SHORT_TIME);
        assert!(outage.is_down());
        tokio::time::advance(SHORT_TIME).await;
        assert!(!outage.is_down());
        outage.failed("a", true, Instant::now() + SHORT_TIME);
        outage.answered();
        assert!(!outage.is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_count_after_two_different_requests() {
        let mut outage = OutageDetector::default();
        let fail = |outage: &mut OutageDetector<_>, request| {
            outage.failed(request, false, Instant::now() + SHORT_TIME);
            outage.is_down()
        };
        assert!(!fail(&mut outage, "a"));
        assert!(!fail(&mut outage, "a"));
        assert!(fail(&mut outage, "b"));
        outage.answered();
        assert!(!fail(&mut outage, "b"));
        outage.answered();
        assert!(!fail(&mut outage, "a"));
    }
}
