//! The negative cache: why resources could not be cached.
//!
//! A refusal is stored for a while, so that a resource that cannot be cached is not tried again for
//! every request, and is tried again when the reason may have changed. The number of refusals is
//! bounded; the least used are evicted first.

use std::time::Duration;

use moka::future::Cache;
use tokio::time::Instant;

use crate::cache::key::CacheKey;
use crate::cache::refusal::Refusal;

/// The stored refusals.
pub(crate) struct NegativeCache {
    refusals: Cache<CacheKey, (Refusal, Instant)>,
}

impl NegativeCache {
    /// Creates an empty negative cache.
    pub(crate) fn new() -> Self {
        Self { refusals: Cache::new(REFUSALS_MAX) }
    }

    /// Stores why a cache stopped, if the reason lasts.
    pub(crate) async fn insert(&self, key: &CacheKey, refusal: Refusal) {
        let duration = match refusal {
            Refusal::Unreadable | Refusal::NotWatchable => UNREADABLE_DURATION,
            Refusal::Forbidden => FORBIDDEN_DURATION,
            Refusal::OverBudget => OVER_BUDGET_DURATION,
            Refusal::Unknown => UNKNOWN_DURATION,
            Refusal::Excluded
            | Refusal::Aggregated
            | Refusal::NotReady
            | Refusal::NotFresh
            | Refusal::Stopping => return,
        };
        self.refusals.insert(key.clone(), (refusal, Instant::now() + duration)).await;
    }

    /// Returns the stored refusal of a cache, if it is still valid.
    pub(crate) async fn get(&self, key: &CacheKey) -> Option<Refusal> {
        let (refusal, until) = self.refusals.get(key).await?;
        (Instant::now() < until).then_some(refusal)
    }
}

/// The largest number of refusals. Clients choose the namespaces in requests, so the number must be
/// bounded.
const REFUSALS_MAX: u64 = 10_000;
/// Short, because an operator who has just granted Weir's identity the permission waits for the
/// effect.
const FORBIDDEN_DURATION: Duration = Duration::from_secs(60);
/// The form of a resource's objects changes only with its API server.
const UNREADABLE_DURATION: Duration = Duration::from_secs(300);
/// Long enough that a large resource is not listed again and again without success.
const OVER_BUDGET_DURATION: Duration = Duration::from_secs(60);
/// Discovery and the upstream disagree only for a moment, while a CRD is created or deleted.
const UNKNOWN_DURATION: Duration = Duration::from_secs(5);
