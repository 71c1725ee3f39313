//! The proofs of freshness of one cache that are in progress.
//!
//! Invariant: at most one list of a cache is in progress, and few short watches
//! ([`ShortWatches`]).
//!
//! No locks but `demand`, and those of the probes, of [`SingleFlight`] and of [`ShortWatches`],
//! each by itself.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::cache::metrics::CacheMetrics;
use crate::cache::progress::Probes;
use crate::cache::proof::demand::Demand;
use crate::cache::proof::listed_state::ListProof;
use crate::cache::proof::short_watches::ShortWatches;
use crate::tasks::single_flight::SingleFlight;
use crate::upstream::lister_watcher::ListWatch;

/// The proofs of one cache.
pub(crate) struct ProofState {
    /// The probes of the upstream's resourceVersion.
    pub(crate) probes: Arc<Probes>,
    /// The demand for consistent lists.
    pub(super) demand: Mutex<Demand>,
    /// The list in progress.
    pub(super) lists: SingleFlight<(), ListProof>,
    /// The short watches in progress.
    pub(super) short_watches: ShortWatches,
    /// The highest resourceVersion that a short watch has proved.
    pub(super) proven_by_watch: AtomicU64,
}

impl ProofState {
    /// Creates the state of a cache that is filled from `upstream`. Probes run as tasks of `tasks`.
    pub(crate) fn new(
        upstream: Arc<dyn ListWatch>,
        tasks: TaskTracker,
        metrics: CacheMetrics,
    ) -> Self {
        Self {
            probes: Arc::new(Probes::new(upstream, tasks, metrics)),
            demand: Mutex::default(),
            lists: SingleFlight::default(),
            short_watches: ShortWatches::default(),
            proven_by_watch: AtomicU64::new(0),
        }
    }
}
