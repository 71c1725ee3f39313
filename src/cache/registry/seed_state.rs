//! The state of seeding (`docs/decisions/seeding-from-siblings.md`). No locks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;

/// The state of seeding: the lists for siblings, and the trust in theirs.
pub(super) struct SeedState {
    /// The permits of lists that are being encoded.
    pub(super) slots: Arc<Semaphore>,
    /// Whether Weir is stopping.
    pub(super) is_stopping: AtomicBool,
    /// Whether a cache that was filled from a sibling was proved wrong.
    pub(super) is_distrusted: AtomicBool,
}

impl Default for SeedState {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(SEEDS_MAX)),
            is_stopping: AtomicBool::new(false),
            is_distrusted: AtomicBool::new(false),
        }
    }
}

/// The lists that are encoded at a time. Each reads all objects once for its digest.
const SEEDS_MAX: usize = 2;
