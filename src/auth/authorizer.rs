//! Authorizes requests: by the cluster's roles and bindings, cached decisions and access reviews.
//!
//! The cluster's roles and bindings are evaluated first, if Weir follows them ([`Rbac`]). A request
//! that they allow is allowed at once. Everything else is decided by an access review or a cached
//! one ([`AccessReviews`]). A sample of the requests that RBAC allows is also checked by an access
//! review, in the background. A review without a result neither allows nor denies: the request is
//! forwarded (`docs/decisions/authorization.md`).
//!
//! A revocation that RBAC saw also applies to the cached decisions: one that allows counts only if
//! it was reviewed after the last time that a role or binding was narrowed or deleted. The results
//! of checks are not cached.
//!
//! An expired decision is used only within `staleDecisionGrace` and only while the upstream is down
//! (unreachable, silent, 5xx). An upstream that refuses the review or throttles may have changed
//! its decision.

pub mod metrics;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::auth::access_review::AccessReviews;
use crate::auth::access_review::decision_cache::RBAC_LAG_MAX;
use crate::auth::access_review::review::ReviewFailure;
use crate::auth::attributes::Attributes;
use crate::auth::authorizer::metrics::AuthorizationMetrics;
use crate::auth::rbac::Rbac;
use crate::auth::user::User;
use crate::auth::visibility::{UserView, Visibility, Visible};
use crate::auth::{Decision, DecisionSource};
use crate::config::AuthorizationConfig;
use crate::upstream::Upstream;

/// Decides by RBAC, cached decisions and access reviews, in this order.
#[derive(Debug)]
pub struct Authorizer {
    reviews: Arc<AccessReviews>,
    rbac: Option<Arc<Rbac>>,
    visibility: Option<Arc<Visibility>>,
    /// Limits the checks of RBAC in flight.
    checks: Arc<Semaphore>,
    metrics: AuthorizationMetrics,
}

/// The part of a decision of RBAC that is compared with an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    Decision,
    /// The decision and its reason.
    Reason,
}

/// Weir could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDecision {
    /// The request is forwarded and the API server decides.
    #[error("the request could not be authorized: there is no answer to the access review")]
    Unavailable,
    /// The review was not sent, because too many are pending.
    #[error("the request could not be authorized: too many access reviews are pending")]
    Limited,
}

