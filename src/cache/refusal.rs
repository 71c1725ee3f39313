//! The reasons why a cache does not answer a request.

crate::api::labels! {
    /// The reason why a cache does not answer a request. The request is then forwarded.
    pub enum Refusal {
        /// The configuration excludes the resource, or the resource is never cached (events).
        Excluded = "excluded",
        /// The upstream does not serve the resource.
        Unknown = "unknown",
        /// An aggregated API server serves the resource, or discovery could not rule that out.
        Aggregated = "aggregated",
        /// The resource does not support list or watch.
        NotWatchable = "not-watchable",
        /// Weir's identity may not list the resource.
        Forbidden = "forbidden",
        /// The objects cannot be parsed, or their resourceVersions are not numbers.
        Unreadable = "unreadable",
        /// The byte budgets are exhausted.
        OverBudget = "over-budget",
        /// The cache did not become ready in time.
        NotReady = "not-ready",
        /// The cache could not be proved to be as fresh as requested in time.
        NotFresh = "not-fresh",
        /// Etcd has proved the cache wrong, and its successor is not checked yet.
        Quarantined = "quarantined",
        /// Weir is stopping.
        Stopping = "stopping",
    }
}
