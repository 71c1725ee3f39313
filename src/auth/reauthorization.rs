//! Whether the user of an open watch still may.
//!
//! The API server authorizes a watch once, at its start, and so a right that is taken away ends no stream there; with `watchRecheck` Weir looks
//! again. Each look asks who it still is, of a token by a review, of a certificate by the CAs of now, and whether that user may. A credential that
//! ends (a certificate, a token with a known expiry) ends the watch at that moment, without a look.
//!
//! What it costs: all watches of one user and question look at the same moments, each `interval` apart, and just after what is remembered has
//! expired. So they share one access review (and the watches of one token one token review) each interval, however many they are. Users
//! are spread over the interval by their keys, and the questions of one user over a few seconds.
//!
//! How long a right outlives its end: until the next look, which is at most one and a half intervals after the start of a watch and one interval
//! apart from then on, plus at most `allowTTL` until the memory of it has expired, plus the time of the review. What cannot be told (the upstream
//! is away) is no loss; the next look is an interval later.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::auth::attributes::Attributes;
use crate::auth::authenticator::{AuthenticationError, Authenticator, Presented};
use crate::auth::authorizer::Authorizer;
use crate::auth::peer::Peer;
use crate::auth::user::Identity;

/// The right to one open watch.
#[derive(Debug)]
pub struct Reauthorization {
    /// Who was shown at the start.
    pub presented: Presented,
    /// The certificates that were shown, if any.
    pub peer: Peer,
    /// Who that was.
    pub identity: Identity,
    /// What is watched.
    pub attributes: Attributes,
    /// How often to look.
    pub interval: Duration,
    /// Tells who.
    pub authenticator: Arc<Authenticator>,
    /// Tells whether.
    pub authorizer: Arc<Authorizer>,
}

impl Reauthorization {
    /// Returns when the right is lost: the credential is no longer good, or the user no longer may. What cannot be told is no loss.
    pub async fn until_revoked(mut self) {
        let interval = self.interval.max(INTERVAL_MIN);
        let phase = phase(&self.identity, &self.attributes, interval);
        // A watch begins with an answer just given; the first look is not at once.
        let mut next = next_look(self.authorizer.started(), phase, interval, interval / 2);
        let mut end = End::of(&self.identity);
        loop {
            if end.before(next).await {
                return;
            }
            if let Some(expiry) = self.fresh_until().await {
                let after = expiry.min(next + interval) + JUST_AFTER;
                if end.before(after).await {
                    return;
                }
            }
            if self.is_lost().await {
                return;
            }
            end = End::of(&self.identity);
            next = next_look(self.authorizer.started(), phase, interval, Duration::ZERO);
        }
    }

    /// One look.
    async fn is_lost(&mut self) -> bool {
        match &self.presented {
            Presented::Wrong => return true,
            Presented::Token(_) => match self.authenticator.authenticate(&self.presented).await {
                Ok(identity) => self.identity = identity,
                Err(AuthenticationError::Unauthorized) => return true,
                // Whoever it was, as far as that is known.
                Err(AuthenticationError::Unavailable | AuthenticationError::TooManyRequests) => {}
            },
            // The handshake proved the key; whether the CA is still trusted is for now to say.
            Presented::User(_) => match self.authenticator.still(&self.peer, &self.identity) {
                Ok(identity) => self.identity = identity,
                Err(AuthenticationError::Unauthorized) => return true,
                Err(AuthenticationError::Unavailable | AuthenticationError::TooManyRequests) => {}
            },
            Presented::Nothing | Presented::Unknown | Presented::Unclear => {}
        }
        let decision = self.authorizer.authorize(&self.identity.user, &self.attributes).await;
        decision.is_ok_and(|decision| !decision.allowed)
    }

    async fn fresh_until(&self) -> Option<Instant> {
        self.authorizer.fresh_until(&self.identity.user, &self.attributes).await
    }
}

/// When a credential ends, by both clocks: the one of the credential may be set, the other may stand still while the machine sleeps.
#[derive(Clone, Copy)]
struct End(Option<(SystemTime, Instant)>);

impl End {
    fn of(identity: &Identity) -> Self {
        Self(identity.not_after.map(|not_after| {
            let left = not_after.duration_since(SystemTime::now()).unwrap_or_default();
            (not_after, Instant::now() + left.min(FAR))
        }))
    }

    /// Waits until `then`, or until the end if that comes first; true if it has come.
    async fn before(self, then: Instant) -> bool {
        let Some((not_after, end)) = self.0 else {
            tokio::time::sleep_until(then).await;
            return false;
        };
        tokio::time::sleep_until(then.min(end)).await;
        Instant::now() >= end || SystemTime::now() >= not_after
    }
}

/// Where in the interval a user's question is looked at: the same for all who ask it. Not to be foreseen, since the key of a user is not.
fn phase(identity: &Identity, attributes: &Attributes, interval: Duration) -> Duration {
    part(&identity.user.key(), interval) + part(attributes, SPREAD.min(interval / 4))
}

/// A time below `of`, always the same for the same value.
fn part(value: &impl Hash, of: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let nanos = u64::try_from(of.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(hasher.finish() % nanos)
}

/// The first of the moments `start + phase + n * interval` that is later than now by more than `least`.
fn next_look(start: Instant, phase: Duration, interval: Duration, least: Duration) -> Instant {
    look_after(start, phase, interval, Instant::now() + least)
}

fn look_after(start: Instant, phase: Duration, interval: Duration, from: Instant) -> Instant {
    let first = start + Duration::from_nanos_u128(phase.as_nanos() % interval.as_nanos().max(1));
    if from < first {
        return first;
    }
    let passed = from.duration_since(first).as_nanos() % interval.as_nanos().max(1);
    from + interval - Duration::from_nanos_u128(passed)
}

/// No interval is shorter, whatever is configured: below, a look would cost more than the watch.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// How far the questions of one user are spread: less than a token review is remembered by default, so that they share it, and enough that a
/// controller with a hundred watches does not ask for all at one moment.
const SPREAD: Duration = Duration::from_secs(5);
/// Added to an expiry, so that what expires then has expired.
const JUST_AFTER: Duration = Duration::from_millis(1);
/// A credential that ends later than in a year is looked at again anyway by then; beyond, clocks overflow.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests;
