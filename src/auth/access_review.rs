//! SubjectAccessReviews: asks the upstream, with Weir's own identity, whether a request is allowed,
//! and caches the decisions (`docs/semantics.md` §12.3).
//!
//! Reviews are shared, bounded in total and for one user, and given up as in
//! [`reviewer`](super::reviewer). A review's result is cached even if every caller has gone.
//!
//! There is no client-side rate limit: a request that waits costs more than a review, and the API
//! server throttles by itself.
//!
//! A review that fails is not a decision: the request is forwarded and the API server decides. The
//! failure is remembered briefly, so that a failing upstream is not asked for
//! every request. An upstream that throttles gets no reviews for a while.

pub(crate) mod decision_cache;
pub mod metrics;
pub(crate) mod review;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use tokio::time::Instant;

use crate::auth::access_review::decision_cache::{
    CachedDecision, DecisionCache, is_cached, weight,
};
use crate::auth::access_review::metrics::{AccessReviewMetrics, ReviewOutcome};
use crate::auth::access_review::review::{
    ReviewDecision, ReviewFailure, ReviewKey, ReviewKind, ReviewResult,
};
use crate::auth::attributes::Attributes;
use crate::auth::reviewer::admission::{FlowLimits, REVIEWS_MAX};
use crate::auth::reviewer::backoff::is_outage;
use crate::auth::reviewer::{Reviewer, WhenAbandoned};
use crate::auth::user::{User, UserKey};
use crate::auth::{Decision, DecisionSource};
use crate::config::AuthorizationConfig;
use crate::tasks::single_flight::{RunLost, SharedOutcome};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::Upstream;

/// Sends access reviews and caches their decisions.
pub(crate) struct AccessReviews {
    inner: Arc<Inner>,
}

/// What the tasks share that run reviews.
struct Inner {
    reviewer: Reviewer<ReviewKey, ReviewResult, UserKey>,
    cache: DecisionCache,
    metrics: AccessReviewMetrics,
}

