//! Counts the bytes of a request's body while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use prometheus::IntCounter;

use crate::upstream::request_body::RequestBody;

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
