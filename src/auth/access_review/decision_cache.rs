//! Caches the decisions of access reviews.
//!
//! Allowed and denied decisions are cached separately, so that a client probing many resources
//! cannot evict other users' allowed decisions. Within each partition moka keeps what is used
//! often.
//!
//! The expiry times stored with the values are tokio's, which a test can pause. moka's own expiry
//! cannot be paused; it only removes values that have been useless for long.

use std::time::Duration;

use moka::sync::Cache;
use tokio::time::Instant;

use crate::api::keyed_hash::BuildKeyedHash;
use crate::auth::access_review::review::{ReviewDecision, ReviewKey};
use crate::config::AuthorizationConfig;

/// The decisions of finished reviews.
pub(super) struct DecisionCache {
    allowed: Partition,
    denied: Partition,
    grace: Duration,
}

/// The allowed or the denied decisions.
struct Partition {
    cache: Cache<ReviewKey, StoredDecision, BuildKeyedHash>,
    ttl: Duration,
}

#[derive(Clone)]
struct StoredDecision {
    decision: ReviewDecision,
    sent_at: Instant,
    expires_at: Instant,
}

/// A cached decision.
pub(super) enum CachedDecision {
    /// It has not expired.
    Fresh(ReviewDecision),
    /// It expired, less than `staleDecisionGrace` ago.
    Expired(ReviewDecision),
}

impl DecisionCache {
    /// Creates an empty cache.
    pub(super) fn new(config: &AuthorizationConfig) -> Self {
        let grace = config.stale_decision_grace;
        Self {
            allowed: Partition::new(ALLOWED_MAX_BYTES, config.allow_ttl, grace),
            denied: Partition::new(DENIED_MAX_BYTES, config.deny_ttl, grace),
            grace,
        }
    }

    /// Looks up a decision. One that allows counts only if it was reviewed after `last_revocation`
    /// had reached every API server.
    pub(super) fn find(
        &self,
        key: &ReviewKey,
        last_revocation: Option<Instant>,
    ) -> Option<CachedDecision> {
        let now = Instant::now();
        let allowed = match self.allowed(key, last_revocation) {
            Some(stored) if now < stored.expires_at => {
                return Some(CachedDecision::Fresh(stored.decision));
            }
            allowed => allowed,
        };
        // A key is never in both partitions: storing one decision removes the other.
        let stored = match self.denied.cache.get(key) {
            Some(denied) if now < denied.expires_at => {
                return Some(CachedDecision::Fresh(denied.decision));
            }
            denied => denied.or(allowed)?,
        };
        let is_usable = now < stored.expires_at + self.grace;
        is_usable.then_some(CachedDecision::Expired(stored.decision))
    }

    /// Returns when the decision expires; `None` if there is no fresh one. [`find`](Self::find)
    /// explains `last_revocation`.
    pub(super) fn fresh_until(
        &self,
        key: &ReviewKey,
        last_revocation: Option<Instant>,
    ) -> Option<Instant> {
        let stored = match self.allowed(key, last_revocation) {
            Some(stored) => stored,
            None => self.denied.cache.get(key)?,
        };
        (Instant::now() < stored.expires_at).then_some(stored.expires_at)
    }

    fn allowed(&self, key: &ReviewKey, last_revocation: Option<Instant>) -> Option<StoredDecision> {
        let stored = self.allowed.cache.get(key)?;
        let propagated = last_revocation.map(|revoked_at| revoked_at + RBAC_LAG_MAX);
        (!stored.decision.predates(stored.sent_at, propagated)).then_some(stored)
    }

    /// Stores the decision of a review. Its lifetime counts from the moment when the review was
    /// sent: a permission may have been revoked while the answer was on its way.
    pub(super) fn store(&self, key: &ReviewKey, decision: ReviewDecision, sent_at: Instant) {
        if !is_cached(key) {
            return;
        }
        let (partition, other) = if decision.allowed {
            (&self.allowed, &self.denied)
        } else {
            (&self.denied, &self.allowed)
        };
        other.cache.invalidate(key);
        let expires_at = sent_at + partition.ttl;
        let stored = StoredDecision { decision, sent_at, expires_at };
        partition.cache.insert(key.clone(), stored);
    }

    /// Returns the approximate memory of the allowed or the denied decisions.
    pub(super) fn bytes(&self, allowed: bool) -> u64 {
        let partition = if allowed { &self.allowed } else { &self.denied };
        partition.cache.weighted_size()
    }
}

impl Partition {
    fn new(max_bytes: u64, ttl: Duration, grace: Duration) -> Self {
        let cache = Cache::builder()
            .max_capacity(max_bytes)
            .weigher(|key, stored: &StoredDecision| weight(key, stored.decision.reason.len()))
            .time_to_live(ttl + grace + Duration::from_secs(1))
            .build_with_hasher(BuildKeyedHash::default());
        Self { cache, ttl }
    }
}

/// Whether the result of a review is cached.
pub(super) fn is_cached(key: &ReviewKey) -> bool {
    key.attributes.weight_bytes() < CACHED_ATTRIBUTES_MAX_BYTES
}

/// Returns the memory of a decision.
pub(super) fn weight(key: &ReviewKey, reason_bytes: usize) -> u32 {
    let bytes = OVERHEAD_BYTES + key.attributes.weight_bytes() + reason_bytes;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reviews with longer attributes are not cached, as in the API server's cache of webhook
/// decisions: they would only serve to fill the cache. Unlike there, this counts the memory of the
/// parsed parts and not only the text.
const CACHED_ATTRIBUTES_MAX_BYTES: usize = 10_000;
/// Memory of a cached decision besides the strings and lists of its attributes: the key, the fields
/// of the attributes, allocations, and moka's own bookkeeping. It also bounds the number of
/// decisions.
const OVERHEAD_BYTES: usize = 512;
/// About 50,000 decisions with attributes of ordinary length.
pub(super) const ALLOWED_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Clients that know their permissions cause few denials.
pub(super) const DENIED_MAX_BYTES: u64 = 8 * 1024 * 1024;
/// How far the RBAC cache of the reviewing API server may lag behind Weir's. All follow the same
/// objects by watches, but not equally fast. A decision reviewed within this time after a
/// revocation answers the requests that waited for it and is not used from the cache.
pub(crate) const RBAC_LAG_MAX: Duration = Duration::from_secs(1);
