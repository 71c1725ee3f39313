//! SubjectAccessReviews: the question to the upstream whether a user may (semantics.md §12.3), asked with Weir's own identity and
//! remembered for a while.
//!
//! The attributes of a question and the user's key are compared whole ([`Question`]): two users never share an answer. One review serves all
//! who ask the same at the same time; it is a task of its own, so that nobody who goes away takes the others' answer along. There is no rate
//! limit on the client's side, since a request that waits for it is worse than a review (an API server throttles by itself): instead the number
//! of reviews under way is bounded ([`reviewer`]), and the wait for a place.
//!
//! So that nobody waits for somebody else's questions, one user has no more than a part of them ([`flights`]).
//!
//! What is not answered is no decision: the request is forwarded, and the upstream judges. That it was not answered is remembered shortly
//! ([`decisions`]), so that a failing upstream is not asked at every request; one that throttles is not asked anything for a while
//! ([`health`]).
//!
//! Lock order: the flights' map, alone and never across an await.

pub(crate) mod decisions;
mod flights;
mod health;
mod reviewer;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use tokio::time::Instant;

use crate::auth::access_review::decisions::Found;
use crate::auth::access_review::flights::{Flights, Landing};
use crate::auth::access_review::reviewer::Reviewer;
use crate::auth::attributes::Attributes;
use crate::auth::user::{User, UserKey};
use crate::config::AuthorizationConfig;
use crate::telemetry::auth_metrics::authorization::{AuthorizationMetrics, ReviewOutcome};
use crate::upstream::Upstream;

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

/// What a review is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To decide by it, now and for a while.
    Decision,
    /// To compare it with what was decided already.
    Check,
}

/// What came of a question.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// When the upstream was asked: what it says is as old as that, however long it took.
    pub(crate) asked: Instant,
    /// What it said.
    pub(crate) result: Result<Verdict, Unanswered>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The upstream is away: unreachable, silent, or broken (5xx).
    Away,
    /// It answered that it does not answer: Weir lacks the right to ask, it throttles (or did just now), its authorizers failed.
    Refused,
    /// Not asked: too many reviews are under way.
    Crowded,
    /// Not asked: the question is longer than any that makes sense.
    TooLong,
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

impl Question {
    /// This user's.
    pub(crate) fn new(user: &User, attributes: &Attributes) -> Self {
        Self { user: user.key(), attributes: attributes.clone() }
    }
}

impl Verdict {
    /// Whether it allows what may have been taken away since it was asked for.
    fn is_revoked(&self, asked: Instant, narrowed: Option<Instant>) -> bool {
        self.allowed && narrowed.is_some_and(|narrowed| asked < narrowed)
    }
}

impl AccessReviews {
    /// Asks by `upstream`.
    pub(crate) fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        metrics: AuthorizationMetrics,
    ) -> Self {
        let reviewer = Arc::new(Reviewer::new(config, upstream, metrics));
        Self { reviewer, flights: Flights::default() }
    }

    /// Whether a user may: remembered, or asked for. An allow from before `narrowed`, when somebody was last seen to lose a right, counts for
    /// nothing.
    pub(crate) async fn decide(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
        narrowed: Option<Instant>,
    ) -> Result<Answer, Unanswered> {
        let question = Question::new(user, attributes);
        let stale = match self.reviewer.decisions.find(&question, narrowed).await {
            Some(Found::Fresh(verdict)) => return Ok(Answer::Cached(verdict)),
            Some(Found::Expired(verdict)) => Some(verdict),
            None => None,
        };
        match (self.answer(user, &question, narrowed, stale.is_some()).await, stale) {
            (Ok(verdict), _) => Ok(Answer::Reviewed(verdict)),
            (Err(Unanswered::Away), Some(verdict)) => Ok(Answer::Stale(verdict)),
            (Err(unanswered), _) => Err(unanswered),
        }
    }

    /// Asks now, whatever is remembered, to compare. An allow is not remembered: it is RBAC's, and is to end when RBAC's does.
    pub(crate) async fn check(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<Verdict, Unanswered> {
        let question = Question::new(user, attributes);
        self.join(user, &question, Purpose::Check)?.outcome().await.result
    }

    /// Until when a remembered decision stands; as for [`decide`](Self::decide).
    pub(crate) async fn fresh_until(
        &self,
        user: &User,
        attributes: &Attributes,
        narrowed: Option<Instant>,
    ) -> Option<Instant> {
        self.reviewer.decisions.fresh_until(&Question::new(user, attributes), narrowed).await
    }

    /// Asks, unless it is known that nobody answers. Who has something stale to go on with does not wait for an upstream that was away a
    /// moment ago: the review then tells when it is back.
    async fn answer(
        &self,
        user: &Arc<User>,
        question: &Question,
        narrowed: Option<Instant>,
        has_stale: bool,
    ) -> Result<Verdict, Unanswered> {
        if let Some(unanswered) = self.reviewer.decisions.unanswered(question).await {
            return Err(unanswered);
        }
        for _ in 0..ROUNDS_MAX {
            let landing = self.join(user, question, Purpose::Decision);
            if has_stale && self.reviewer.health.is_away() {
                return Err(Unanswered::Away);
            }
            let Outcome { asked, result } = landing?.outcome().await;
            if !result.as_ref().is_ok_and(|verdict| verdict.is_revoked(asked, narrowed)) {
                return result;
            }
        }
        Err(Unanswered::Refused)
    }

    /// Joins the review of this question, or begins it.
    fn join(
        &self,
        user: &Arc<User>,
        question: &Question,
        purpose: Purpose,
    ) -> Result<Landing, Unanswered> {
        if question.attributes.weight_bytes() > ASKED_MAX_BYTES {
            return Err(Unanswered::TooLong);
        }
        if self.reviewer.health.is_paused() {
            return Err(Unanswered::Refused);
        }
        let begin = || {
            let (reviewer, user, question) =
                (Arc::clone(&self.reviewer), Arc::clone(user), question.clone());
            async move { reviewer.review(&user, &question, purpose).await }
        };
        self.flights.join(question, begin).ok_or_else(|| {
            self.reviewer.metrics.reviewed(ReviewOutcome::Crowded);
            Unanswered::Crowded
        })
    }
}

impl std::fmt::Debug for AccessReviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessReviews")
    }
}

/// Longer questions are left to the upstream, with their requests: some hundred requirements, or values of one. The many that may wait at a time
/// take a bounded room by it, and each its part of the upstream's time.
const ASKED_MAX_BYTES: usize = 16 * 1024;
/// A review that was under way when a right was taken away is asked once more; one that begins then is late enough.
const ROUNDS_MAX: usize = 2;
