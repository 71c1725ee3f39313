//! One access review: its key, its kind, its result, and what its failure means.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::auth::access_review::metrics::ReviewOutcome;
use crate::auth::attributes::Attributes;
use crate::auth::reviewer::backoff::{BACKOFF, Failure, Outage, is_outage, throttle_pause};
use crate::auth::user::{User, UserKey};
use crate::auth::{Decision, DecisionSource};
use crate::upstream::error::UpstreamError;

/// Identifies a review by the user and the attributes of the request. Compared in full, so that two
/// users never share a decision.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ReviewKey {
    pub(super) user: UserKey,
    pub(super) attributes: Attributes,
}

/// The decision of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReviewDecision {
    /// Whether the request is allowed.
    pub(crate) allowed: bool,
    /// The reason; empty for none.
    pub(crate) reason: Arc<str>,
}

/// The purpose of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewKind {
    /// It decides requests, now and from the cache.
    Decision,
    /// It is compared with a decision of RBAC. An allowed result is not cached.
    RbacCheck,
}

/// The result of a review.
#[derive(Clone, Debug)]
pub(crate) struct ReviewResult {
    /// When the review was sent. The decision is valid as of this moment, however long the answer
    /// took.
    pub(crate) sent_at: Instant,
    /// The decision.
    pub(crate) decision: Result<ReviewDecision, ReviewFailure>,
}

/// The reason why a review gave no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewFailure {
    /// The upstream is unreachable, silent or broken (5xx).
    UpstreamDown,
    /// The upstream answered without a decision: Weir lacks the permission, the upstream throttles
    /// (or did just now), or its authorizers failed.
    Refused,
    /// Not sent: too many reviews are in flight.
    Limited,
}

impl ReviewFailure {
    /// Returns the failure of a review that was sent.
    pub(super) fn new(is_down: bool) -> Self {
        if is_down { Self::UpstreamDown } else { Self::Refused }
    }
}

impl ReviewKey {
    /// Creates the key of a user's request.
    pub(crate) fn new(user: &User, attributes: &Attributes) -> Self {
        Self { user: user.key(), attributes: attributes.clone() }
    }
}

impl ReviewDecision {
    /// Returns whether this allows something that may have been revoked after the review was sent.
    pub(super) fn predates(&self, sent_at: Instant, last_revocation: Option<Instant>) -> bool {
        self.allowed && last_revocation.is_some_and(|revoked_at| sent_at < revoked_at)
    }

    /// Returns the decision with its source.
    pub(super) fn with_source(self, source: DecisionSource) -> Decision {
        Decision { allowed: self.allowed, reason: self.reason, source }
    }
}

/// Returns how a review ended that failed.
pub(super) fn outcome(error: &UpstreamError) -> ReviewOutcome {
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
pub(super) fn backoff(error: &UpstreamError, elapsed: Duration) -> Failure {
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
