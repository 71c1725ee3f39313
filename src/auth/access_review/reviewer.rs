//! One review: the wait for a place, the question to the upstream, its answer, and the memory of it.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::decisions::Decisions;
use super::health::Health;
use super::{Outcome, Purpose, Question, Unanswered, Verdict, wire};
use crate::auth::user::User;
use crate::config::AuthorizationConfig;
use crate::telemetry::auth_metrics::authorization::{AuthorizationMetrics, ReviewOutcome};
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::review::post_review;

/// What a review needs; the tasks have it, too.
pub(super) struct Reviewer {
    upstream: Upstream,
    pub(super) decisions: Decisions,
    places: Semaphore,
    pub(super) health: Health,
    pub(super) metrics: AuthorizationMetrics,
}

impl Reviewer {
    /// Asks by `upstream`.
    pub(super) fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        metrics: AuthorizationMetrics,
    ) -> Self {
        Self {
            upstream,
            decisions: Decisions::new(config),
            places: Semaphore::new(UNDER_WAY_MAX),
            health: Health::default(),
            metrics,
        }
    }

    /// From the wait for a place to the memory of the outcome.
    pub(super) async fn review(
        &self,
        user: &User,
        question: &Question,
        purpose: Purpose,
    ) -> Outcome {
        let place = tokio::time::timeout(PLACE_WAIT, self.places.acquire()).await;
        let asked = Instant::now();
        let Ok(Ok(_place)) = place else {
            self.metrics.reviewed(ReviewOutcome::Crowded);
            return Outcome { asked, result: Err(Unanswered::Crowded) };
        };
        if self.health.is_paused() {
            return Outcome { asked, result: Err(Unanswered::Refused) };
        }
        let (label, result) = self.ask(user, question).await;
        self.metrics.reviewed(label);
        let outcome = Outcome { asked, result };
        let allowed = outcome.result.as_ref().is_ok_and(|verdict| verdict.allowed);
        if !allowed || purpose == Purpose::Decision {
            self.decisions.remember(question, &outcome).await;
        }
        for allowed in [false, true] {
            self.metrics.cached(allowed, self.decisions.bytes(allowed));
        }
        outcome
    }

    async fn ask(
        &self,
        user: &User,
        question: &Question,
    ) -> (ReviewOutcome, Result<Verdict, Unanswered>) {
        let _asking = self.metrics.asking();
        let started = Instant::now();
        let body = wire::request(user, &question.attributes);
        let answered = post_review(&self.upstream, PATH, body, ANSWER_MAX_BYTES).await;
        self.metrics.took(started.elapsed());
        match answered {
            Ok(body) => {
                self.health.answered();
                judge(&body)
            }
            Err(error) => {
                let (outcome, unanswered) = failure(&error);
                self.health.failed(question, started, &error, unanswered);
                tracing::debug!(%error, "an access review was not answered");
                (outcome, Err(unanswered))
            }
        }
    }
}

/// Reads an answer. A denial with an evaluation error is none: the API server answers such a request with 500, in words that are not told here.
pub(super) fn judge(body: &Bytes) -> (ReviewOutcome, Result<Verdict, Unanswered>) {
    let Some(status) = wire::status(body) else {
        return (ReviewOutcome::Failed, Err(Unanswered::Refused));
    };
    let allowed = status.allowed && !status.denied;
    if !allowed && (status.allowed || !status.evaluation_error.is_empty()) {
        return (ReviewOutcome::Undecided, Err(Unanswered::Refused));
    }
    let outcome = if allowed { ReviewOutcome::Allowed } else { ReviewOutcome::Denied };
    (outcome, Ok(Verdict { allowed, reason: status.reason.into() }))
}

fn failure(error: &UpstreamError) -> (ReviewOutcome, Unanswered) {
    match error {
        UpstreamError::Connect { .. } | UpstreamError::Lost(_) => {
            (ReviewOutcome::Unreachable, Unanswered::Away)
        }
        UpstreamError::Timeout(_) => (ReviewOutcome::Timeout, Unanswered::Away),
        UpstreamError::Status { code, .. } => match *code {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                (ReviewOutcome::Refused, Unanswered::Refused)
            }
            StatusCode::TOO_MANY_REQUESTS => (ReviewOutcome::Throttled, Unanswered::Refused),
            code if code.is_server_error() => (ReviewOutcome::Failed, Unanswered::Away),
            _ => (ReviewOutcome::Failed, Unanswered::Refused),
        },
        UpstreamError::Credentials(_)
        | UpstreamError::TooLong(_)
        | UpstreamError::Request(_)
        | UpstreamError::Malformed(_) => (ReviewOutcome::Failed, Unanswered::Refused),
    }
}

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Below the 100 streams that kube-apiserver allows on an HTTP/2 connection, with room for Weir's other requests. At a millisecond each that
/// is some ten thousand a second; more would only queue in the upstream.
const UNDER_WAY_MAX: usize = 64;
/// How long a question waits for one of those places before its request is forwarded: an upstream that is that far behind will not be quick with
/// the next one.
const PLACE_WAIT: Duration = Duration::from_secs(2);
/// An answer repeats the question, escaped, with a line of managed fields for each of its fields.
const ANSWER_MAX_BYTES: usize = 1024 * 1024;