impl AccessReviews {
    /// Creates an empty cache. Reviews are sent through `upstream`, which has Weir's own identity.
    pub(crate) fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        metrics: AccessReviewMetrics,
    ) -> Self {
        let reviewer = Reviewer::new(upstream, PATH, PENDING_MAX, |key| weight(key, 0));
        let inner = Inner { reviewer, cache: DecisionCache::new(config), metrics };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the number of reviews that run or wait.
    pub(crate) fn pending(&self) -> usize {
        self.inner.reviewer.admission.pending()
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
        let expired = match self.inner.cache.find(&key, last_revocation) {
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
    pub(crate) fn learn_allowed(&self, user: &User, attributes: &Attributes, sent_at: Instant) {
        let allowed = ReviewDecision { allowed: true, reason: Arc::default() };
        self.inner.cache.store(&ReviewKey::new(user, attributes), allowed, sent_at);
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
    pub(crate) fn fresh_until(
        &self,
        user: &User,
        attributes: &Attributes,
        last_revocation: Option<Instant>,
    ) -> Option<Instant> {
        self.inner.cache.fresh_until(&ReviewKey::new(user, attributes), last_revocation)
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
        let reviewer = &self.inner.reviewer;
        if let Some(is_down) = reviewer.recent_failure(key) {
            return Err(ReviewFailure::new(is_down));
        }
        for _ in 0..ATTEMPTS_MAX {
            let outcome = self.join(user, key, ReviewKind::Decision);
            if has_expired && reviewer.backoff.is_down() {
                return Err(ReviewFailure::UpstreamDown);
            }
            let ReviewResult { sent_at, decision } = tokio::select! {
                biased;
                () = reviewer.availability.until_away(), if has_expired => {
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
        if self.inner.reviewer.is_paused() {
            return Err(ReviewFailure::Refused);
        }
        let slots_max = if user.is_anonymous() { ANONYMOUS_MAX } else { NAME_MAX };
        let limits = FlowLimits { running_max: REVIEWS_MAX, slots_max, is_exempt: false };
        let flow = (user.name_key(), limits);
        let (inner, user, reviewed) = (Arc::clone(&self.inner), Arc::clone(user), key.clone());
        let run = move |is_permitted| async move {
            inner.run(&user, &reviewed, kind, is_permitted).await
        };
        self.inner.reviewer.join(key, flow, WhenAbandoned::Send, run).map_err(|_full| {
            self.inner.metrics.reviewed(ReviewOutcome::Limited);
            ReviewFailure::Limited
        })
    }
}

impl Inner {
    /// Sends a review, if it has a permit, and caches its result.
    async fn run(
        &self,
        user: &User,
        key: &ReviewKey,
        kind: ReviewKind,
        is_permitted: bool,
    ) -> ReviewResult {
        let sent_at = Instant::now();
        if !is_permitted {
            self.metrics.reviewed(ReviewOutcome::Limited);
            return ReviewResult { sent_at, decision: Err(ReviewFailure::Limited) };
        }
        if self.reviewer.is_paused() {
            return ReviewResult { sent_at, decision: Err(ReviewFailure::Refused) };
        }
        let returns = self.reviewer.availability.returns();
        let (outcome, decision) = self.send(user, key, returns).await;
        self.metrics.reviewed(outcome);
        match &decision {
            Err(failure) if is_cached(key) => {
                let is_down = *failure == ReviewFailure::UpstreamDown;
                self.reviewer.remember_failure(key.clone(), is_down, returns);
            }
            Ok(made) if !made.allowed || kind == ReviewKind::Decision => {
                self.cache.store(key, made.clone(), sent_at);
            }
            _ => {}
        }
        for allowed in [false, true] {
            self.metrics.set_cached_bytes(allowed, self.cache.bytes(allowed));
        }
        ReviewResult { sent_at, decision }
    }

    async fn send(
        &self,
        user: &User,
        key: &ReviewKey,
        returns: u64,
    ) -> (ReviewOutcome, Result<ReviewDecision, ReviewFailure>) {
        let _in_flight = GaugeGuard::new(self.metrics.in_flight.clone());
        let started = Instant::now();
        let response = self.reviewer.post(wire::request(user, &key.attributes)).await;
        self.metrics.duration.observe(started.elapsed().as_secs_f64());
        match response {
            Ok(body) => {
                self.reviewer.backoff.answered();
                wire::evaluate(&body)
            }
            Err(error) => {
                let failure = review::backoff(&error, started.elapsed());
                self.reviewer.failed(key.clone(), failure, returns);
                tracing::debug!(%error, "an access review failed");
                (review::outcome(&error), Err(ReviewFailure::new(is_outage(&error))))
            }
        }
    }
}

/// Waits for a review. One whose task panicked counts as refused.
async fn wait(outcome: SharedOutcome<ReviewResult>) -> ReviewResult {
    outcome.wait().await.unwrap_or_else(|RunLost| ReviewResult {
        sent_at: Instant::now(),
        decision: Err(ReviewFailure::Refused),
    })
}

crate::api::opaque!(AccessReviews);

/// A review that was in flight when a permission was revoked is repeated once. The second one is
/// sent after the revocation and always counts.
const ATTEMPTS_MAX: usize = 2;
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Pending reviews in total: many times those in flight at once, and a few megabytes (64 MiB if all
/// had the longest attributes). Beyond this limit, GETs are forwarded at once, and lists and
/// watches get 429.
const PENDING_MAX: usize = 4096;
/// The pending reviews of one name, whatever its tokens: those of a DaemonSet have one name on
/// thousands of nodes. Half is left to others.
const NAME_MAX: usize = PENDING_MAX / 2;
/// Those of all who have no name.
const ANONYMOUS_MAX: usize = 256;
