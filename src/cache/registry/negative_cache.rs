//! Why caches could not be kept, remembered for a while: a resource that cannot be cached is not tried at every request, and is tried again
//! when things may have changed. Bounded in number; the least used are forgotten first.

use std::time::Duration;

use moka::future::Cache;
use tokio::time::Instant;

use crate::cache::key::CacheKey;
use crate::cache::refusal::Refusal;

/// See the module.
pub(crate) struct NegativeCache {
    refusals: Cache<CacheKey, (Refusal, Instant)>,
}

impl NegativeCache {
    /// Nothing remembered.
    pub(crate) fn new() -> Self {
        Self { refusals: Cache::new(REFUSALS_MAX) }
    }

    /// Remembers why a cache stopped, if the reason lasts.
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

    /// Why this cache is not to be had for now.
    pub(crate) async fn get(&self, key: &CacheKey) -> Option<Refusal> {
        let (refusal, until) = self.refusals.get(key).await?;
        (Instant::now() < until).then_some(refusal)
    }
}

/// Namespaces in requests are the clients' choice; so many refused ones are remembered.
const REFUSALS_MAX: u64 = 10_000;
/// Rights are granted while someone waits for it.
const FORBIDDEN_DURATION: Duration = Duration::from_secs(60);
/// What a resource's objects look like changes with its API server.
const UNREADABLE_DURATION: Duration = Duration::from_secs(300);
/// Long enough that a large resource is not listed over and over only to be given up.
const OVER_BUDGET_DURATION: Duration = Duration::from_secs(60);
/// Discovery and the upstream disagree while a CRD comes or goes; soon they do not.
const UNKNOWN_DURATION: Duration = Duration::from_secs(5);
