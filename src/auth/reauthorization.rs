//! Periodic re-authorization of open watches.
//!
//! The API server authorizes a watch once, at its start, so a revocation ends no stream there. Weir
//! checks each watch again at intervals if `watchRecheck` is set. A check authenticates the client
//! again (a token by a review, a certificate by the CAs of that time) and then authorizes the user.
//! A credential that expires (a certificate, a token with a known expiry) ends the watch at that
//! time, without a check. See `docs/decisions/authorization.md`.
//!
//! Cost: all watches of a user are checked together, and those that ask the same question share one
//! review. All reviews together stay within a budget, and the interval stretches where that is too
//! little ([`schedule`]). A permission that roles allow here costs no review, and is checked at the
//! configured interval in any case.
//!
//! Latency of a revocation: the time until the next check, which is due at most one and a half
//! intervals after the start of a watch and one interval after each check; plus the wait in the
//! queue; plus at most `allowTTL` until the cached decision has expired; plus the time of the
//! review. A check that fails because the upstream is down does not end the watch; the next one
//! follows an interval later.

pub mod schedule;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future;
use tokio::time::{Instant, sleep_until};

use crate::auth::attributes::Attributes;
use crate::auth::authenticator::{AuthenticationError, Authenticator, PresentedCredential};
use crate::auth::authorizer::Authorizer;
use crate::auth::impersonation::Impersonation;
use crate::auth::peer::Peer;
use crate::auth::reauthorization::schedule::{RecheckSchedule, question};
use crate::auth::user::{Identity, User};

/// The re-authorization of one open watch.
#[derive(Debug)]
pub struct Reauthorization {
    /// The credential that the client presented.
    pub presented: PresentedCredential,
    /// The certificates that the client presented, if any.
    pub peer: Peer,
    /// The identity at the start of the watch, then at the last check.
    pub identity: Identity,
    /// The user that the client acts as, if that is another one.
    pub impersonation: Option<Impersonation>,
    /// The attributes of the watch request; `None` if only the credential is checked, because the
    /// watch shows a part of a collection that the user may not read
    /// ([`crate::auth::visibility`]).
    pub attributes: Option<Attributes>,
    /// The schedule of the checks.
    pub schedule: Arc<RecheckSchedule>,
    /// Authenticates the client again.
    pub authenticator: Arc<Authenticator>,
    /// Authorizes the user again.
    pub authorizer: Arc<Authorizer>,
}

/// A watch between its checks.
struct Waiting {
    expiry: CredentialExpiry,
    /// When the permission was last checked by roles that allow it; `None` if they do not.
    allowed_by_roles: Option<Instant>,
}

impl Reauthorization {
    /// Returns when the credential is no longer valid, or the user is no longer authorized. A check
    /// that fails does not count.
    pub async fn until_revoked(mut self) {
        let (schedule, user) = (Arc::clone(&self.schedule), self.identity.user.key());
        let is_by_roles = self.decision_of_roles() == Some(true);
        let mut waiting = Waiting {
            expiry: CredentialExpiry::from_identity(&self.identity),
            allowed_by_roles: is_by_roles.then(Instant::now),
        };
        let mut due = schedule.due_after(user, Instant::now() + schedule.interval / 2);
        loop {
            if self.ends_before(sleep_until(due), &mut waiting).await {
                return;
            }
            // Before a place is taken, which roles may make needless.
            if self.is_revoked_by_roles(&mut waiting).await {
                return;
            }
            if let Some(fresh_until) = self.fresh_until() {
                let expired = fresh_until.min(due + schedule.interval) + EXPIRY_MARGIN;
                if self.ends_before(sleep_until(expired), &mut waiting).await {
                    return;
                }
            }
            let places = self.places();
            if self.ends_before(places, &mut waiting).await || self.is_revoked().await {
                return;
            }
            waiting.expiry = CredentialExpiry::from_identity(&self.identity);
            due = schedule.due_after(user, Instant::now());
        }
    }

    /// Waits until the budget has a place for each question of the watch that roles do not answer.
    async fn places(&self) {
        let user = self.identity.user.key();
        let token = match &self.presented {
            PresentedCredential::Token(token) => Some(question(user, token.as_bytes())),
            _ => None,
        };
        let needs_review = |(user, at): &(&Arc<User>, &Attributes)| {
            self.authorizer.decision_of_roles(user, at) != Some(true)
        };
        let reviewed = self.permissions().filter(needs_review);
        let permissions = reviewed.map(|(user, at)| Some(question(user.key(), at)));
        let questions = std::iter::once(token).chain(permissions);
        future::join_all(questions.map(|asked| self.schedule.place(asked))).await;
    }

