//! Decides by the cluster's roles and bindings, of which Weir's caches have a copy.
//!
//! An allowed request costs microseconds and no access review, and a revocation applies as soon as
//! the watch delivers it. RBAC only allows and never denies: another authorizer may allow the
//! request (the node authorizer, a webhook). So requests that it does not allow go to an access
//! review, and so do all requests while the copy is not known to be current. Rules are matched as
//! in kube-apiserver's RBAC authorizer; see [`rule`] and [`index`].
//!
//! Off unless configured: an authorizer that comes before RBAC may deny what RBAC allows. Weir
//! cannot see the order of the authorizers, but it checks a sample of the allowed requests by
//! access reviews, and a mismatch that persists disables the decisions ([`check`],
//! `docs/decisions/authorization.md`).
//!
//! Access reviews of clients are answered with the reason, in the API server's words. An authorizer
//! before RBAC may allow the same for a reason of its own. So reasons are checked as well, the
//! first one before any is used, and a mismatch that persists ends their use.
//!
//! Invariants: nothing is allowed without a complete and current copy of all four resources.
//! Readers take no lock.

mod check;
mod feed;
pub mod index;
pub mod metrics;
mod policy;
mod reason;
pub mod resource;
pub mod rule;
mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::Guard;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::attributes::Attributes;
use crate::auth::rbac::check::{Checks, MismatchResult};
use crate::auth::rbac::feed::feed;
use crate::auth::rbac::index::Index;
use crate::auth::rbac::metrics::RbacMetrics;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::rule::Action;
use crate::auth::rbac::state::RbacState;
use crate::auth::user::User;
use crate::cache::registry::Registry;
use crate::config::RbacConfig;

/// The checks of reasons.
#[derive(Debug)]
struct ReasonChecks {
    checks: Checks,
    /// Whether an access review had the same reason.
    are_confirmed: AtomicBool,
}

/// Follows the four RBAC resources and decides by them. Its tasks end when it is dropped or the
/// registry stops.
pub struct Rbac {
    state: Arc<RbacState>,
    checks: Checks,
    reasons: ReasonChecks,
    metrics: RbacMetrics,
    _tasks: DropGuard,
}

impl Rbac {
    /// Starts to follow the four resources, and keeps them cached even if no client reads them.
    /// Needs the permission to list and watch them in the whole cluster. Without it, or if the
    /// configuration excludes them from caching, nothing is allowed here. Must be called within a
    /// tokio runtime.
    pub fn start(config: &RbacConfig, registry: &Registry, metrics: RbacMetrics) -> Arc<Self> {
        let state = Arc::new(RbacState::new(metrics.clone()));
        let cancel = CancellationToken::new();
        for resource in RbacResource::ALL {
            let work = feed(Arc::clone(&state), registry.clone(), resource);
            tokio::spawn(cancel.clone().run_until_cancelled_owned(work));
        }
        let [checks, reasons] = [(); 2].map(|()| Checks::new(config.check_one_in));
        let reasons = ReasonChecks { checks: reasons, are_confirmed: AtomicBool::new(false) };
        Arc::new(Self { state, checks, reasons, metrics, _tasks: cancel.drop_guard() })
    }

    /// Returns whether RBAC allows this; `None` if the copy is not current. Unless it is
    /// `Some(true)`, an access review must decide.
    pub fn allows(&self, user: &User, attributes: &Attributes) -> Option<bool> {
        let allowed = self.decide(user, attributes);
        self.metrics.decided(allowed);
        allowed
    }

    /// Returns the roles and bindings; `None` if the copy is not current.
    pub(crate) fn index(&self) -> Option<Guard<Arc<Index>>> {
        if self.checks.is_disabled() { None } else { self.state.index() }
    }

