//! The names of the rules, and of the weights of their findings.

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
    /// The same object again and again, without a watch.
    PollGet,
    /// Watches that end after a short time.
    WatchChurn,
    /// Watches that are begun again at a resourceVersion that was answered with 410.
    DeadWatch,
    /// Several watches that show the same to one process.
    TwinWatches,
    /// A program on each node that reads the pods of all nodes.
    NodeAgent,
    /// Requests that come again before the `Retry-After` of their refusal is over.
    Retries,
    /// An API that the API server says is deprecated.
    Deprecated,
    /// Large lists that are not compressed.
    NoGzip,
    /// JSON where the client could read protobuf.
    Json,
    /// Whole objects, where metadata may be enough.
    WholeObjects,
    /// No user agent, or only that of a library.
    NoAgent,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weight {
    /// A hint.
    Info,
    /// It costs the API server something all the time.
    Warning,
    /// It costs the API server a good part of a processor.
    Critical,
}

impl Rule {
    /// All, in the order in which they are shown for equal weights.
    pub const ALL: [Self; 15] = [
        Self::PollList,
        Self::UnsetList,
        Self::UnpagedList,
        Self::RelistLoop,
        Self::PollGet,
        Self::WatchChurn,
        Self::DeadWatch,
        Self::TwinWatches,
        Self::NodeAgent,
        Self::Retries,
        Self::Deprecated,
        Self::NoGzip,
        Self::Json,
        Self::WholeObjects,
        Self::NoAgent,
    ];

    /// Returns the name, as in the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PollList => "poll-list",
            Self::UnsetList => "unset-list",
            Self::UnpagedList => "unpaged-list",
            Self::RelistLoop => "relist-loop",
            Self::PollGet => "poll-get",
            Self::WatchChurn => "watch-churn",
            Self::DeadWatch => "dead-watch",
            Self::TwinWatches => "twin-watches",
            Self::NodeAgent => "node-agent",
            Self::Retries => "retries",
            Self::Deprecated => "deprecated",
            Self::NoGzip => "no-gzip",
            Self::Json => "json",
            Self::WholeObjects => "whole-objects",
            Self::NoAgent => "no-agent",
        }
    }

    /// Returns what it is called for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::PollList => "lists again and again instead of watching",
            Self::UnsetList => "lists without a resourceVersion",
            Self::UnpagedList => "lists much without pages",
            Self::RelistLoop => "informer lists again and again",
            Self::PollGet => "gets the same object again and again instead of watching",
            Self::WatchChurn => "watches end after a short time",
            Self::DeadWatch => "watches again from a resourceVersion that is too old",
            Self::TwinWatches => "several watches of the same in one process",
            Self::NodeAgent => "reads the pods of all nodes on each node",
            Self::Retries => "comes back before Retry-After",
            Self::Deprecated => "uses a deprecated API",
            Self::NoGzip => "large lists without gzip",
            Self::Json => "JSON where protobuf would do",
            Self::WholeObjects => "whole objects where metadata may be enough",
            Self::NoAgent => "no user agent of its own",
        }
    }

    /// Whether it is about all that a client does, not about one resource.
    pub(super) fn is_of_client(self) -> bool {
        self == Self::NoAgent
    }
}

impl Weight {
    /// All.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Returns the name, as in the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}
