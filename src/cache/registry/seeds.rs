//! The state of seeding, and the reasons for which another Weir gets nothing
//! (`docs/decisions/seeding-from-siblings.md`). No locks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cache::handle::CacheHandle;

/// The state of seeding: the lists for siblings, and the trust in theirs.
pub(super) struct Seeds {
    /// The permits of lists that are being sent.
    pub(super) slots: Arc<Semaphore>,
    /// Whether Weir is stopping.
    pub(super) is_stopping: AtomicBool,
    /// Whether a cache that was filled from a sibling was proved wrong.
    pub(super) is_distrusted: AtomicBool,
}

impl Default for Seeds {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(SEEDS_MAX)),
            is_stopping: AtomicBool::new(false),
            is_distrusted: AtomicBool::new(false),
        }
    }
}

/// A cache that may be sent to a sibling.
pub(crate) struct SeedSource {
    /// The cache.
    pub(crate) handle: CacheHandle,
    /// The uid of the cluster.
    pub(crate) cluster: String,
    /// The API server's release.
    pub(crate) release: String,
    /// Held until the list was sent.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Why a sibling gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeedRefusal {
    /// It stores objects in another form.
    Version,
    /// It asks for something else than a whole collection.
    Options,
    /// There is no such cache.
    Absent,
    /// The cache is not complete, or its watch is closed.
    Unready,
    /// The cache was filled from a sibling and neither listed since nor compared byte by byte, or a
    /// comparison found a difference.
    Unverified,
    /// The cache is too large to be sent in time.
    Large,
    /// The cache was proved wrong.
    Quarantined,
    /// Other siblings are being served.
    Busy,
    /// The cluster or the release of its API server is not known.
    Unidentified,
    /// Weir is stopping.
    Stopping,
}

impl SeedRefusal {
    /// Returns the value of the `outcome` label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Options => "options",
            Self::Absent => "absent",
            Self::Unready => "unready",
            Self::Unverified => "unverified",
            Self::Large => "large",
            Self::Quarantined => "quarantined",
            Self::Busy => "busy",
            Self::Unidentified => "unidentified",
            Self::Stopping => "stopping",
        }
    }
}

/// The lists that are sent at a time. Each reads all objects once for its digest.
const SEEDS_MAX: usize = 2;
