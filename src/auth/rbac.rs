//! RBAC decided here, from the cluster's roles and bindings as Weir's own caches have them.
//!
//! An allow costs microseconds and no request, and a revocation counts as soon as the watch tells of it. Only an allow is decided: what RBAC does
//! not allow another authorizer may (the node authorizer, a webhook), so that is asked by access review, and so is everything while what is
//! known here is not shown to be what the upstream has. Rules are matched as kube-apiserver's authorizer does; see [`rule`] and [`index`].
//!
//! Off unless configured: an authorizer that comes before RBAC may deny what RBAC allows. That cannot be seen from here, but a
//! sample of what is allowed is checked against access reviews, and a difference that stands turns all of this off ([`check`]).
//!
//! Invariants: without a complete and current state of all four resources nothing is allowed here. A reader takes no lock.

mod check;
mod feed;
pub mod index;
mod known;
mod policy;
pub mod resource;
pub mod rule;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::attributes::Attributes;
use crate::auth::rbac::check::{Checks, Verdict};
use crate::auth::rbac::feed::feed;
use crate::auth::rbac::known::Known;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::rule::Question;
use crate::auth::user::User;
use crate::cache::registry::Registry;
use crate::config::RbacConfig;
use crate::telemetry::auth_metrics::rbac::RbacMetrics;

/// See the module. Its tasks end when it is dropped, or when the registry stops.
pub struct Rbac {
    known: Arc<Known>,
    checks: Checks,
    metrics: RbacMetrics,
    _tasks: DropGuard,
}

impl Rbac {
    /// Begins to follow the four resources; they are cached from now on whether anybody reads them or not. Needs the right to list and watch
    /// them in the whole cluster: without it, or where the configuration excludes them, nothing is ever allowed here. Must be called within
    /// a tokio runtime.
    pub fn start(config: &RbacConfig, registry: &Registry, metrics: RbacMetrics) -> Arc<Self> {
        let known = Arc::new(Known::new(metrics.clone()));
        let cancel = CancellationToken::new();
        for resource in RbacResource::ALL {
            let work = feed(Arc::clone(&known), registry.clone(), resource);
            tokio::spawn(cancel.clone().run_until_cancelled_owned(work));
        }
        let checks = Checks::new(config.check_one_in);
        Arc::new(Self { known, checks, metrics, _tasks: cancel.drop_guard() })
    }

    /// Whether RBAC allows it: `Some(false)` if it does not, which others may, and `None` if that is not known here. Either is to be asked by access
    /// review.
    pub fn allows(&self, user: &User, attributes: &Attributes) -> Option<bool> {
        let allowed = self.decide(user, attributes);
        self.metrics.decided(allowed);
        allowed
    }

    /// When something was last taken from somebody here. What a review allowed before may rest on just that. To be asked after
    /// [`allows`](Self::allows), and whatever that said: a watch that broke after a revocation makes nobody forget it.
    pub(crate) fn narrowed(&self) -> Option<Instant> {
        self.known.narrowed()
    }

    /// Whether what was just allowed is to be put to an access review as well, besides the request, whose outcome is to be
    /// [reported](Self::report).
    pub fn should_check(&self) -> bool {
        !self.checks.is_off() && self.checks.is_due()
    }

    /// What an access review, asked now and not taken from a cache, said of something that was allowed here: whether it allowed it too. A review that
    /// could not be asked is no report. If a time comes back, the same is to be asked and reported once more after it; only a
    /// denial that stands turns RBAC off.
    pub fn report(&self, agreed: bool, user: &User, attributes: &Attributes) -> Option<Duration> {
        let differs = !agreed && self.decide(user, attributes) == Some(true);
        self.metrics.checked(!differs);
        if !differs {
            self.checks.settle(user, attributes);
            return None;
        }
        match self.checks.doubt(user, attributes) {
            Verdict::Doubted(again) => Some(again),
            Verdict::Off => {
                self.turned_off(user, attributes);
                None
            }
        }
    }

    fn decide(&self, user: &User, attributes: &Attributes) -> Option<bool> {
        if self.checks.is_off() {
            return None;
        }
        let question = Question::of(attributes)?;
        Some(self.known.index()?.allows(user, &question))
    }

    fn turned_off(&self, user: &User, attributes: &Attributes) {
        self.metrics.disabled();
        let (user, question) = (&user.name, Question::of(attributes));
        tracing::error!(
            user,
            ?question,
            "an access review denies what RBAC allows here: another authorizer comes first; RBAC is not decided here any more, and authorization.rbac should be taken out of the configuration"
        );
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").field("checks", &self.checks).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