    /// Returns the number of changes of roles and bindings, and when there are more. The index
    /// includes them, and perhaps more.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.state.changes()
    }

    /// Whether an access review has denied what roles allow.
    pub(crate) fn is_disabled(&self) -> bool {
        self.checks.is_disabled()
    }

    /// Returns the reason for which RBAC allows this, in the API server's words; `None` if it does
    /// not, if the copy is not current, or if the API server may give another reason: for a node,
    /// the node authorizer does.
    pub(crate) fn reason(&self, user: &User, attributes: &Attributes) -> Option<String> {
        self.find_reason(user, attributes, |_| true)
    }

    /// Returns whether reasons may be used: an access review has had the same as RBAC once.
    pub(crate) fn has_confirmed_reasons(&self) -> bool {
        self.reasons.are_confirmed.load(Ordering::Acquire)
    }

    /// Returns whether the reason that was just found should be checked by an access review. The
    /// result is passed to [`report`](Self::report), then to
    /// [`report_reason`](Self::report_reason).
    pub(crate) fn should_check_reason(&self) -> bool {
        self.reasons.checks.is_due()
    }

    /// Reports the reason of an access review that allowed a request. Returns a delay after which
    /// the same request must be checked again.
    pub(crate) fn report_reason(
        &self,
        reviewed: &str,
        user: &User,
        attributes: &Attributes,
    ) -> Option<Duration> {
        let ReasonChecks { checks, are_confirmed } = &self.reasons;
        let is_same = self.find_reason(user, attributes, |reason| reason == reviewed).is_some();
        // `system:masters` have no reason, whatever comes before RBAC.
        if is_same && !reviewed.is_empty() {
            are_confirmed.store(true, Ordering::Release);
        }
        // RBAC may name a binding that has no reason here, for a name that Go quotes otherwise.
        let is_of_roles = reviewed.starts_with("RBAC: allowed by ");
        if is_same || is_of_roles || self.reason(user, attributes).is_none() {
            checks.matched(user, attributes);
            return None;
        }
        match checks.mismatched(user, attributes) {
            MismatchResult::CheckAgain(delay) => Some(delay),
            MismatchResult::Disabled => {
                tracing::warn!(
                    "an access review gives another reason than the cluster's roles: another authorizer comes before RBAC. Weir forwards the access reviews of clients"
                );
                None
            }
        }
    }

    fn find_reason(
        &self,
        user: &User,
        attributes: &Attributes,
        fits: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let is_disabled = self.checks.is_disabled() || self.reasons.checks.is_disabled();
        if is_disabled || user.is_node() {
            return None;
        }
        let action = Action::from_attributes(attributes)?;
        self.state.index()?.find_reason(user, &action, fits)
    }

    /// Returns when a permission was last revoked. An earlier review may have allowed a request
    /// because of just that permission. Call this after [`allows`](Self::allows), whatever that
    /// returned: a watch that breaks after a revocation does not undo it.
    pub(crate) fn last_revocation(&self) -> Option<Instant> {
        self.state.last_revocation()
    }

    /// Returns whether a decision that just allowed a request should be checked by an access
    /// review. The result is passed to [`report`](Self::report).
    pub fn should_check(&self) -> bool {
        !self.checks.is_disabled() && self.checks.is_due()
    }

    /// Forgets a denial that was noted: the check after it had no result.
    pub(crate) fn forget_mismatch(&self, user: &User, attributes: &Attributes) {
        self.checks.matched(user, attributes);
    }

    /// Awaits `work` for as long as roles allow a request. Returns `None` once they do not.
    pub(crate) async fn while_allowed<T>(
        &self,
        user: &User,
        attributes: &Attributes,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut changes = self.changes();
        let is_denied = async {
            while self.decide(user, attributes) == Some(true) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = is_denied => None,
            output = work => Some(output),
        }
    }

    /// Reports whether an access review, sent after the decision, agreed with it. Failed reviews
    /// are not reported. Returns a delay after which the same request must be checked again: only a
    /// mismatch that persists disables RBAC.
    pub fn report(&self, agreed: bool, user: &User, attributes: &Attributes) -> Option<Duration> {
        let differs = !agreed && self.decide(user, attributes) == Some(true);
        self.metrics.checked(!differs);
        if !differs {
            self.checks.matched(user, attributes);
            return None;
        }
        match self.checks.mismatched(user, attributes) {
            MismatchResult::CheckAgain(delay) => Some(delay),
            MismatchResult::Disabled => {
                self.disabled(user, attributes);
                None
            }
        }
    }

    fn decide(&self, user: &User, attributes: &Attributes) -> Option<bool> {
        let action = Action::from_attributes(attributes)?;
        Some(self.index()?.allows(user, &action))
    }

    fn disabled(&self, user: &User, attributes: &Attributes) {
        self.metrics.set_disabled();
        self.state.note_change();
        let user = &user.name;
        let kind = attributes.describe_kind();
        tracing::error!(
            user,
            action = kind,
            "an access review denies what the cluster's roles allow: another authorizer comes before RBAC. Weir no longer decides by roles; remove authorization.rbac from the configuration"
        );
        if !attributes.is_about_secrets() {
            tracing::debug!(action = ?Action::from_attributes(attributes), "the action that was denied");
        }
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").field("checks", &self.checks).finish_non_exhaustive()
    }
}
