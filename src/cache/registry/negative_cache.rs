//! The negative cache: why resources could not be cached.
//!
//! A refusal is stored for a while, so that a resource that cannot be cached is not tried again for
//! every request, and is tried again when the reason may have changed. The number of refusals is
//! bounded; the least used are evicted first.
//!
//! A 403 is first kept for a moment only, because an API server that starts refuses what it allows
//! later; each further one is kept for twice as long. So is what cannot be parsed: an API server,
//! or what stands before it, may send malformed responses for a while.

use std::time::Duration;

use moka::sync::Cache;
use tokio::time::Instant;

use crate::cache::key::CacheKey;
use crate::cache::refusal::Refusal;

/// The stored refusals.
pub(crate) struct NegativeCache {
    refusals: Cache<CacheKey, StoredRefusal>,
}

/// A refusal that is or was stored.
#[derive(Clone, Copy, Debug)]
struct StoredRefusal {
    refusal: Refusal,
    until: Instant,
    duration: Duration,
}

impl NegativeCache {
    /// Creates an empty negative cache.
    pub(crate) fn new() -> Self {
        Self { refusals: Cache::new(REFUSALS_MAX) }
    }

    /// Stores why a cache stopped, if the reason lasts. `attempts` is how often in a row a cache of
    /// this key exceeded a byte budget.
    pub(crate) fn insert(&self, key: &CacheKey, refusal: Refusal, attempts: u32) {
        let duration = match refusal {
            Refusal::NotWatchable => NOT_WATCHABLE_DURATION,
            Refusal::Unreadable => self.doubled(key, refusal, UNREADABLE_DURATIONS),
            Refusal::Forbidden => self.doubled(key, refusal, FORBIDDEN_DURATIONS),
            Refusal::OverBudget => {
                OVER_BUDGET_DURATION * (1 << attempts.saturating_sub(1).min(OVER_BUDGET_DOUBLINGS))
            }
            Refusal::Unknown => UNKNOWN_DURATION,
            Refusal::Excluded
            | Refusal::Aggregated
            | Refusal::NotReady
            | Refusal::NotFresh
            | Refusal::Quarantined
            | Refusal::Stopping => return,
        };
        let until = Instant::now() + duration;
        self.refusals.insert(key.clone(), StoredRefusal { refusal, until, duration });
    }

    /// Returns the stored refusal of a cache, if it is still valid.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<Refusal> {
        let stored = self.refusals.get(key)?;
        (Instant::now() < stored.until).then_some(stored.refusal)
    }

    /// Whether a cache was refused before, also if that is over.
    pub(crate) fn was_refused(&self, key: &CacheKey) -> bool {
        self.refusals.contains_key(key)
    }

    /// Forgets the refusals of a cache that has a state now.
    pub(crate) fn forget(&self, key: &CacheKey) {
        self.refusals.invalidate(key);
    }

    /// Forgets all refusals.
    pub(crate) fn clear(&self) {
        self.refusals.invalidate_all();
    }

    /// Returns how long the next refusal of a cache is kept: for twice as long as the last one if
    /// that had the same reason, within the durations of that reason.
    fn doubled(
        &self,
        key: &CacheKey,
        refusal: Refusal,
        Durations { min, max }: Durations,
    ) -> Duration {
        match self.refusals.get(key) {
            Some(last) if last.refusal == refusal => last.duration.saturating_mul(2).min(max),
            _ => min,
        }
    }
}

/// The times for which the first of equal refusals is kept, and a later one at most.
#[derive(Clone, Copy)]
struct Durations {
    min: Duration,
    max: Duration,
}

/// The largest number of refusals. Clients choose the namespaces in requests, so the number must be
/// bounded.
const REFUSALS_MAX: u64 = 10_000;
const FORBIDDEN_DURATIONS: Durations = Durations {
    // The API server may be starting.
    min: Duration::from_secs(2),
    // Short, because an operator who has just granted Weir's identity the permission waits for the
    // effect.
    max: Duration::from_secs(60),
};
const UNREADABLE_DURATIONS: Durations = Durations {
    // Responses were malformed for a while only, where the objects of a resource can be parsed.
    min: Duration::from_secs(5),
    // The form of a resource's objects changes only with its API server.
    max: Duration::from_secs(300),
};
/// Whether a resource can be watched changes only with its API server.
const NOT_WATCHABLE_DURATION: Duration = Duration::from_secs(300);
/// Long enough that a large resource is not listed again and again without success.
const OVER_BUDGET_DURATION: Duration = Duration::from_secs(60);
/// The number of doublings of that time while the resource stays large: each attempt may read as
/// much of it as a cache may hold.
const OVER_BUDGET_DOUBLINGS: u32 = 3;
/// Discovery and the upstream disagree only for a moment, while a CRD is created or deleted.
const UNKNOWN_DURATION: Duration = Duration::from_secs(5);
