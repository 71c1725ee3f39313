//! Why Weir itself refuses a request: to the client, in the log and in the metrics.
//!
//! The set of causes is bounded, since they are values of the label `reason`; the live page and
//! `docs/reference/headers.md` explain each of them.

use http::StatusCode;

use crate::api::status::Status;
use crate::flow::schedule::request::Rejected;
use crate::server::delegate::Reason;
use crate::server::http::refusal;

#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) status: Box<Status>,
    pub(crate) cause: RejectionCause,
}

/// The reason why a request is not answered from a cache.
#[derive(Debug)]
pub(crate) enum Bypass {
    Forward(Reason),
    Refuse(Rejection),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionCause {
    Connect,
    /// Another proxy or the API server could parse the request differently.
    Framing,
    /// The request came back to the Weir that forwarded it.
    Loop,
    Host,
    /// The client is nobody whom the API server knows.
    Unauthenticated,
    /// Weir cannot determine who the client is, or cannot forward its identity.
    Identity,
    /// Too many unknown tokens of one address are under review.
    Throttled,
    Reviews,
    Forbidden,
    /// The client has too many requests to the API server.
    Quota,
    Connections,
    /// Too many bytes wait for their clients to read them.
    ResponseMemory,
    UpstreamAway,
    /// Flow control, a rule or Weir's own overload sheds it: the word in `X-Weir-Shed`.
    Shed(&'static str),
    /// Too many requests are forwarded for this reason.
    Forward(Reason),
}

impl Rejection {
    pub(crate) fn new(status: Status, cause: RejectionCause) -> Self {
        Self { status: Box::new(status), cause }
    }

    pub(crate) fn with_shed(status: Status, shed: &'static str) -> Self {
        Self::new(status, RejectionCause::Shed(shed))
    }

    /// Returns the value of `X-Weir-Shed`: each 429 has one.
    pub(crate) fn shed(&self) -> Option<&'static str> {
        match self.cause {
            RejectionCause::Shed(shed) => Some(shed),
            cause => (self.status.code == StatusCode::TOO_MANY_REQUESTS).then(|| cause.as_str()),
        }
    }
}

/// There were no seats of an API server for it.
impl From<Rejected> for Rejection {
    fn from(rejected: Rejected) -> Self {
        Self::with_shed(refusal::shed(rejected.retry_after), rejected.reason.as_str())
    }
}

impl From<Reason> for Bypass {
    fn from(reason: Reason) -> Self {
        Self::Forward(reason)
    }
}

impl From<Rejection> for Bypass {
    fn from(rejection: Rejection) -> Self {
        Self::Refuse(rejection)
    }
}

impl RejectionCause {
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
        Self::Shed(""),
    ];

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
            Self::Shed(_) => "shed",
            Self::Forward(reason) => reason.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed() {
        let named = include_str!("rejection.rs").matches(" => \"").count();
        assert_eq!(named, RejectionCause::ALL.len());
    }
}
