//! Why a watch ended.

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// A new list replaced the state.
    Relist,
    /// The cache was stopped (idle, over budget, excluded, or shutdown).
    Stopped,
    /// The watcher fell out of the history window, or held its initial state for too long.
    Slow,
}
