//! Periodic re-authorization of open watches.
//!
//! The API server authorizes a watch once, at its start, so a revocation ends no stream there. Weir
//! checks each watch again at intervals if `watchRecheck` is set. A check authenticates the client
//! again (a token by a review, a certificate by the CAs of that time) and then authorizes the user.
//! A credential that expires (a certificate, a token with a known expiry) ends the watch at that
//! time, without a check. See `docs/decisions/authorization.md`.
//!
//! Cost: the watches of one user are checked together, and those that ask the same question share
//! one review ([`rounds`]). All reviews together stay within a budget, and the interval stretches
//! where that is too little ([`schedule`]). A permission that roles allow here costs no review,
//! and is checked at the configured interval in any case.
//!
//! Latency of a revocation: the time until the next check, which is at most one and a half
//! intervals after the start of a watch and one interval later on, stretched or not; plus at most
//! `allowTTL` until the cached decision has expired; plus the time of the review. Where the budget
//! is used up, the time for which Weir's tasks did not run is added. A check that
//! fails because the upstream is down does not end the watch; the next one follows an interval
//! later.

mod rounds;
pub mod schedule;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::auth::attributes::Attributes;
use crate::auth::authenticator::{AuthenticationError, Authenticator, PresentedCredential};
use crate::auth::authorizer::Authorizer;
use crate::auth::peer::Peer;
use crate::auth::reauthorization::rounds::Step;
use crate::auth::reauthorization::schedule::{RecheckSchedule, ScheduledWatch};
use crate::auth::user::Identity;

/// The re-authorization of one open watch.
#[derive(Debug)]
pub struct Reauthorization {
    /// The credential that the client presented.
    pub presented: PresentedCredential,
    /// The certificates that the client presented, if any.
    pub peer: Peer,
    /// The identity at the start of the watch, then at the last check.
    pub identity: Identity,
    /// The attributes of the watch request.
    pub attributes: Attributes,
    /// When the watch is checked.
    pub schedule: Arc<RecheckSchedule>,
    /// Authenticates the client again.
    pub authenticator: Arc<Authenticator>,
    /// Authorizes the user again.
    pub authorizer: Arc<Authorizer>,
}

/// A watch between its checks.
struct Waiting {
    scheduled: ScheduledWatch,
    expiry: CredentialExpiry,
    /// When the permission was last checked by roles that allow it; `None` if they do not.
    allowed_by_roles: Option<Instant>,
}

impl Reauthorization {
    /// Returns when the credential is no longer valid, or the user is no longer authorized. A check
    /// that fails does not count.
    pub async fn until_revoked(mut self) {
        let mut waiting = self.enter();
        loop {
            // Before a review is reserved, which roles may make needless.
            if self.is_revoked_by_roles(&mut waiting).await {
                return;
            }
            let (at, round) = match waiting.scheduled.next() {
                Step::Wait(until) => (until, None),
                Step::Check { at, round } => (at, Some(round)),
            };
            if self.ends_before(at, &mut waiting).await {
                return;
            }
            let Some(round) = round else { continue };
            if let Some(fresh_until) = self.fresh_until() {
                let after = fresh_until.min(at + self.schedule.interval()) + EXPIRY_MARGIN;
                if self.ends_before(after, &mut waiting).await {
                    return;
                }
            }
            if let Some(later) = waiting.scheduled.begin(round)
                && self.ends_before(later, &mut waiting).await
            {
                return;
            }
            if self.is_revoked().await {
                return;
            }
            waiting.scheduled.set_round(round);
            waiting.expiry = CredentialExpiry::from_identity(&self.identity);
        }
    }

    fn enter(&self) -> Waiting {
        let token = match &self.presented {
            PresentedCredential::Token(token) => Some(token),
            _ => None,
        };
        let is_by_roles = self.decision_of_roles() == Some(true);
        let user = &self.identity.user;
        Waiting {
            scheduled: self.schedule.enter(user, token, &self.attributes, is_by_roles),
            expiry: CredentialExpiry::from_identity(&self.identity),
            allowed_by_roles: is_by_roles.then(Instant::now),
        }
    }

