//! Cache of reviewed tokens, by keyed hash.
//!
//! Good tokens and refused ones are bounded separately, so that a flood of bad tokens evicts no
//! good one. The verdict on a good token has three uses, each for a shorter time than the next: its
//! user decides while the verdict is fresh; its user decides while the upstream is down; and it
//! only selects the limit of the next review, the connections of forwarded requests and whom they
//! count for (`docs/decisions/client-costs.md`).
//!
//! The deadlines that decide are stored in the values; moka's expiry only frees memory. An
//! `Instant` does not advance while a machine sleeps, so a token's own expiry is also checked
//! against the system clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::api::keyed_hash::BuildKeyedHash;
use crate::auth::user::{Credential, Identity, User};

/// The results of reviews. Cheap to clone: clones share them.
#[derive(Clone, Debug)]
pub(super) struct TokenCache {
    good: Cache<TokenKey, GoodToken, BuildKeyedHash>,
    /// The refused tokens, and the ends of their refusals.
    refused: Cache<TokenKey, Instant>,
    ttl: Duration,
    failure_ttl: Duration,
    stale_grace: Duration,
}

/// The key of a token in the cache: a keyed hash, so that neither the memory of the cache nor its
/// timing reveals the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::auth) struct TokenKey([u8; 32]);

/// The user of an authenticated token.
#[derive(Debug)]
pub(super) struct CachedIdentity {
    user: Arc<User>,
    not_after: Option<SystemTime>,
    /// `not_after` on the monotonic clock.
    expires_at: Option<Instant>,
    fresh_until: Option<Instant>,
    stale_until: Option<Instant>,
}

/// Error: the token's own expiry has passed.
#[derive(Debug)]
pub(super) struct Expired;

/// A token that the upstream accepted.
#[derive(Clone, Debug)]
struct GoodToken {
    /// Its user; `None` if only the response to a request proved it.
    identity: Option<Arc<CachedIdentity>>,
    /// The expiry of the token, if known.
    not_after: Option<SystemTime>,
    /// The time until which it counts as recently good.
    good_until: Instant,
}

/// The result of a cache lookup.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The token is good.
    Fresh(Arc<CachedIdentity>),
    /// The token is wrong.
    Refused,
    /// A review failed a moment ago; and whether the upstream was down.
    Unanswered { is_down: bool },
    /// Nothing that is still valid.
    Miss,
}

impl TokenKey {
    /// Hashes a token.
    pub(in crate::auth) fn new(key: &hmac::Key, token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(hmac::sign(key, token).as_ref());
        Self(hash)
    }

    /// Returns a part of the hash, by which an operator can distinguish tokens.
    pub(super) fn short(&self) -> u32 {
        let [one, two, three, four, ..] = self.0;
        u32::from_be_bytes([one, two, three, four])
    }
}

impl CachedIdentity {
    /// Creates the identity of a token that was just authenticated. Fails if `not_after` has
    /// passed.
    pub(super) fn new(user: User, not_after: Option<SystemTime>) -> Result<Self, Expired> {
        let expires_at = match not_after {
            None => None,
            Some(end) => {
                let left = end.duration_since(SystemTime::now()).map_err(|_| Expired)?;
                Instant::now().checked_add(left)
            }
        };
        let user = Arc::new(user);
        Ok(Self { user, not_after, expires_at, fresh_until: None, stale_until: None })
    }

    /// Returns the identity for a request.
    pub(super) fn to_identity(&self, stale: bool) -> Identity {
        Identity {
            user: self.user.clone(),
            credential: Credential::Token,
            not_after: self.not_after,
            stale,
        }
    }

    pub(super) fn user(&self) -> &Arc<User> {
        &self.user
    }

