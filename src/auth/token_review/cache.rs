//! Cache of reviewed tokens, by keyed hash.
//!
//! Users of good tokens and refused tokens are bounded separately, so that a flood of bad tokens
//! evicts no good one.
//!
//! The deadlines that decide are stored in the values; moka's expiry only frees memory. An
//! `Instant` does not advance while a machine sleeps, so a token's own expiry is also checked
//! against the system clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::auth::user::{Credential, Identity, User, UserKey};

/// The results of reviews. Cheap to clone: clones share them.
#[derive(Clone, Debug)]
pub(super) struct TokenCache {
    identities: Cache<TokenKey, Arc<CachedIdentity>>,
    /// The refused tokens, and until when they are.
    refused: Cache<TokenKey, Instant>,
    /// Tokens that were good not long ago. Decides only which limit applies to their next review,
    /// and which connections their forwarded requests use.
    recently_good: Cache<TokenKey, GoodToken>,
    /// The users of tokens that a review accepted. Decides only whom a forwarded request counts for
    /// (`docs/decisions/client-costs.md`); nothing is allowed because of it.
    named: Cache<TokenKey, Arc<CachedIdentity>>,
    ttl: Duration,
    failure_ttl: Duration,
    stale_grace: Duration,
}

/// Stands for a token in the cache: a keyed hash, so that neither the memory of the cache nor its
/// timing reveals the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TokenKey([u8; 32]);

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

