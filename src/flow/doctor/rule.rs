//! The names of the rules, and of the weights of their findings.

weir_api::labels! {
    /// A habit that costs more than it must.
    pub enum Rule {
        /// The same list again and again, without a watch.
        PollList = "poll-list",
        /// A list without a resourceVersion.
        UnsetList = "unset-list",
        /// A large list without a limit, for which the API server reads etcd.
        UnpagedList = "unpaged-list",
        /// An informer that lists again and again.
        RelistLoop = "relist-loop",
        /// The same object again and again, without a watch.
        PollGet = "poll-get",
        /// Watches that end after a short time.
        WatchChurn = "watch-churn",
        /// Watches that are begun again at a resourceVersion that was answered with 410.
        DeadWatch = "dead-watch",
        /// Several watches that show the same to one process.
        TwinWatches = "twin-watches",
        /// A program on each node that reads the pods of all nodes.
        NodeAgent = "node-agent",
        /// Requests that come again before the `Retry-After` of their refusal is over.
        Retries = "retries",
        /// An API that the API server says is deprecated.
        Deprecated = "deprecated",
        /// Large lists that are not compressed.
        NoGzip = "no-gzip",
        /// JSON where the client could read protobuf.
        Json = "json",
        /// Whole objects, where metadata may be enough.
        WholeObjects = "whole-objects",
        /// No user agent, or only that of a library.
        NoAgent = "no-agent",
    }
}

weir_api::labels! {
    /// The weight of a finding.
    pub enum Weight {
        /// A hint.
        Info = "info",
        /// It costs the API server something all the time.
        Warning = "warning",
        /// It costs the API server a good part of a processor.
        Critical = "critical",
    }
}

impl Rule {
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