    fn weight(&self) -> u32 {
        let text = |text: &String| size_of::<String>() + text.len();
        let User { name, uid, groups, extra, .. } = &*self.user;
        let extra = extra.iter();
        let bytes = OVERHEAD_BYTES
            + name.len()
            + uid.len()
            + groups.iter().map(text).sum::<usize>()
            + extra
                .map(|(key, values)| text(key) + values.iter().map(text).sum::<usize>())
                .sum::<usize>();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl GoodToken {
    /// Returns whether the token may be used, given the deadline `until`.
    fn is_good(&self, until: Instant) -> bool {
        Instant::now() < until && self.not_after.is_none_or(|end| SystemTime::now() < end)
    }

    fn weight(&self) -> u32 {
        self.identity.as_ref().map_or(OVERHEAD_BYTES as u32, |identity| identity.weight())
    }
}

impl TokenCache {
    /// Creates an empty cache. `ttl` applies to good tokens, `failure_ttl` to refused ones. A good
    /// token may be used for `stale_grace` beyond `ttl` while the upstream is down.
    pub(super) fn new(ttl: Duration, failure_ttl: Duration, stale_grace: Duration) -> Self {
        let moka_ttl = |ttl: Duration| ttl.clamp(Duration::from_secs(1), MOKA_TTL_MAX);
        let kept_for = ttl.saturating_add(stale_grace).max(RECENTLY_GOOD);
        Self {
            good: Cache::builder()
                .name("token-good")
                .max_capacity(GOOD_BYTES_MAX)
                .weigher(|_, good: &GoodToken| good.weight())
                .time_to_live(moka_ttl(kept_for))
                .build_with_hasher(BuildKeyedHash::default()),
            refused: Cache::builder()
                .name("token-failures")
                .max_capacity(REFUSED_MAX)
                .time_to_live(moka_ttl(failure_ttl))
                .build(),
            ttl,
            failure_ttl,
            stale_grace,
        }
    }

    /// Looks up a token.
    pub(super) fn get(&self, key: &TokenKey) -> Lookup {
        if let Some(identity) = self.identity(key, |identity| identity.fresh_until) {
            return Lookup::Fresh(identity);
        }
        match self.refused.get(key) {
            Some(until) if Instant::now() < until => Lookup::Refused,
            _ => Lookup::Miss,
        }
    }

    /// Returns an identity that may have expired, but may be used while the upstream is down.
    pub(super) fn get_stale(&self, key: &TokenKey) -> Option<Arc<CachedIdentity>> {
        self.identity(key, |identity| identity.stale_until)
    }

    /// Returns the identity of a token, unless this deadline of it has passed.
    fn identity(
        &self,
        key: &TokenKey,
        deadline: impl Fn(&CachedIdentity) -> Option<Instant>,
    ) -> Option<Arc<CachedIdentity>> {
        let good = self.good.get(key)?;
        let identity = good.identity.as_ref()?;
        let is_valid = deadline(identity).is_some_and(|until| good.is_good(until));
        is_valid.then(|| Arc::clone(identity))
    }

    /// Returns whether a token was good not long ago and has not expired since; and its identity,
    /// if a review named it. That grants nothing.
    pub(super) fn recently_good(&self, key: &TokenKey) -> Option<Option<Arc<CachedIdentity>>> {
        let good = self.good.get(key)?;
        good.is_good(good.good_until).then_some(good.identity)
    }

    /// Stores that the upstream accepted a request with a token, and keeps what a review has said.
    pub(super) fn insert_recently_good(&self, key: TokenKey, not_after: Option<SystemTime>) {
        let good_until = Instant::now() + RECENTLY_GOOD;
        self.good.entry(key).and_upsert_with(|before| {
            let identity = before.and_then(|before| before.into_value().identity);
            GoodToken { identity, not_after, good_until }
        });
    }

    /// Forgets that a token was good, because the upstream refused it. It is not stored as refused:
    /// an upstream that is starting refuses good tokens, too.
    pub(super) fn forget(&self, key: &TokenKey) {
        self.good.invalidate(key);
    }

    /// Stores the user of a good token. `requested_at` is when the review was sent.
    pub(super) fn insert_authenticated(
        &self,
        key: TokenKey,
        mut identity: CachedIdentity,
        requested_at: Instant,
    ) -> Arc<CachedIdentity> {
        let until = |ttl: Duration| {
            let until = requested_at.checked_add(ttl)?;
            Some(identity.expires_at.map_or(until, |expiry| expiry.min(until)))
        };
        let (fresh, stale) = (until(self.ttl), until(self.ttl.saturating_add(self.stale_grace)));
        identity.fresh_until = fresh;
        identity.stale_until = stale;
        let identity = Arc::new(identity);
        let good_until = requested_at + RECENTLY_GOOD;
        let not_after = identity.not_after;
        let good = GoodToken { identity: Some(Arc::clone(&identity)), not_after, good_until };
        self.good.insert(key, good);
        self.refused.invalidate(&key);
        identity
    }

    /// Stores that the token was refused. `requested_at` is when the review was sent.
    pub(super) fn insert_refused(&self, key: TokenKey, requested_at: Instant) {
        let Some(until) = requested_at.checked_add(self.failure_ttl) else { return };
        // A refused token must not be accepted again from the cache, even while the upstream is
        // down.
        self.good.invalidate(&key);
        self.refused.insert(key, until);
    }

    /// Returns the approximate numbers of good and of refused tokens, and the weight of the good
    /// ones in bytes.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.good.entry_count(), self.refused.entry_count(), self.good.weighted_size())
    }

    /// Runs moka's pending maintenance, so that the counts are exact.
    #[cfg(test)]
    pub(super) fn run_pending_tasks(&self) {
        self.good.run_pending_tasks();
        self.refused.run_pending_tasks();
    }
}

/// The maximum total weight of good tokens; rarely used ones are evicted first. Enough for 131,072
/// tokens without groups, or about 64,000 of service accounts.
pub(super) const GOOD_BYTES_MAX: u64 = 64 << 20;
/// The weight of a good token besides its user's strings: the key, the user, moka's overhead.
const OVERHEAD_BYTES: usize = 512;
/// The maximum number of refused tokens, of about 256 bytes each (4 MiB). A client that sends more
/// different bad tokens has each of them reviewed.
pub(super) const REFUSED_MAX: u64 = 16 << 10;
/// How long a token counts as recently good after its last review: long enough for a controller
/// that sends a request every few minutes. Lost groups show up late in the accounting, which harms
/// nobody.
const RECENTLY_GOOD: Duration = Duration::from_secs(3600);
/// moka does not accept an arbitrary duration. No configuration needs a longer one.
const MOKA_TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
