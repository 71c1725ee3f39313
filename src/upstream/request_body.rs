//! The body of a request to the upstream.

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use prometheus::IntCounter;

/// The body of a request: that of a client's request, or bytes of Weir's own.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Returns an empty body.
pub fn empty_body() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body of `bytes`.
pub fn full_body(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Counts the bytes of a request's body, if it has one.
pub(super) fn counted(request: Request<RequestBody>, bytes: &IntCounter) -> Request<RequestBody> {
    if request.body().is_end_stream() {
        return request;
    }
    let bytes = bytes.clone();
    let count = move |frame: &Frame<Bytes>| {
        bytes.inc_by(frame.data_ref().map_or(0, Bytes::len) as u64);
    };
    request.map(|body| body.inspect_frame(count).boxed_unsync())
}
