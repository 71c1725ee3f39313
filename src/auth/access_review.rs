//! SubjectAccessReviews: the question to the upstream whether a user may (semantics.md §12.3), asked with Weir's own identity and
//! remembered for a while.
//!
//! The attributes of a question and the user's key are compared whole ([`Question`]): two users never share an answer. One review serves all
//! who ask the same at the same time; it is a task of its own, so that nobody who goes away takes the others' answer along. There is no rate
//! limit on the client's side, since a request that waits for it is worse than a review (an API server throttles by itself): instead the number
//! of reviews under way is bounded ([`UNDER_WAY_MAX`]), and the wait for a place.
//!
//! What is not answered is no decision: the request is forwarded, and the upstream judges. That it was not answered is remembered shortly
//! ([`decisions`]), so that a failing upstream is not asked at every request.
//!
//! Lock order: the flights' map, alone and never across an await.

pub(crate) mod decisions;
mod flights;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::auth::access_review::decisions::{Decisions, Found};
use crate::auth::access_review::flights::Flights;
use crate::auth::attributes::Attributes;
use crate::auth::user::{User, UserKey};
use crate::config::AuthorizationConfig;
use crate::telemetry::auth_metrics::authorization::{AuthorizationMetrics, ReviewOutcome};
use crate::upstream::Upstream;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::post_review;

/// Who asks to do what.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    user: UserKey,
    attributes: Attributes,
}

/// The upstream's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether the user may.
    pub(crate) allowed: bool,
    /// Why; empty for none.
    pub(crate) reason: Arc<str>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The upstream is away: unreachable, silent, or broken (5xx).
    Away,
    /// It answered that it does not answer: Weir lacks the right to ask, it throttles, its authorizers failed.
    Refused,
    /// Not asked: too many reviews are under way.
    Crowded,
}

/// An answer, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Remembered.
    Cached(Verdict),
    /// Just asked for.
    Reviewed(Verdict),
    /// Expired, but the upstream is away, and it is configured to be used then.
    Stale(Verdict),
}

/// See the module.
pub(crate) struct AccessReviews {
    reviewer: Arc<Reviewer>,
    flights: Flights,
}

/// What a review needs; the tasks have it, too.
struct Reviewer {
    upstream: Upstream,
    decisions: Decisions,
    places: Semaphore,
    /// Whether the last review found the upstream away.
    away: AtomicBool,
    metrics: AuthorizationMetrics,
}

impl Question {
    /// This user's.
    pub(crate) fn new(user: &User, attributes: &Attributes) -> Self {
        Self { user: user.key(), attributes: attributes.clone() }
    }
}

impl AccessReviews {
    /// Asks by `upstream`.
    pub(crate) fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        metrics: AuthorizationMetrics,
    ) -> Self {
        let reviewer = Reviewer {
            upstream,
            decisions: Decisions::new(config),
            places: Semaphore::new(UNDER_WAY_MAX),
            away: AtomicBool::new(false),
            metrics,
        };
        Self { reviewer: Arc::new(reviewer), flights: Flights::default() }
    }

    /// Whether a user may: remembered, or asked for.
    pub(crate) async fn decide(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<Answer, Unanswered> {
        let question = Question::new(user, attributes);
        let decisions = &self.reviewer.decisions;
        let found = decisions.find(&question).await;
        let stale = match found {
            Some(Found::Fresh(verdict)) => return Ok(Answer::Cached(verdict)),
            Some(Found::Expired(verdict)) => Some(verdict),
            None => None,
        };
        let unanswered = match decisions.unanswered(&question).await {
            Some(unanswered) => unanswered,
            None => {
                let landing = self.flights.join(&question, || self.review(user, &question));
                if let Some(verdict) = &stale
                    && self.reviewer.away.load(Ordering::Relaxed)
                {
                    // Nobody waits for an upstream that was away a moment ago; the flight tells when it is back.
                    return Ok(Answer::Stale(verdict.clone()));
                }
                match landing {
                    Some(landing) => match landing.outcome().await {
                        Ok(verdict) => return Ok(Answer::Reviewed(verdict)),
                        Err(unanswered) => unanswered,
                    },
                    None => self.crowded(),
                }
            }
        };
        match stale {
            Some(verdict) if unanswered == Unanswered::Away => Ok(Answer::Stale(verdict)),
            _ => Err(unanswered),
        }
    }

    /// Asks now, whatever is remembered.
    pub(crate) async fn ask(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<Verdict, Unanswered> {
        let question = Question::new(user, attributes);
        match self.flights.join(&question, || self.review(user, &question)) {
            Some(landing) => landing.outcome().await,
            None => Err(self.crowded()),
        }
    }

    /// Until when a remembered decision stands.
    pub(crate) async fn fresh_until(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Option<Instant> {
        self.reviewer.decisions.fresh_until(&Question::new(user, attributes)).await
    }

    /// One review, from the wait for a place to the memory of its outcome.
    fn review(
        &self,
        user: &Arc<User>,
        question: &Question,
    ) -> impl Future<Output = Result<Verdict, Unanswered>> + Send + 'static + use<> {
        let (reviewer, user, question) =
            (Arc::clone(&self.reviewer), Arc::clone(user), question.clone());
        async move { reviewer.review(&user, &question).await }
    }

    fn crowded(&self) -> Unanswered {
        self.reviewer.metrics.reviewed(ReviewOutcome::Crowded);
        Unanswered::Crowded
    }
}

impl std::fmt::Debug for AccessReviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessReviews")
    }
}

impl Reviewer {
    async fn review(&self, user: &User, question: &Question) -> Result<Verdict, Unanswered> {
        let Ok(Ok(_place)) = tokio::time::timeout(PLACE_WAIT, self.places.acquire()).await else {
            self.metrics.reviewed(ReviewOutcome::Crowded);
            return Err(Unanswered::Crowded);
        };
        let (outcome, result) = self.ask(user, &question.attributes).await;
        self.metrics.reviewed(outcome);
        self.away.store(result == Err(Unanswered::Away), Ordering::Relaxed);
        self.decisions.remember(question, &result).await;
        for allowed in [false, true] {
            self.metrics.cached(allowed, self.decisions.bytes(allowed));
        }
        result
    }

    async fn ask(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> (ReviewOutcome, Result<Verdict, Unanswered>) {
        let _asking = self.metrics.asking();
        let started = Instant::now();
        let body = wire::request(user, attributes);
        let answered = post_review(&self.upstream, PATH, body, ANSWER_MAX_BYTES).await;
        self.metrics.took(started.elapsed());
        match answered {
            Ok(body) => judge(&body),
            Err(error) => {
                let (outcome, unanswered) = failure(&error);
                tracing::debug!(%error, "an access review was not answered");
                (outcome, Err(unanswered))
            }
        }
    }
}

/// Reads an answer. A denial with an evaluation error is none: the API server answers such a request with 500, in words that are not told here.
fn judge(body: &Bytes) -> (ReviewOutcome, Result<Verdict, Unanswered>) {
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
