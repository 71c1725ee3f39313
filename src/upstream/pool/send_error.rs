//! The error of a request that got no response.

use http::Request;
use hyper::client::conn::TrySendError;

use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::request_body::RequestBody;

/// The error of a request that got no response.
pub(crate) struct SendError {
    /// The error that the caller reports.
    pub(crate) error: UpstreamError,
    /// Whether the request may be sent again: either HTTP guarantees that the upstream did not
    /// process it, or processing it twice is harmless.
    pub(crate) unprocessed: bool,
    /// Whether a GOAWAY of the API server ended the request.
    pub(crate) by_goaway: bool,
    /// The reason why Weir gave a read up. The repetition was taken from the budget before.
    pub(crate) left: Option<Left>,
}

/// The reason why Weir gave a read up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The API server hangs, and another one may be asked.
    Server,
    /// The connection does not answer, and another one may be used.
    Connection,
}

impl SendError {
    /// The error of a request for which there was no connection.
    pub(super) fn not_sent(error: UpstreamError) -> Self {
        Self { error, unprocessed: true, by_goaway: false, left: None }
    }

    /// The error of a read that was given up, since its API server hangs.
    pub(crate) fn hung(address: String) -> Self {
        let error = UpstreamError::Lost(format!("the API server at {address} does not answer"));
        Self { error, unprocessed: true, by_goaway: false, left: Some(Left::Server) }
    }

    /// The error of a read that was given up, since its connection does not answer.
    pub(super) fn silent() -> Self {
        let error = UpstreamError::Lost("the connection does not answer".to_owned());
        Self { error, unprocessed: true, by_goaway: false, left: Some(Left::Connection) }
    }

    /// The error of a request that was sent and may have been processed.
    pub(super) fn unanswered(error: UpstreamError) -> Self {
        Self { error, unprocessed: false, by_goaway: false, left: None }
    }

    /// Returns whether the API server is the cause: it accepts no connection, or broke one that
    /// carried the request.
    pub(crate) fn is_transport_failure(&self) -> bool {
        match self.error {
            UpstreamError::Connect { .. } => true,
            UpstreamError::Lost(_) => !self.unprocessed,
            _ => false,
        }
    }

    /// The error of a request that was given to a connection.
    pub(super) fn from_hyper(mut failure: TrySendError<Request<RequestBody>>) -> Self {
        let not_sent = failure.take_message().is_some();
        let error = failure.into_error();
        // The request's own body failed or broke off: the client's fault, not the upstream's.
        if error.is_user() {
            let error = UpstreamError::Request(chain(&error));
            return Self::unanswered(error);
        }
        let cause = http2_cause(&error);
        // hyper resets the stream itself when the body breaks off.
        if cause.is_some_and(|cause| cause.is_reset() && !cause.is_remote() && !cause.is_library())
        {
            return Self::unanswered(UpstreamError::Request("its body broke off".to_owned()));
        }
        let cause = cause.filter(|cause| cause.is_remote());
        let by_goaway = cause.is_some_and(h2::Error::is_go_away);
        let unprocessed = not_sent || by_goaway || cause.is_some_and(is_refused);
        Self { error: UpstreamError::Lost(chain(&error)), unprocessed, by_goaway, left: None }
    }
}

/// Returns the HTTP/2 error that caused the error of a request. Two kinds of it mean that the
/// upstream did not process the request (RFC 9113 §8.7): REFUSED_STREAM, and a GOAWAY that names a
/// lower last stream. h2 reports a GOAWAY as the error of only those streams; the others continue,
/// or end with an I/O error.
fn http2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            return Some(error);
        }
        source = cause.source();
    }
    None
}

fn is_refused(error: &h2::Error) -> bool {
    error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
}
