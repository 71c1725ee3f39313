//! Why a watch ended.

/// The reason why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// A new list replaced the state.
    Relist,
    /// The state was proved wrong. The client may have received wrong events, and must list.
    Wrong,
    /// An aggregated API server serves the resource now. Its resourceVersions have nothing to do
    /// with those of the state, so that the client must list.
    Aggregated,
    /// The cache was stopped (idle, over budget, excluded, or shutdown).
    Stopped,
    /// An object that the watch may match cannot be read. The client resumes at the API server.
    Unreadable,
    /// The watcher fell out of the history window, or held its initial state for too long.
    Slow,
}
