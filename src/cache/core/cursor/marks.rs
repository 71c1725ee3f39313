//! Which events are marked for a watcher, and how far it has read: the part of a cursor that writer
//! and watcher share without a lock. `cursor.rs` describes the protocol.
//!
//! It uses nothing but atomics, so that tests/interleavings can run it with loom's.

use std::sync::atomic::{AtomicU64, Ordering};

/// The marks of one watcher, and its position.
#[derive(Debug)]
pub(crate) struct Marks {
    marked_from: AtomicU64,
    marked_to: AtomicU64,
    position: AtomicU64,
}

impl Marks {
    /// The events from `from` up to but not including `to` are pending.
    pub(super) fn new((from, to): (u64, u64)) -> Self {
        Self {
            marked_from: AtomicU64::new(from),
            marked_to: AtomicU64::new(to),
            position: AtomicU64::new(from),
        }
    }

    /// Marks the events from `first` to `last` as possible matches. Called by the writer with the
    /// cache's mutex held, before the events are published, with ascending numbers.
    pub(crate) fn mark(&self, (first, last): (u64, u64)) {
        if self.marked_to.load(Ordering::Relaxed) <= self.position.load(Ordering::Acquire) {
            self.marked_from.store(first, Ordering::Relaxed);
        }
        self.marked_to.store(last + 1, Ordering::Release);
    }

    /// Returns the number of the first pending event before `end`, the end of a state's history,
    /// and the number after the last one. Called by the watcher, after it loaded the state.
    pub(super) fn pending(&self, end: u64) -> Option<(u64, u64)> {
        let to = self.marked_to.load(Ordering::Acquire).min(end);
        let from =
            self.marked_from.load(Ordering::Relaxed).max(self.position.load(Ordering::Relaxed));
        (from < to).then_some((from, to))
    }

    /// Returns the number of the next event that the watcher reads.
    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Whether the watcher has read every marked event.
    pub(super) fn are_read(&self) -> bool {
        self.marked_to.load(Ordering::Acquire) <= self.position.load(Ordering::Relaxed)
    }

    /// Stores that every event before `seq` was read. Called by the watcher.
    pub(crate) fn set_position(&self, seq: u64) {
        self.position.store(seq, Ordering::Release);
    }
}
