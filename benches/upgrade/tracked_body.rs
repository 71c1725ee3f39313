//! A request's body that knows whether its connection has taken the request.
//!
//! hyper hands requests to the task of a connection through a channel of tokio. A value that is
//! sent while the receiver is dropped may stay in it for ever, without an error: five of 3,000,000
//! did in a program that does only this. A client that repeats such a request must not repeat one
//! that the server had, and did not answer: that is what a test of a drain looks for.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

pub(crate) struct TrackedBody {
    body: Full<Bytes>,
    taken: SentMark,
}

/// Whether a connection has taken the request of a body: none can send a request without asking
/// the body whether it is empty, or for its bytes.
#[derive(Clone, Default)]
pub(crate) struct SentMark(Arc<AtomicBool>);

impl SentMark {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl TrackedBody {
    pub(crate) fn new(bytes: Bytes, taken: &SentMark) -> Self {
        Self { body: Full::new(bytes), taken: taken.clone() }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.taken.set();
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.taken.set();
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
