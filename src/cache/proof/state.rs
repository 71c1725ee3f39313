//! The proofs of freshness of one cache that are in progress.
//!
//! Invariant: at most one list and one short watch of a cache are in progress.
//!
//! No locks but those of the probes and of [`SingleFlight`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio_util::task::TaskTracker;

use crate::cache::metrics::CacheMetrics;
use crate::cache::progress::Probes;
use crate::cache::proof::list_watch::DynListWatch;
use crate::cache::proof::listed_state::ListProof;
use crate::tasks::single_flight::SingleFlight;

/// The proofs of one cache.
pub(crate) struct ProofState {
    /// The upstream of the lists and watches.
    pub(super) upstream: Arc<dyn DynListWatch>,
    /// The probes of the upstream's resourceVersion.
    pub(crate) probes: Arc<Probes>,
    /// The list in progress.
    pub(super) lists: SingleFlight<(), ListProof>,
    /// The short watch in progress. Its result is whether a bookmark arrived.
    pub(super) watches: SingleFlight<(), bool>,
    /// The highest resourceVersion that a short watch has proved.
    pub(super) proven_by_watch: AtomicU64,
}

impl ProofState {
    /// Creates the state of a cache that is filled from `upstream`. Probes run as tasks of `tasks`.
    pub(crate) fn new(
        upstream: Arc<dyn DynListWatch>,
        tasks: TaskTracker,
        metrics: CacheMetrics,
    ) -> Self {
        Self {
            probes: Arc::new(Probes::new(upstream.clone(), tasks, metrics)),
            upstream,
            lists: SingleFlight::default(),
            watches: SingleFlight::default(),
            proven_by_watch: AtomicU64::new(0),
        }
    }
}
