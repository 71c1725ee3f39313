//! Detected rewinds of the upstream's history (etcd restored, or another cluster at the address).
//!
//! Each detected rewind starts a new generation. A state is valid only in the generation in which
//! it was listed.
//!
//! All caches of an upstream share one bound for the lost history: the highest resourceVersion that
//! any of them had seen before the rewind. The resourceVersions that clients send are compared with
//! it. A bound that is too high costs an unneeded list, a bound that is too low accepts a
//! resourceVersion of the lost history. A bound for each cache would be too low: a client may have
//! its resourceVersion from a forwarded list, which can be ahead of the cache of that resource.
//!
//! No locks but that of the channel.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::api::resource_version::ResourceVersion;

/// The generations of the upstream's history, and how far the lost ones had come.
pub(crate) struct UpstreamHistory {
    generation: watch::Sender<u64>,
    /// The highest resourceVersion that was seen in any generation.
    highest_seen: AtomicU64,
    /// The value of `highest_seen` at the last rewind.
    highest_lost: AtomicU64,
}

impl UpstreamHistory {
    /// Starts with generation 0.
    pub(crate) fn new() -> Self {
        Self {
            generation: watch::Sender::new(0),
            highest_seen: AtomicU64::new(0),
            highest_lost: AtomicU64::new(0),
        }
    }

    /// Returns the present generation, which is the number of detected rewinds.
    pub(crate) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Returns a receiver of the present generation.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Notes that the upstream has reached `resource_version`.
    pub(crate) fn observe(&self, resource_version: ResourceVersion) {
        self.highest_seen.fetch_max(resource_version.0, Ordering::Relaxed);
    }

    /// Starts a new generation after a rewind was detected. All caches are notified.
    pub(crate) fn rewind(&self) {
        self.highest_lost.fetch_max(self.highest_seen.load(Ordering::Relaxed), Ordering::Relaxed);
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Returns the highest resourceVersion that may belong to a lost generation, or `None` if no
    /// rewind was detected.
    pub(crate) fn highest_lost(&self) -> Option<ResourceVersion> {
        let lost = ResourceVersion(self.highest_lost.load(Ordering::Relaxed));
        (self.generation() > 0).then_some(lost)
    }
}
