//! The names of the rules.

/// A habit that costs more than it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// The same list again and again, without a watch.
    PollList,
    /// A list without a resourceVersion.
    UnsetList,
    /// A large list without a limit, for which the API server reads etcd.
    UnpagedList,
    /// An informer that lists again and again.
    RelistLoop,
    /// Watches that end after a short time.
    WatchChurn,
    /// Large lists that are not compressed.
    NoGzip,
    /// JSON where the client could read protobuf.
    Json,
}

impl Rule {
    /// All, in the order in which they are shown for equal weights.
    pub const ALL: [Self; 7] = [
        Self::PollList,
        Self::UnsetList,
        Self::UnpagedList,
        Self::RelistLoop,
        Self::WatchChurn,
        Self::NoGzip,
        Self::Json,
    ];

    /// Returns the name, as in the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PollList => "poll-list",
            Self::UnsetList => "unset-list",
            Self::UnpagedList => "unpaged-list",
            Self::RelistLoop => "relist-loop",
            Self::WatchChurn => "watch-churn",
            Self::NoGzip => "no-gzip",
            Self::Json => "json",
        }
    }
}
