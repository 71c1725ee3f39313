//! The outcomes of comparisons. The set is bounded, since they are values of labels.

use crate::server::delegate::Reason;

/// The outcome of one read in shadow mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The cache would have answered the same.
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

/// Why an answer cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Comparisons have used their share of the CPU, their memory or their places.
    Busy,
    /// The upstream answered 410.
    Expired,
    /// The upstream answered another error, or none.
    UpstreamError,
    /// The cache did not reach the state within the time for it.
    Slow,
    /// The cache began after the state, or its history no longer reaches it.
    BeforeCache,
    /// The cache listed again meanwhile, or the upstream's history was rewound.
    Relist,
    /// The client gave the answer up, or it broke off.
    Cut,
    /// The answer is longer than a copy may be.
    TooLarge,
    /// The answer names no state.
    Malformed,
    /// The answers differ, and the state could not be read again.
    Unconfirmed,
    /// It is a watch over a WebSocket.
    WebSocket,
    /// Weir would have refused the client because of a limit, or stops.
    Refused,
}

impl Outcome {
    /// Returns the label value.
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

impl Cause {
    /// Returns the label value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Expired => "expired",
            Self::UpstreamError => "upstream-error",
            Self::Slow => "slow",
            Self::BeforeCache => "before-cache",
            Self::Relist => "relist",
            Self::Cut => "cut",
            Self::TooLarge => "too-large",
            Self::Malformed => "malformed",
            Self::Unconfirmed => "unconfirmed",
            Self::WebSocket => "websocket",
            Self::Refused => "refused",
        }
    }
}

impl From<Cause> for Outcome {
    fn from(cause: Cause) -> Self {
        Self::NotComparable(cause)
    }
}
