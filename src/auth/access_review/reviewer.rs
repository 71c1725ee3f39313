//! Performs one review: waits for a permit, sends the review, evaluates the response, and caches
//! the result.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::auth::access_review::decision_cache::DecisionCache;
use crate::auth::access_review::metrics::{AccessReviewMetrics, ReviewOutcome};
use crate::auth::access_review::review::{
    ReviewDecision, ReviewFailure, ReviewKey, ReviewKind, ReviewResult,
};
use crate::auth::access_review::wire;
use crate::auth::review_backoff::{
    BACKOFF, Failure, Outage, ReviewBackoff, is_outage, throttle_pause,
};
use crate::auth::user::User;
use crate::config::AuthorizationConfig;
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::review::post_review;

/// Sends reviews. Shared with the tasks that run them.
pub(super) struct Reviewer {
    upstream: Upstream,
    pub(super) cache: DecisionCache,
    permits: Semaphore,
    pub(super) backoff: ReviewBackoff<ReviewKey>,
    pub(super) metrics: AccessReviewMetrics,
}

impl Reviewer {
    /// Creates a reviewer with an empty cache. Reviews are sent through `upstream`.
    pub(super) fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        metrics: AccessReviewMetrics,
    ) -> Self {
        Self {
            upstream,
            cache: DecisionCache::new(config),
            permits: Semaphore::new(IN_FLIGHT_MAX),
            backoff: ReviewBackoff::default(),
            metrics,
        }
    }

    /// Returns how often the upstream has come back.
    pub(super) fn returns(&self) -> u64 {
        self.upstream.availability().returns()
    }

    /// Waits until the upstream is away.
    pub(super) async fn until_upstream_away(&self) {
        self.upstream.availability().until_away().await;
    }

    /// Waits for a permit, sends the review, and caches its result.
    pub(super) async fn review(
        &self,
        user: &User,
        key: &ReviewKey,
        kind: ReviewKind,
    ) -> ReviewResult {
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, self.permits.acquire()).await;
        let sent_at = Instant::now();
        let Ok(Ok(_permit)) = permit else {
            self.metrics.reviewed(ReviewOutcome::Limited);
            return ReviewResult { sent_at, decision: Err(ReviewFailure::Limited) };
        };
        if self.backoff.is_paused() {
            return ReviewResult { sent_at, decision: Err(ReviewFailure::Refused) };
        }
        let returns = self.returns();
        let (outcome, decision) = self.send(user, key).await;
        self.metrics.reviewed(outcome);
        let result = ReviewResult { sent_at, decision };
        let allowed = result.decision.as_ref().is_ok_and(|decision| decision.allowed);
        if !allowed || kind == ReviewKind::Decision {
            self.cache.store(key, &result, returns).await;
        }
        for allowed in [false, true] {
            self.metrics.set_cached_bytes(allowed, self.cache.bytes(allowed));
        }
        result
    }

    async fn send(
        &self,
        user: &User,
        key: &ReviewKey,
    ) -> (ReviewOutcome, Result<ReviewDecision, ReviewFailure>) {
        let _in_flight = self.metrics.in_flight();
        let started = Instant::now();
        let body = wire::request(user, &key.attributes);
        let response = post_review(&self.upstream, PATH, body, RESPONSE_MAX_BYTES).await;
        self.metrics.observe_duration(started.elapsed());
        match response {
            Ok(body) => {
                self.backoff.answered();
                evaluate(&body)
            }
            Err(error) => {
                self.backoff.failed(key.clone(), backoff(&error, started.elapsed()));
                tracing::debug!(%error, "an access review failed");
                let is_down = is_outage(&error);
                let failure =
                    if is_down { ReviewFailure::UpstreamDown } else { ReviewFailure::Refused };
                (outcome(&error), Err(failure))
            }
        }
    }
}

/// Reads the decision in a response. A denial with an evaluation error counts as no decision: the
/// API server answers such a request with 500 and a message that Weir does not have. So does a
/// response with a field that Weir does not know: the decision may have a condition.
pub(super) fn evaluate(body: &Bytes) -> (ReviewOutcome, Result<ReviewDecision, ReviewFailure>) {
    let Some(status) = wire::status(body) else {
        return (ReviewOutcome::Failed, Err(ReviewFailure::Refused));
    };
    if !status.others.is_empty() {
        return (ReviewOutcome::Undecided, Err(ReviewFailure::Refused));
    }
    let allowed = status.allowed && !status.denied;
    if !allowed && (status.allowed || !status.evaluation_error.is_empty()) {
        return (ReviewOutcome::Undecided, Err(ReviewFailure::Refused));
    }
    let outcome = if allowed { ReviewOutcome::Allowed } else { ReviewOutcome::Denied };
    (outcome, Ok(ReviewDecision { allowed, reason: status.reason.into() }))
}

fn outcome(error: &UpstreamError) -> ReviewOutcome {
    match error {
        UpstreamError::Connect { .. }
        | UpstreamError::Exhausted { .. }
        | UpstreamError::Lost(_) => ReviewOutcome::Unreachable,
        UpstreamError::Timeout(_) => ReviewOutcome::Timeout,
        UpstreamError::Status { code, .. } => match *code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ReviewOutcome::Refused,
            StatusCode::TOO_MANY_REQUESTS => ReviewOutcome::Throttled,
            _ => ReviewOutcome::Failed,
        },
        UpstreamError::Credentials(_)
        | UpstreamError::TooLong(_)
        | UpstreamError::Request(_)
        | UpstreamError::Malformed(_) => ReviewOutcome::Failed,
    }
}

/// Returns how to back off after a review that failed after `elapsed`. The outage is remembered for
/// at least that time, so that the next caller does not wait that long again. Only throttling
/// pauses all reviews: it is not about this review alone.
fn backoff(error: &UpstreamError, elapsed: Duration) -> Failure {
    let is_certain =
        matches!(error, UpstreamError::Connect { .. } | UpstreamError::Exhausted { .. });
    let outage =
        is_outage(error).then(|| Outage { is_certain, remember_for: elapsed.max(BACKOFF) });
    let pause = match error {
        UpstreamError::Status { code: StatusCode::TOO_MANY_REQUESTS, retry_after, .. } => {
            Some(throttle_pause(*retry_after))
        }
        _ => None,
    };
    Failure { outage, pause }
}

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Below the 100 streams that kube-apiserver allows on an HTTP/2 connection, so that some are left
/// for Weir's other requests. At a millisecond each this is about ten thousand reviews a second;
/// more would only queue in the upstream.
pub(super) const IN_FLIGHT_MAX: usize = 64;
/// How long a review waits for a permit before its requests are forwarded. An upstream that is this
/// far behind will not answer the next review quickly either.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);
/// A response repeats the request, escaped, and has a line of managed fields for each of its
/// fields.
const RESPONSE_MAX_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_throttling_pauses_all_reviews() {
        let pause = |code| {
            let error = UpstreamError::Status {
                code,
                reason: String::new(),
                message: String::new(),
                retry_after: Some(Duration::from_secs(5)),
            };
            backoff(&error, Duration::ZERO).pause
        };
        assert_eq!(pause(StatusCode::TOO_MANY_REQUESTS), Some(Duration::from_secs(5)));
        assert_eq!(pause(StatusCode::FORBIDDEN), None);
    }
}