    /// Waits until `time`. Returns true as soon as the credential has expired, or as the user is
    /// denied what roles allowed until then.
    async fn ends_before(&self, time: Instant, waiting: &mut Waiting) -> bool {
        loop {
            let next = waiting.allowed_by_roles.map_or(time, |at| at + self.schedule.interval());
            if waiting.expiry.expires_before(next.min(time)).await {
                return true;
            }
            if Instant::now() >= time {
                return false;
            }
            if self.is_revoked_by_roles(waiting).await {
                return true;
            }
        }
    }

    /// Looks whether roles still allow what they allowed until now. If they do not, a review
    /// decides at once, whatever the budget is. While roles are not known, the next round decides,
    /// within the budget: an API server that restarts makes them unknown for all watches.
    async fn is_revoked_by_roles(&self, waiting: &mut Waiting) -> bool {
        let was_by_roles = waiting.allowed_by_roles.is_some();
        let decision = self.decision_of_roles();
        waiting.note_roles(decision == Some(true));
        was_by_roles && decision == Some(false) && self.is_denied().await
    }

    fn decision_of_roles(&self) -> Option<bool> {
        self.authorizer.decision_of_roles(&self.identity.user, &self.attributes)
    }

    /// Checks once whether the user is still authenticated and authorized.
    async fn is_revoked(&mut self) -> bool {
        match &self.presented {
            PresentedCredential::Invalid(_) => return true,
            PresentedCredential::Token(_) => {
                match self.authenticator.authenticate(&self.presented).await {
                    Ok(identity) => self.identity = identity,
                    Err(AuthenticationError::Unauthorized) => return true,
                    // Keep the last identity.
                    Err(
                        AuthenticationError::Unavailable | AuthenticationError::TooManyRequests,
                    ) => {}
                }
            }
            // The handshake proved possession of the key. Only the CA is checked again.
            PresentedCredential::User(_) => match self
                .authenticator
                .recheck_certificate(&self.peer, &self.identity)
            {
                Ok(identity) => self.identity = identity,
                Err(AuthenticationError::Unauthorized) => return true,
                Err(AuthenticationError::Unavailable | AuthenticationError::TooManyRequests) => {}
            },
            PresentedCredential::None
            | PresentedCredential::Unknown
            | PresentedCredential::Ambiguous => {}
        }
        self.is_denied().await
    }

    async fn is_denied(&self) -> bool {
        let decision = self.authorizer.authorize(&self.identity.user, &self.attributes).await;
        decision.is_ok_and(|decision| !decision.allowed)
    }

    fn fresh_until(&self) -> Option<Instant> {
        self.authorizer.fresh_until(&self.identity.user, &self.attributes)
    }
}

impl Waiting {
    /// Notes whether roles allow what the watch needs now.
    fn note_roles(&mut self, is_by_roles: bool) {
        if is_by_roles != self.allowed_by_roles.is_some() {
            self.scheduled.set_by_roles(is_by_roles);
        }
        self.allowed_by_roles = is_by_roles.then(Instant::now);
    }
}

/// When a credential expires, by both clocks: the system clock may be set, and the monotonic clock
/// may stand still while the machine sleeps.
#[derive(Clone, Copy)]
struct CredentialExpiry(Option<(SystemTime, Instant)>);

impl CredentialExpiry {
    fn from_identity(identity: &Identity) -> Self {
        Self(identity.not_after.map(|not_after| {
            let left = not_after.duration_since(SystemTime::now()).unwrap_or_default();
            (not_after, Instant::now() + left.min(EXPIRY_MAX))
        }))
    }

    /// Waits until `time` or the expiry, whichever is first. Returns whether the credential
    /// expired.
    async fn expires_before(self, time: Instant) -> bool {
        let Some((not_after, expires_at)) = self.0 else {
            tokio::time::sleep_until(time).await;
            return false;
        };
        tokio::time::sleep_until(time.min(expires_at)).await;
        Instant::now() >= expires_at || SystemTime::now() >= not_after
    }
}

/// Added to the expiry of a decision, so that it has expired by then.
const EXPIRY_MARGIN: Duration = Duration::from_millis(1);
/// Later expiries are cut to this, because `Instant` could overflow. The expiry is computed again
/// at each check.
const EXPIRY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests;
