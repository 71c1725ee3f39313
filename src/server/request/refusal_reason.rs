//! The reasons for which Weir itself refuses a request. The set is bounded, since they are values
//! of the label `reason`; the live page and `docs/reference/headers.md` explain each of them.

use crate::server::delegate::Reason;

/// The reason for which Weir refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// The method is CONNECT.
    Connect,
    /// Another proxy or the API server could parse the request differently.
    Framing,
    /// The request came back to the Weir that forwarded it.
    Loop,
    /// The Host is not one that Weir answers to.
    Host,
    /// The client is nobody whom the API server knows.
    Unauthenticated,
    /// Weir cannot determine who the client is, or cannot forward its identity.
    Identity,
    /// Too many unknown tokens of one address are under review.
    Throttled,
    /// Too many access reviews are pending.
    Reviews,
    /// The user may not do this.
    Forbidden,
    /// The client has too many requests to the API server.
    Quota,
    /// The user has too many connections.
    Connections,
    /// Too many bytes wait for their clients to read them.
    ResponseMemory,
    /// No API server is usable.
    UpstreamAway,
    /// Flow control, a rule or Weir's own overload sheds it: `X-Weir-Shed` has more.
    Shed,
    /// Too many requests are forwarded for this reason.
    Forward(Reason),
}

impl RefusalReason {
    /// All but those of forwarded requests.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 14] = [
        Self::Connect,
        Self::Framing,
        Self::Loop,
        Self::Host,
        Self::Unauthenticated,
        Self::Identity,
        Self::Throttled,
        Self::Reviews,
        Self::Forbidden,
        Self::Quota,
        Self::Connections,
        Self::ResponseMemory,
        Self::UpstreamAway,
        Self::Shed,
    ];

    /// Returns the value of the label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Framing => "framing",
            Self::Loop => "loop",
            Self::Host => "host",
            Self::Unauthenticated => "unauthenticated",
            Self::Identity => "identity",
            Self::Throttled => "throttled",
            Self::Reviews => "reviews",
            Self::Forbidden => "forbidden",
            Self::Quota => "quota",
            Self::Connections => "connections",
            Self::ResponseMemory => "response-memory",
            Self::UpstreamAway => "upstream-away",
            Self::Shed => "shed",
            Self::Forward(reason) => reason.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed() {
        let named = include_str!("refusal_reason.rs").matches(" => \"").count();
        assert_eq!(named, RefusalReason::ALL.len());
    }
}