    /// Returns what must be allowed, and to whom: the watch, and each part of an impersonation.
    fn permissions(&self) -> impl Iterator<Item = (&Arc<User>, &Attributes)> {
        let sender = &self.identity.user;
        let user = self.impersonation.as_ref().map_or(sender, |impersonation| &impersonation.user);
        let parts = self.impersonation.iter().flat_map(|asked| asked.permissions.iter());
        let watch = self.attributes.iter().map(move |attributes| (user, attributes));
        watch.chain(parts.map(move |part| (sender, part)))
    }

    /// Waits for `event`. Returns true as soon as the credential has expired, or as the user is
    /// denied what roles allowed until then.
    async fn ends_before(&self, event: impl Future<Output = ()>, waiting: &mut Waiting) -> bool {
        let mut event = std::pin::pin!(event);
        loop {
            let look_at = waiting.allowed_by_roles.map(|at| at + self.schedule.interval);
            let is_over = tokio::select! {
                biased;
                () = &mut event => true,
                () = sleep_until(waiting.expiry.or_earlier(look_at)) => false,
            };
            if waiting.expiry.has_passed() {
                return true;
            }
            if is_over {
                return false;
            }
            if self.is_revoked_by_roles(waiting).await {
                return true;
            }
        }
    }

    /// Looks whether roles still allow what they allowed until now. If they do not, a review
    /// decides at once, whatever the budget is. While roles are not known, the next check decides,
    /// within the budget: an API server that restarts makes them unknown for all watches.
    async fn is_revoked_by_roles(&self, waiting: &mut Waiting) -> bool {
        let was_by_roles = waiting.allowed_by_roles.is_some();
        let decision = self.decision_of_roles();
        waiting.allowed_by_roles = (decision == Some(true)).then(Instant::now);
        was_by_roles && decision == Some(false) && self.is_denied().await
    }

    fn decision_of_roles(&self) -> Option<bool> {
        let decide = |(user, at): (&Arc<User>, _)| self.authorizer.decision_of_roles(user, at);
        let mut decisions = self.permissions().map(decide);
        decisions.try_fold(true, |is_allowed, decision| Some(is_allowed && decision?))
    }

    /// Checks once whether the user is still authenticated and authorized.
    async fn is_revoked(&mut self) -> bool {
        let checked = match &self.presented {
            PresentedCredential::Invalid(_) => return true,
            PresentedCredential::Token(_) => self.authenticator.authenticate(&self.presented).await,
            // The handshake proved possession of the key. Only the CA is checked again.
            PresentedCredential::User(_) => {
                self.authenticator.recheck_certificate(&self.peer, &self.identity)
            }
            PresentedCredential::None
            | PresentedCredential::Unknown
            | PresentedCredential::Ambiguous => return self.is_denied().await,
        };
        match checked {
            Ok(identity) if self.is_other_user(&identity) => return true,
            Ok(identity) => self.identity = identity,
            Err(AuthenticationError::Unauthorized) => return true,
            // Keep the last identity.
            Err(AuthenticationError::Unavailable | AuthenticationError::TooManyRequests) => {}
        }
        self.is_denied().await
    }

    /// Whether a watch that shows a part of a collection shows that of another user, or of one who
    /// was in other groups.
    fn is_other_user(&self, identity: &Identity) -> bool {
        self.attributes.is_none() && self.identity.user.roles_key() != identity.user.roles_key()
    }

    async fn is_denied(&self) -> bool {
        for (user, attributes) in self.permissions() {
            let decision = self.authorizer.authorize(user, attributes).await;
            if decision.is_ok_and(|decision| !decision.allowed) {
                return true;
            }
        }
        false
    }

    /// Returns when the last of the cached decisions expires.
    fn fresh_until(&self) -> Option<Instant> {
        self.permissions().filter_map(|(user, at)| self.authorizer.fresh_until(user, at)).max()
    }
}

/// The expiry of a credential, by both clocks: the system clock may be set, and the monotonic clock
/// may stand still while the machine sleeps.
#[derive(Clone, Copy)]
struct CredentialExpiry(Option<(SystemTime, Instant)>);

impl CredentialExpiry {
    fn from_identity(identity: &Identity) -> Self {
        Self(identity.not_after.map(|not_after| {
            let left = not_after.duration_since(SystemTime::now()).unwrap_or_default();
            (not_after, Instant::now() + left.min(FAR))
        }))
    }

    /// Returns the expiry, or `time` if that is earlier.
    fn or_earlier(self, time: Option<Instant>) -> Instant {
        let expires_at = self.0.map(|(_, expires_at)| expires_at);
        expires_at.into_iter().chain(time).min().unwrap_or_else(|| Instant::now() + FAR)
    }

    fn has_passed(self) -> bool {
        self.0.is_some_and(|(not_after, expires_at)| {
            Instant::now() >= expires_at || SystemTime::now() >= not_after
        })
    }
}

/// Added to the expiry of a decision, so that it has expired by then.
const EXPIRY_MARGIN: Duration = Duration::from_millis(1);
/// Later times are cut to this, because `Instant` could overflow. They are computed again at each
/// check.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests;
