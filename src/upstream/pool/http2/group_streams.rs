//! The streams in use of a group of connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The streams in use of a group, over all of its connections.
#[derive(Default)]
pub(super) struct GroupStreams {
    in_use: AtomicUsize,
    /// Notified when a stream may have become available.
    pub(super) freed: Notify,
}

impl GroupStreams {
    /// Returns the number of streams in use, those of draining connections included.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Takes a stream.
    pub(super) fn take(&self) {
        self.in_use.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a stream back.
    pub(super) fn give_back(&self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        self.freed.notify_one();
    }
}