/// A token that was good not long ago.
#[derive(Clone, Copy, Debug)]
pub(super) struct GoodToken {
    /// The key of the user's name, if known.
    pub(super) user: Option<UserKey>,
    /// When the token expires, if known.
    pub(super) not_after: Option<SystemTime>,
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
    pub(super) fn new(key: &hmac::Key, token: &[u8]) -> Self {
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

    /// Returns whether the token may be accepted, given the deadline `until`.
    fn is_good(&self, until: Option<Instant>) -> bool {
        until.is_some_and(|until| Instant::now() < until)
            && self.not_after.is_none_or(|end| SystemTime::now() < end)
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

impl TokenCache {
    /// Creates an empty cache. `ttl` applies to good tokens, `failure_ttl` to refused ones. A good
    /// token may be used for `stale_grace` beyond `ttl` while the upstream is down.
    pub(super) fn new(ttl: Duration, failure_ttl: Duration, stale_grace: Duration) -> Self {
        let moka_ttl = |ttl: Duration| ttl.min(MOKA_TTL_MAX);
        Self {
            identities: Cache::builder()
                .name("token-identities")
                .max_capacity(IDENTITIES_BYTES_MAX)
                .weigher(|_, identity: &Arc<CachedIdentity>| identity.weight())
                .time_to_live(moka_ttl(ttl.saturating_add(stale_grace)))
                .build(),
            refused: Cache::builder()
                .name("token-failures")
                .max_capacity(REFUSED_MAX)
                .time_to_live(moka_ttl(failure_ttl.max(Duration::from_secs(1))))
                .build(),
            recently_good: Cache::builder()
                .name("token-good")
                .max_capacity(RECENTLY_GOOD_MAX)
                .time_to_idle(RECENTLY_GOOD_IDLE_MAX)
                .build(),
            named: Cache::builder()
                .name("token-users")
                .max_capacity(NAMED_BYTES_MAX)
                .weigher(|_, identity: &Arc<CachedIdentity>| identity.weight())
                .time_to_live(NAMED_TTL)
                .build(),
            ttl,
            failure_ttl,
            stale_grace,
        }
    }

    /// Looks up a token.
    pub(super) fn get(&self, key: &TokenKey) -> Lookup {
        if let Some(identity) = self.identities.get(key)
            && identity.is_good(identity.fresh_until)
        {
            return Lookup::Fresh(identity);
        }
        match self.refused.get(key) {
            Some(until) if Instant::now() < until => Lookup::Refused,
            _ => Lookup::Miss,
        }
    }

    /// Returns a token that was good not long ago, and has not expired since.
    pub(super) fn recently_good(&self, key: &TokenKey) -> Option<GoodToken> {
        let good = self.recently_good.get(key)?;
        good.not_after.is_none_or(|end| SystemTime::now() < end).then_some(good)
    }

    /// Returns the user whom a review named, unless the token has expired since.
    pub(super) fn named(&self, key: &TokenKey) -> Option<Arc<User>> {
        let identity = self.named.get(key)?;
        let is_valid = identity.not_after.is_none_or(|end| SystemTime::now() < end);
        is_valid.then(|| Arc::clone(&identity.user))
    }

    /// Stores that the upstream accepted a token.
    pub(super) fn insert_recently_good(&self, key: TokenKey, token: GoodToken) {
        self.recently_good.insert(key, token);
    }

    /// Forgets that a token was good, because the upstream refused it. It is not stored as refused:
    /// an upstream that is starting refuses good tokens, too.
    pub(super) fn forget(&self, key: &TokenKey) {
        self.identities.invalidate(key);
        self.recently_good.invalidate(key);
        self.named.invalidate(key);
    }

    /// Returns an identity that may have expired, but may be used while the upstream is down.
    pub(super) fn get_stale(&self, key: &TokenKey) -> Option<Arc<CachedIdentity>> {
        let identity = self.identities.get(key)?;
        identity.is_good(identity.stale_until).then_some(identity)
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
        self.identities.insert(key, identity.clone());
        self.named.insert(key, identity.clone());
        let good =
            GoodToken { user: Some(identity.user.name_key()), not_after: identity.not_after };
        self.recently_good.insert(key, good);
        self.refused.invalidate(&key);
        identity
    }

    /// Stores that the token was refused. `requested_at` is when the review was sent.
    pub(super) fn insert_refused(&self, key: TokenKey, requested_at: Instant) {
        let Some(until) = requested_at.checked_add(self.failure_ttl) else { return };
        // A refused token must not be accepted again from the cache, even while the upstream is
        // down.
        self.identities.invalidate(&key);
        self.recently_good.invalidate(&key);
        self.named.invalidate(&key);
        self.refused.insert(key, until);
    }

    /// Returns the approximate numbers of good and of refused tokens, and the weight of the good
    /// ones in bytes.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.identities.entry_count(), self.refused.entry_count(), self.identities.weighted_size())
    }

    /// Runs moka's pending maintenance, so that the counts are exact.
    #[cfg(test)]
    pub(super) fn run_pending_tasks(&self) {
        self.identities.run_pending_tasks();
        self.refused.run_pending_tasks();
    }
}

/// The maximum total weight of users of good tokens; rarely used ones are evicted first. Enough for
/// 131,072 tokens without groups, or about 64,000 of service accounts.
pub(super) const IDENTITIES_BYTES_MAX: u64 = 64 << 20;
/// The weight of a cached identity besides its user's strings: the key, the user, moka's overhead.
const OVERHEAD_BYTES: usize = 512;
/// The maximum number of refused tokens, of about 256 bytes each (4 MiB). A client that sends more
/// different bad tokens has each of them reviewed.
pub(super) const REFUSED_MAX: u64 = 16 << 10;
/// The maximum number of recently good tokens, of about 200 bytes each (13 MiB): more than Weir has
/// users at once.
const RECENTLY_GOOD_MAX: u64 = 64 << 10;
/// How long a token counts as recently good after its last review: long enough for a controller
/// that sends a request every few minutes.
const RECENTLY_GOOD_IDLE_MAX: Duration = Duration::from_secs(900);
/// The maximum total weight of users for accounting: enough for 65,536 tokens without groups.
const NAMED_BYTES_MAX: u64 = 32 << 20;
/// How long a user counts for accounting after its last review. Lost groups show up late there,
/// which harms nobody.
const NAMED_TTL: Duration = Duration::from_secs(3600);
/// moka does not accept an arbitrary duration. No configuration needs a longer one.
const MOKA_TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
