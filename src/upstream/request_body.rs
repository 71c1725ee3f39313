//! The body of a request to the upstream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
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
    request.map(|body| CountedBody { body, bytes: bytes.clone() }.boxed_unsync())
}

struct CountedBody {
    body: RequestBody,
    bytes: IntCounter,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &polled {
            self.bytes.inc_by(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
