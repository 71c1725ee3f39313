//! Whether a user may.
//!
//! First by the cluster's roles and bindings, if they are reflected here ([`Rbac`]): what they allow is allowed, at once. All else is asked
//! by access review ([`AccessReviews`]) or remembered from one. A sample of RBAC's allows is checked by review as well, beside the request.
//!
//! What RBAC saw taken away does not live on in that memory: an allow counts only if it was asked for after the last time that a role or binding
//! was narrowed or went, and what a check was told is not remembered.
//!
//! A decision that has expired is used only within `staleDecisionGrace`, and only while the upstream is away (unreachable, silent, 5xx): one
//! that answers, with a refusal or by throttling, may have changed its mind.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::auth::access_review::{AccessReviews, Answer, Verdict};
use crate::auth::attributes::Attributes;
use crate::auth::rbac::Rbac;
use crate::auth::user::User;
use crate::config::AuthorizationConfig;
use crate::telemetry::auth_metrics::authorization::{AuthorizationMetrics, DecidedBy};
use crate::upstream::Upstream;

/// See the module.
#[derive(Debug)]
pub struct Authorizer {
    reviews: Arc<AccessReviews>,
    rbac: Option<Arc<Rbac>>,
    /// Bounds the checks of RBAC's allows under way.
    checks: Arc<Semaphore>,
    metrics: AuthorizationMetrics,
    started: Instant,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may.
    pub allowed: bool,
    /// Why, in the upstream's words; empty for none.
    pub reason: Arc<str>,
    /// Who says so.
    pub source: Source,
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An access review that was just asked for.
    Review,
    /// One that was asked for before.
    Cached,
    /// The cluster's roles and bindings.
    Rbac,
    /// A review that has expired, while the upstream cannot be asked.
    Stale,
}

/// It cannot be told here; the upstream will judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("whether it is allowed cannot be told here")]
pub struct Unavailable;

impl Authorizer {
    /// Asks by `upstream`, which has Weir's own identity.
    pub fn new(
        config: &AuthorizationConfig,
        upstream: Upstream,
        rbac: Option<Arc<Rbac>>,
        metrics: AuthorizationMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            reviews: Arc::new(AccessReviews::new(config, upstream, metrics.clone())),
            rbac,
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            metrics,
            started: Instant::now(),
        })
    }

    /// Whether a user may do this.
    pub async fn authorize(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<Decision, Unavailable> {
        if let Some(rbac) = self.rbac_allowing(user, attributes) {
            if rbac.should_check() {
                self.check(rbac, user, attributes);
            }
            self.metrics.decided(DecidedBy::Rbac, true);
            let reason = Arc::default();
            return Ok(Decision { allowed: true, reason, source: Source::Rbac });
        }
        let decided = self.reviews.decide(user, attributes, self.narrowed()).await;
        let (by, source, verdict) = match decided {
            Ok(Answer::Cached(verdict)) => (DecidedBy::Cached, Source::Cached, verdict),
            Ok(Answer::Reviewed(verdict)) => (DecidedBy::Review, Source::Review, verdict),
            Ok(Answer::Stale(verdict)) => (DecidedBy::Stale, Source::Stale, verdict),
            Err(_) => {
                self.metrics.unavailable();
                return Err(Unavailable);
            }
        };
        let Verdict { allowed, reason } = verdict;
        self.metrics.decided(by, allowed);
        Ok(Decision { allowed, reason, source })
    }

    /// Until when a remembered decision would answer this question; `None` if it would be asked, or is RBAC's.
    pub(crate) async fn fresh_until(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Option<Instant> {
        match self.rbac_allowing(user, attributes) {
            Some(_) => None,
            None => self.reviews.fresh_until(user, attributes, self.narrowed()).await,
        }
    }

    /// A moment that all who re-check have in common.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    fn rbac_allowing(&self, user: &User, attributes: &Attributes) -> Option<&Arc<Rbac>> {
        self.rbac.as_ref().filter(|rbac| rbac.allows(user, attributes) == Some(true))
    }

    /// To be asked after RBAC itself.
    fn narrowed(&self) -> Option<Instant> {
        self.rbac.as_ref().and_then(|rbac| rbac.narrowed())
    }

    /// Compares an allow of RBAC's with a review, beside the request; skipped when [`CHECKS_MAX`] are under way.
    fn check(&self, rbac: &Arc<Rbac>, user: &Arc<User>, attributes: &Attributes) {
        let Ok(place) = Arc::clone(&self.checks).try_acquire_owned() else { return };
        let (reviews, rbac) = (Arc::clone(&self.reviews), Arc::clone(rbac));
        let (user, attributes) = (Arc::clone(user), attributes.clone());
        tokio::spawn(async move {
            let _place = place;
            for _ in 0..ROUNDS_MAX {
                let Ok(verdict) = reviews.check(&user, &attributes).await else { return };
                match rbac.report(verdict.allowed, &user, &attributes) {
                    Some(again) => tokio::time::sleep(again).await,
                    None => return,
                }
            }
        });
    }
}

/// Checks are samples: a few at a time do, and never enough of them to crowd out what requests wait for.
const CHECKS_MAX: usize = 4;
/// A difference is looked at once more, since the two sides see a change at different times; whatever RBAC asks for, a check ends.
const ROUNDS_MAX: usize = 4;

#[cfg(test)]
mod tests;
