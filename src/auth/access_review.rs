//! SubjectAccessReviews: asks the upstream, with Weir's own identity, whether a request is allowed,
//! and caches the decisions (`docs/semantics.md` §12.3).
//!
//! Concurrent identical reviews are single-flighted. The review runs in its own task, so that a
//! cancelled caller does not cancel it for the others, and its result is cached even if every
//! caller has gone.
//!
//! There is no client-side rate limit: a request that waits costs more than a review, and the API
//! server throttles by itself. Instead, the number of concurrent reviews and the wait for one of
//! these slots are bounded ([`reviewer`]), and one user has only a part of the pending reviews, so
//! that no user delays the others.
//!
//! A review that fails is not a decision: the request is forwarded and the API server decides. The
//! failure is cached briefly ([`decision_cache`]), so that a failing upstream is not asked for
//! every request. An upstream that throttles gets no reviews for a while ([`ReviewBackoff`]).
//!
//! Lock order: the map of reviews in flight, then the counter of pending ones. Neither is held across an await.
//!
//! [`ReviewBackoff`]: crate::auth::review_backoff::ReviewBackoff

mod decision_cache;
pub mod metrics;
pub(crate) mod review;
mod reviewer;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::auth::access_review::decision_cache::CachedDecision;
use crate::auth::access_review::metrics::{AccessReviewMetrics, ReviewOutcome};
use crate::auth::access_review::review::{
    ReviewDecision, ReviewFailure, ReviewKey, ReviewKind, ReviewResult,
};
use crate::auth::access_review::reviewer::{IN_FLIGHT_MAX, Reviewer};
use crate::auth::attributes::Attributes;
use crate::auth::decision::{Decision, DecisionSource};
use crate::auth::user::{User, UserKey};
use crate::config::AuthorizationConfig;
use crate::tasks::keyed_counter::KeyedCounter;
use crate::tasks::single_flight::{RunLost, SharedOutcome, SingleFlight};
use crate::upstream::Upstream;

/// Sends access reviews and caches their decisions.
pub(crate) struct AccessReviews {
    reviewer: Arc<Reviewer>,
    in_flight: SingleFlight<ReviewKey, ReviewResult>,
    /// The reviews that run or wait, by user.
    pending: KeyedCounter<UserKey>,
}