impl Authorizer {
    /// Creates an authorizer. Reviews are sent through `upstream`, which has Weir's own identity.
    pub fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        rbac: Option<Arc<Rbac>>,
        metrics: AuthorizationMetrics,
    ) -> Arc<Self> {
        let reviews = AccessReviews::new(config, upstream, metrics.access_reviews.clone());
        Arc::new(Self {
            reviews: Arc::new(reviews),
            visibility: rbac.clone().map(Visibility::new),
            rbac,
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            metrics,
        })
    }

    /// Decides whether a request of `user` with these attributes is allowed.
    pub async fn authorize(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<Decision, NoDecision> {
        // The same bound for RBAC and for reviews: a watch keeps its attributes while it is open.
        if attributes.are_too_long() {
            self.metrics.unavailable();
            return Err(NoDecision::Unavailable);
        }
        if let Some(decision) = self.allow_by_roles(user, attributes) {
            return Ok(decision);
        }
        let decided = self.reviews.decide(user, attributes, self.last_revocation()).await;
        let decision = decided.map_err(|failure| {
            self.metrics.unavailable();
            match failure {
                ReviewFailure::Limited => NoDecision::Limited,
                ReviewFailure::UpstreamDown | ReviewFailure::Refused => NoDecision::Unavailable,
            }
        })?;
        self.metrics.decided(decision.source, decision.allowed);
        Ok(decision)
    }

    /// Allows a request if roles do; `None` if something else must decide.
    pub(crate) fn allow_by_roles(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Option<Decision> {
        let rbac = self.rbac_allowing(user, attributes)?;
        if rbac.should_check() {
            self.check(rbac, user, attributes, Checked::Decision);
        }
        let (allowed, source) = (true, DecisionSource::Rbac);
        self.metrics.decided(source, allowed);
        Some(Decision { allowed, reason: Arc::default(), source })
    }

    /// Returns the reason for which roles allow what a client asks in an access review of its own.
    /// `None` if they do not, or if the API server may answer otherwise.
    pub(crate) fn reason_of_roles(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Option<String> {
        let rbac = self.rbac.as_ref().filter(|_| !attributes.are_too_long())?;
        let reason = rbac.reason(user, attributes)?;
        let is_usable = reason.is_empty() || rbac.has_confirmed_reasons();
        if !is_usable || rbac.should_check_reason() {
            self.check(rbac, user, attributes, Checked::Reason);
        }
        is_usable.then_some(reason)
    }

    /// Returns how `user` may see the collection that the attributes ask for and that an access
    /// review denied. `None` if Weir does not follow the cluster's roles.
    pub(crate) fn view(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
        is_namespaced: bool,
    ) -> Option<UserView> {
        let visibility = self.visibility.as_ref().filter(|_| !attributes.are_too_long())?;
        UserView::new(visibility, user, attributes, is_namespaced)
    }

    /// Checks in the background one of the permissions by which a user sees this, as often as
    /// other decisions of roles.
    pub(crate) fn check_view(&self, view: &UserView, visible: &Visible) {
        if let Some(rbac) = self.rbac.as_ref().filter(|rbac| rbac.should_check())
            && let Some(attributes) = view.sample(visible)
        {
            self.check(rbac, view.user(), &attributes, Checked::Decision);
        }
    }

    /// Whether Weir follows the cluster's roles, which it may not know yet.
    pub(crate) fn follows_roles(&self) -> bool {
        self.rbac.is_some()
    }

    /// Notes that the upstream allowed a request, which it answered itself. The request was sent
    /// after `sent_at`.
    pub(crate) fn learn_allowed(&self, user: &User, attributes: &Attributes, sent_at: Instant) {
        if !attributes.are_too_long() {
            self.reviews.learn_allowed(user, attributes, sent_at);
        }
    }

    /// Returns when the cached decision expires. `None` if there is none, or if RBAC decides.
    pub(crate) fn fresh_until(&self, user: &User, attributes: &Attributes) -> Option<Instant> {
        match self.rbac_allowing(user, attributes) {
            Some(_) => None,
            None => self.reviews.fresh_until(user, attributes, self.last_revocation()),
        }
    }

    /// Returns the number of access reviews that run or wait.
    pub(crate) fn pending_reviews(&self) -> usize {
        self.reviews.pending()
    }

    /// Returns whether roles allow a request of `user` with these attributes; `None` if Weir does
    /// not know the roles now. Unless it is `Some(true)`, [`authorize`](Self::authorize) decides.
    pub(crate) fn decision_of_roles(&self, user: &User, attributes: &Attributes) -> Option<bool> {
        let rbac = self.rbac.as_ref().filter(|_| !attributes.are_too_long())?;
        rbac.allows(user, attributes)
    }

    fn rbac_allowing(&self, user: &User, attributes: &Attributes) -> Option<&Arc<Rbac>> {
        self.rbac.as_ref().filter(|rbac| rbac.allows(user, attributes) == Some(true))
    }

    /// Call this after `rbac.allows`, so that a concurrent revocation is not missed.
    fn last_revocation(&self) -> Option<Instant> {
        self.rbac.as_ref().and_then(|rbac| rbac.last_revocation())
    }

    /// Checks in the background whether an access review also allows a request that RBAC
    /// allowed. Does nothing while [`CHECKS_MAX`] checks are in flight.
    fn check(&self, rbac: &Arc<Rbac>, user: &Arc<User>, attributes: &Attributes, checked: Checked) {
        let Ok(permit) = Arc::clone(&self.checks).try_acquire_owned() else { return };
        let (reviews, rbac) = (Arc::clone(&self.reviews), Arc::clone(rbac));
        let (user, attributes) = (Arc::clone(user), attributes.clone());
        tokio::spawn(async move {
            let _permit = permit;
            for _ in 0..CHECK_ATTEMPTS_MAX {
                let Ok(mut decision) = reviews.check(&user, &attributes).await else {
                    return rbac.forget_mismatch(&user, &attributes);
                };
                if !decision.allowed {
                    // Roles may just have changed. Only a denial counts that follows when they
                    // have allowed the request for longer than an API server lags.
                    let again = async {
                        sleep(RBAC_LAG_MAX).await;
                        reviews.check(&user, &attributes).await
                    };
                    decision = match rbac.while_allowed(&user, &attributes, again).await {
                        Some(Ok(again)) => again,
                        Some(Err(_)) | None => return rbac.forget_mismatch(&user, &attributes),
                    };
                }
                let mut retry = rbac.report(decision.allowed, &user, &attributes);
                if decision.allowed && checked == Checked::Reason {
                    retry = rbac.report_reason(&decision.reason, &user, &attributes);
                }
                match retry {
                    Some(delay) => sleep(delay).await,
                    None => return,
                }
            }
        });
    }
}

/// Checks are samples, so a few at a time suffice. More could delay the reviews that requests wait
/// for.
const CHECKS_MAX: usize = 4;
/// The most checks of one decision. A mismatch is checked again, because Weir and the
/// upstream learn of a change at different times.
const CHECK_ATTEMPTS_MAX: usize = 4;
