//! The size limits of a cache's event history.

use std::time::Duration;

/// The limits of the history's window, in events (`docs/semantics.md` §5.9) and in bytes. The
/// smaller one applies.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// The smallest capacity, in events.
    pub events_min: usize,
    /// The largest capacity, in events.
    pub events_max: usize,
    /// A full window grows while its oldest event is younger than this.
    pub age: Duration,
    /// The limit in bytes for data that only the history keeps alive.
    pub bytes_max: usize,
    /// The number of the first event that a watcher has still to read; `u64::MAX` for none. The
    /// events from there on stay beyond the other limits, up to `unread_bytes_max`.
    pub unread_from: u64,
    /// The limit in bytes of the history while a watcher has events to read.
    pub unread_bytes_max: usize,
}
