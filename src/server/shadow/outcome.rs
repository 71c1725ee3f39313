//! The outcomes of comparisons, and their metric. The set is bounded, since they are values of
//! labels.

use prometheus::IntCounterVec;

use crate::server::delegate::Reason;
use crate::telemetry::metrics::families;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Equal,
    /// The cache would have answered something else, and the upstream repeated its answer.
    Different,
    /// The answers differ, and so do two answers of the upstream for the same state.
    UpstreamInconsistent,
    /// There is nothing to compare the answer with.
    NotComparable(Cause),
    /// A cache would have forwarded it.
    NotHeld(Reason),
}

crate::api::labels! {
    /// Why an answer cannot be compared.
    pub(crate) enum Cause {
        /// Comparisons have used their share of the CPU, their memory or their places.
        Busy = "busy",
        /// The upstream answered 410.
        Expired = "expired",
        /// The upstream answered another error, or none.
        UpstreamError = "upstream-error",
        /// The cache did not reach the state within the time for it.
        Slow = "slow",
        /// The cache began after the state, or its history no longer reaches it.
        BeforeCache = "before-cache",
        /// The cache listed again meanwhile, or the upstream's history was rewound.
        Relist = "relist",
        /// The client gave the answer up, or it broke off.
        Cut = "cut",
        /// The answer is longer than a copy may be.
        TooLarge = "too-large",
        /// The answer names no state.
        Malformed = "malformed",
        /// The answers differ, and the state could not be read again, or it is an event of a
        /// watch.
        Unconfirmed = "unconfirmed",
        /// It is a watch over a WebSocket.
        WebSocket = "websocket",
        /// Weir would have refused the client because of a limit, or stops.
        Refused = "refused",
    }
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "different",
            Self::UpstreamInconsistent => "upstream-inconsistent",
            Self::NotComparable(_) => "not-comparable",
            Self::NotHeld(_) => "not-held",
        }
    }

    /// Returns the label value of the reason; empty where there is none.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Equal | Self::Different | Self::UpstreamInconsistent => "",
            Self::NotComparable(cause) => cause.as_str(),
            Self::NotHeld(reason) => reason.as_str(),
        }
    }
}

impl From<Cause> for Outcome {
    fn from(cause: Cause) -> Self {
        Self::NotComparable(cause)
    }
}

families! {
    /// Metrics of shadow mode. Cheap to clone: clones share the metrics.
    #[derive(Clone, Debug)]
    pub struct ShadowMetrics {
        /// Reads in shadow mode, by the outcome of the comparison with the cache.
        total: IntCounterVec = counter_vec("weir_shadow_total", &["verb", "outcome", "reason"]),
    }
}

impl ShadowMetrics {
    pub(crate) fn count(&self, verb: &str, outcome: Outcome) {
        self.total.with_label_values(&[verb, outcome.as_str(), outcome.reason()]).inc();
    }
}
