//! The reasons why a cache does not answer a request.

/// The reason why a cache does not answer a request. The request is then forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The configuration excludes the resource, or the resource is never cached (events).
    Excluded,
    /// The upstream does not serve the resource.
    Unknown,
    /// An aggregated API server serves the resource, or discovery could not rule that out.
    Aggregated,
    /// The resource does not support list or watch.
    NotWatchable,
    /// Weir's identity may not list the resource.
    Forbidden,
    /// The objects cannot be parsed, or their resourceVersions are not numbers.
    Unreadable,
    /// The byte budgets are exhausted.
    OverBudget,
    /// The cache did not become ready in time.
    NotReady,
    /// The cache could not be proved to be as fresh as requested in time.
    NotFresh,
    /// Etcd has proved the cache wrong, and its successor is not checked yet.
    Quarantined,
    /// Weir is stopping.
    Stopping,
}

impl Refusal {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 11] = [
        Self::Excluded,
        Self::Unknown,
        Self::Aggregated,
        Self::NotWatchable,
        Self::Forbidden,
        Self::Unreadable,
        Self::OverBudget,
        Self::NotReady,
        Self::NotFresh,
        Self::Quarantined,
        Self::Stopping,
    ];

    /// Returns the value for the `X-Weir-Cache` header and for metrics, such as `not-fresh`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::Unknown => "unknown",
            Self::Aggregated => "aggregated",
            Self::NotWatchable => "not-watchable",
            Self::Forbidden => "forbidden",
            Self::Unreadable => "unreadable",
            Self::OverBudget => "over-budget",
            Self::NotReady => "not-ready",
            Self::NotFresh => "not-fresh",
            Self::Quarantined => "quarantined",
            Self::Stopping => "stopping",
        }
    }
}
