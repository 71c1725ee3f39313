//! Periodic re-authorization of open watches.
//!
//! The API server authorizes a watch once, at its start, so a revocation ends no stream there. Weir
//! checks each watch again at intervals if `watchRecheck` is set. A check authenticates the client
//! again (a token by a review, a certificate by the CAs of that time) and then authorizes the user.
//! A credential that expires (a certificate, a token with a known expiry) ends the watch at that
//! time, without a check. See `docs/decisions/watch-reauthorization.md`.
//!
//! Cost: all watches of one user and request are checked at the same times, `interval` apart and
//! just after the cached decision has expired. So they share one access review per interval, and
//! the watches of one token share one token review, however many there are. Users are spread over
//! the interval by their keys, and the requests of one user over a few seconds.
//!
//! Latency of a revocation: the time until the next check, which is at most one and a half
//! intervals after the start of a watch and one interval later on; plus at most `allowTTL` until
//! the cached decision has expired; plus the time of the review. A check that fails because the
//! upstream is down does not end the watch; the next one follows an interval later.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::auth::attributes::Attributes;
use crate::auth::authenticator::{AuthenticationError, Authenticator, PresentedCredential};
use crate::auth::authorizer::Authorizer;
use crate::auth::peer::Peer;
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
    /// The time between two checks.
    pub interval: Duration,
    /// Authenticates the client again.
    pub authenticator: Arc<Authenticator>,
    /// Authorizes the user again.
    pub authorizer: Arc<Authorizer>,
}

impl Reauthorization {
    /// Returns when the credential is no longer valid, or the user is no longer authorized. A check
    /// that fails does not count.
    pub async fn until_revoked(mut self) {
        let interval = self.interval.max(INTERVAL_MIN);
        let phase = phase(&self.identity, &self.attributes, interval);
        // The watch was authorized just now, so the first check is at least half an interval away.
        let mut next = next_check(self.authorizer.started(), phase, interval, interval / 2);
        let mut expiry = CredentialExpiry::from_identity(&self.identity);
        loop {
            if expiry.expires_before(next).await {
                return;
            }
            if let Some(fresh_until) = self.fresh_until().await {
                let after = fresh_until.min(next + interval) + EXPIRY_MARGIN;
                if expiry.expires_before(after).await {
                    return;
                }
            }
            if self.is_revoked().await {
                return;
            }
            expiry = CredentialExpiry::from_identity(&self.identity);
            next = next_check(self.authorizer.started(), phase, interval, Duration::ZERO);
        }
    }

    /// Checks once whether the user is still authenticated and authorized.
    async fn is_revoked(&mut self) -> bool {
        match &self.presented {
            PresentedCredential::Invalid => return true,
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
        let decision = self.authorizer.authorize(&self.identity.user, &self.attributes).await;
        decision.is_ok_and(|decision| !decision.allowed)
    }

    async fn fresh_until(&self) -> Option<Instant> {
        self.authorizer.fresh_until(&self.identity.user, &self.attributes).await
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

/// Returns the offset of the checks in the interval. It is the same for all watches of a user and
/// request, and not predictable, because the key of a user is random.
fn phase(identity: &Identity, attributes: &Attributes, interval: Duration) -> Duration {
    spread(&identity.user.key(), interval)
        + spread(attributes, REQUEST_SPREAD_MAX.min(interval / 4))
}

/// Returns a duration below `range`, always the same for the same value.
fn spread(value: &impl Hash, range: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let nanos = u64::try_from(range.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(hasher.finish() % nanos)
}

/// Returns the first of the times `start + phase + n * interval` that is more than `delay_min` from
/// now.
fn next_check(start: Instant, phase: Duration, interval: Duration, delay_min: Duration) -> Instant {
    check_after(start, phase, interval, Instant::now() + delay_min)
}

fn check_after(start: Instant, phase: Duration, interval: Duration, from: Instant) -> Instant {
    let first = start + Duration::from_nanos_u128(phase.as_nanos() % interval.as_nanos().max(1));
    if from < first {
        return first;
    }
    let passed = from.duration_since(first).as_nanos() % interval.as_nanos().max(1);
    from + interval - Duration::from_nanos_u128(passed)
}

/// The shortest interval, whatever is configured: with a shorter one, the checks would cost more
/// than the watch.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// How far the checks of one user are spread: less than a token review is cached by default, so
/// that they share it, and enough that a controller with a hundred watches does not cause all
/// reviews at once.
const REQUEST_SPREAD_MAX: Duration = Duration::from_secs(4);
/// Added to the expiry of a decision, so that it has expired by then.
const EXPIRY_MARGIN: Duration = Duration::from_millis(1);
/// Later expiries are cut to this, because `Instant` could overflow. The expiry is computed again
/// at each check.
const EXPIRY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests;