impl AccessReviews {
    /// Creates an empty cache. Reviews are sent through `upstream`, which has Weir's own identity.
    pub(crate) fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        metrics: AccessReviewMetrics,
    ) -> Self {
        let reviewer = Arc::new(Reviewer::new(config, upstream, metrics));
        Self { reviewer, in_flight: SingleFlight::default(), pending: KeyedCounter::default() }
    }

    /// Returns the number of reviews that run or wait.
    pub(crate) fn pending(&self) -> usize {
        self.pending.total()
    }

    /// Whether some reviews wait until others have ended.
    pub(crate) fn some_wait(&self) -> bool {
        self.pending() > IN_FLIGHT_MAX
    }

    /// Decides from the cache or by a review. Ignores cached decisions that allow and were reviewed
    /// before `last_revocation`, the last time that a permission was seen to be revoked.
    pub(crate) async fn decide(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
        last_revocation: Option<Instant>,
    ) -> Result<Decision, ReviewFailure> {
        let key = ReviewKey::new(user, attributes);
        let expired = match self.reviewer.cache.find(&key, last_revocation).await {
            Some(CachedDecision::Fresh(decision)) => {
                return Ok(decision.with_source(DecisionSource::Cached));
            }
            Some(CachedDecision::Expired(decision)) => Some(decision),
            None => None,
        };
        match (self.review(user, &key, last_revocation, expired.is_some()).await, expired) {
            (Ok(decision), _) => Ok(decision.with_source(DecisionSource::Review)),
            (Err(ReviewFailure::UpstreamDown), Some(decision)) => {
                Ok(decision.with_source(DecisionSource::Stale))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Caches that the upstream allowed this request, which it answered itself. The request was
    /// sent after `sent_at`.
    pub(crate) async fn learn_allowed(
        &self,
        user: &User,
        attributes: &Attributes,
        sent_at: Instant,
    ) {
        let allowed = ReviewDecision { allowed: true, reason: Arc::default() };
        let result = ReviewResult { sent_at, decision: Ok(allowed) };
        let returns = self.reviewer.returns();
        self.reviewer.cache.store(&ReviewKey::new(user, attributes), &result, returns).await;
    }

    /// Sends a review regardless of the cache, to compare its decision with one of RBAC. An allowed
    /// decision is not cached: it must end when the one of RBAC does.
    pub(crate) async fn check(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<ReviewDecision, ReviewFailure> {
        let key = ReviewKey::new(user, attributes);
        wait(self.join(user, &key, ReviewKind::RbacCheck)?).await.decision
    }

    /// Returns when the cached decision expires; `None` if there is none. [`decide`](Self::decide)
    /// explains `last_revocation`.
    pub(crate) async fn fresh_until(
        &self,
        user: &User,
        attributes: &Attributes,
        last_revocation: Option<Instant>,
    ) -> Option<Instant> {
        self.reviewer.cache.fresh_until(&ReviewKey::new(user, attributes), last_revocation).await
    }

    /// Returns the decision of a review, unless the upstream is known not to answer. A caller with
    /// an expired decision (`has_expired`) does not wait for an upstream that was down a moment
    /// ago, but still starts the review, which finds out when the upstream is back.
    async fn review(
        &self,
        user: &Arc<User>,
        key: &ReviewKey,
        last_revocation: Option<Instant>,
        has_expired: bool,
    ) -> Result<ReviewDecision, ReviewFailure> {
        if let Some(failure) = self.reviewer.cache.failure(key, self.reviewer.returns()).await {
            return Err(failure);
        }
        for _ in 0..ATTEMPTS_MAX {
            let outcome = self.join(user, key, ReviewKind::Decision);
            if has_expired && self.reviewer.backoff.is_down() {
                return Err(ReviewFailure::UpstreamDown);
            }
            let ReviewResult { sent_at, decision } = tokio::select! {
                biased;
                () = self.reviewer.until_upstream_away(), if has_expired => {
                    return Err(ReviewFailure::UpstreamDown);
                }
                result = wait(outcome?) => result,
            };
            if !decision.as_ref().is_ok_and(|made| made.predates(sent_at, last_revocation)) {
                return decision;
            }
        }
        Err(ReviewFailure::Refused)
    }

    /// Joins the review of this key that is in flight, or starts one.
    fn join(
        &self,
        user: &Arc<User>,
        key: &ReviewKey,
        kind: ReviewKind,
    ) -> Result<SharedOutcome<ReviewResult>, ReviewFailure> {
        if self.reviewer.backoff.is_paused() {
            return Err(ReviewFailure::Refused);
        }
        let admit = || {
            self.pending.try_add(key.user, |before| {
                if before.total < REVIEWS_MAX && before.count < USER_REVIEWS_MAX {
                    return Ok(());
                }
                self.reviewer.metrics.reviewed(ReviewOutcome::Limited);
                Err(ReviewFailure::Limited)
            })
        };
        let (outcome, run) = self.in_flight.try_join(key, admit)?;
        if let Some((guard, permit)) = run {
            let (reviewer, user, key) = (Arc::clone(&self.reviewer), Arc::clone(user), key.clone());
            tokio::spawn(async move {
                let result = reviewer.review(&user, &key, kind).await;
                // A caller that is woken may start its next review at once.
                drop(permit);
                guard.complete(result);
            });
        }
        Ok(outcome)
    }
}

/// Waits for a review. One whose task panicked counts as refused.
async fn wait(outcome: SharedOutcome<ReviewResult>) -> ReviewResult {
    outcome.wait().await.unwrap_or_else(|RunLost| ReviewResult {
        sent_at: Instant::now(),
        decision: Err(ReviewFailure::Refused),
    })
}

impl fmt::Debug for AccessReviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessReviews")
    }
}

/// A review that was in flight when a permission was revoked is repeated once. The second one is
/// sent after the revocation and always counts.
const ATTEMPTS_MAX: usize = 2;
/// Pending reviews in total: many times those in flight at once, and a few megabytes (64 MiB if all
/// had the longest attributes). Beyond this limit, GETs are forwarded at once, and lists and
/// watches get 429.
const REVIEWS_MAX: usize = 4096;
/// Pending reviews of one user: more than any client needs at once, and too few to use up the total
/// or to delay the reviews of others for long.
const USER_REVIEWS_MAX: usize = 256;
