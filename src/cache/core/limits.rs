//! The size limits of a cache's event history.

use std::time::Duration;

/// How far the history reaches (semantics.md §5.9), bounded in bytes too; where they meet, bytes win.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// The smallest capacity, in events.
    pub events_min: usize,
    /// The largest capacity, in events.
    pub events_max: usize,
    /// The age under which the oldest event makes a full window grow.
    pub age: Duration,
    /// The most that objects kept only by the history may weigh, in bytes.
    pub bytes_max: usize,
}
