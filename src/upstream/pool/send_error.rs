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
}

impl SendError {
    /// The error of a request for which there was no connection.
    pub(super) fn not_sent(error: UpstreamError) -> Self {
        Self { error, unprocessed: true }
    }

    /// The error of a request that was given to a connection.
    pub(super) fn from_hyper(mut failure: TrySendError<Request<RequestBody>>) -> Self {
        let not_sent = failure.take_message().is_some();
        let error = failure.into_error();
        // The request's own body failed or broke off: the client's fault, not the upstream's.
        if error.is_user() {
            let error = UpstreamError::Request(chain(&error));
            return Self { error, unprocessed: false };
        }
        let unprocessed = not_sent || is_unprocessed(&error);
        Self { error: UpstreamError::Lost(chain(&error)), unprocessed }
    }
}

/// Returns whether the upstream did not process a request (RFC 9113 §8.7): REFUSED_STREAM, or a
/// stream above the last one that a GOAWAY names. h2 reports a GOAWAY as the error of only those
/// streams; the others continue, or end with an I/O error.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (refused || error.is_go_away());
        }
        source = cause.source();
    }
    false
}
