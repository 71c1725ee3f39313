//! The part that all caches of one upstream share: configuration, budgets, limits and tasks.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::resource::Scope;
use crate::cache::budget::Budget;
use crate::cache::clock::Clock;
use crate::cache::cluster_identity::ClusterIdentity;
use crate::cache::floors::Floors;
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheMetrics;
use crate::cache::shard_support::KnownShardSupport;
use crate::cache::upstream_history::UpstreamHistory;
use crate::cache::watch_list_support::WatchListSupport;
use crate::config::CacheConfig;
use crate::config::seams::Seams;
use crate::upstream::availability::Availability;

/// The part that all caches of one upstream share.
pub(crate) struct CacheContext {
    /// The configuration of the caches, which a reload replaces.
    config: ArcSwap<CacheConfig>,
    /// Constants of the caches.
    pub(crate) seams: Seams,
    /// The metrics of the caches.
    pub(crate) metrics: CacheMetrics,
    /// The byte budgets.
    pub(crate) budget: Budget,
    /// Whether the upstream supports watch-lists.
    pub(crate) watch_list: WatchListSupport,
    /// Whether the upstream knows shard selectors.
    pub(crate) shard_support: KnownShardSupport,
    /// Limits the lists of reflectors that run at the same time.
    list_slots: Semaphore,
    /// The same for the resources that other answers depend on ([`CacheKey::is_needed_first`]).
    first_list_slots: Semaphore,
    /// Limits the lists for proofs of freshness that run at the same time.
    pub(crate) proof_lists: Semaphore,
    /// Limits the watches for proofs of freshness that run at the same time.
    pub(crate) proof_watches: Semaphore,
    /// The detected rewinds of the upstream's history. After each, every cache starts again.
    pub(crate) history: Arc<UpstreamHistory>,
    /// The identity of the upstream's cluster.
    pub(crate) cluster: ClusterIdentity,
    /// The progress of the caches of each resource.
    pub(crate) floors: Floors,
    /// All tasks of the caches.
    pub(crate) tasks: TaskTracker,
    /// Cancelled at shutdown.
    pub(crate) cancel: CancellationToken,
    /// The clock of the caches.
    pub(crate) clock: Clock,
    /// Whether the upstream is away.
    pub(crate) availability: Availability,
}

impl CacheContext {
    /// Creates the shared part for one upstream.
    pub(crate) fn new(
        config: Arc<CacheConfig>,
        seams: Seams,
        metrics: CacheMetrics,
        availability: Availability,
    ) -> Self {
        Self {
            budget: Budget::new(config.resource_bytes_max, config.total_bytes_max),
            config: ArcSwap::new(config),
            seams,
            metrics,
            watch_list: WatchListSupport::default(),
            shard_support: KnownShardSupport::default(),
            list_slots: Semaphore::new(LISTS_MAX),
            first_list_slots: Semaphore::new(FIRST_LISTS_MAX),
            proof_lists: Semaphore::new(PROOF_LISTS_MAX),
            proof_watches: Semaphore::new(PROOF_WATCHES_MAX),
            history: Arc::new(UpstreamHistory::new()),
            cluster: ClusterIdentity::default(),
            floors: Floors::default(),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
            clock: Clock::start(),
            availability,
        }
    }

    /// Returns the present configuration of the caches.
    pub(crate) fn config(&self) -> Guard<Arc<CacheConfig>> {
        self.config.load()
    }

    /// Replaces the configuration, and the limits that follow from it.
    pub(crate) fn reconfigure(&self, config: Arc<CacheConfig>) {
        self.budget.set_limits(config.resource_bytes_max, config.total_bytes_max);
        self.metrics.limits(config.resource_bytes_max, config.total_bytes_max);
        self.config.store(config);
    }

    /// Returns what limits the lists of the reflector of `key` that run at the same time.
    pub(crate) fn list_slots_of(&self, key: &CacheKey) -> &Semaphore {
        if key.is_needed_first() { &self.first_list_slots } else { &self.list_slots }
    }

    /// Whether the configuration keeps the cache of `key` running without users.
    pub(crate) fn is_warm(&self, key: &CacheKey) -> bool {
        key.scope == Scope::Cluster && self.config().warm.contains(&key.gvr)
    }
}

/// Lists that run at the same time. A list of a large resource takes a share of the upstream's CPU
/// and of Weir's memory: many warm resources at the start, or all caches after a rewound history,
/// must not list at once.
const LISTS_MAX: usize = 8;
/// Lists of the resources that other answers depend on. They do not wait for the others.
const FIRST_LISTS_MAX: usize = 4;
/// Lists for proofs of freshness that run at the same time, of all caches. Each is of a small
/// collection and takes some ten milliseconds.
const PROOF_LISTS_MAX: usize = 8;
/// Watches for proofs of freshness that are open at the same time, of all caches. Each has a
/// connection of its own for three seconds.
const PROOF_WATCHES_MAX: usize = 64;
