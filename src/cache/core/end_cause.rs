//! Why a watch ended.

/// Why all watchers of a cache ended at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The state was replaced by a new list.
    Relist,
    /// The cache was stopped (idle, budget, excluded, shutdown).
    Stopped,
    /// The watcher fell out of the history window, or held its initial state for too long.
    Slow,
}
