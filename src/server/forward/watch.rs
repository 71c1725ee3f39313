//! The end of a forwarded watch when Weir drains.
//!
//! Such a stream has no end of its own for half an hour, and the upstream does not know that Weir stops. It is ended as the upstream ends its
//! own when it stops: cleanly, between two events, at a moment of its own (semantics.md §5.7). That takes a form in which the
//! end of an event can be told, which is JSON's newline; others are left to the deadline.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};

use crate::server::drain::Drain;
use crate::upstream::pool;

/// See the module.
pub(crate) struct ForwardedWatch {
    body: pool::Body,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether the moment has come.
    ending: bool,
    /// Whether what was relayed so far ends with an event.
    at_event_end: bool,
}

impl ForwardedWatch {
    /// Whether the end of an event can be told in an answer with these headers.
    pub(crate) fn is_supported(headers: &HeaderMap) -> bool {
        let json = headers.get(CONTENT_TYPE).is_some_and(|form| form == "application/json");
        json && !headers.contains_key(CONTENT_ENCODING)
    }

    /// Relays `body` until it ends, or until Weir drains.
    pub(crate) fn new(body: pool::Body, drain: Drain) -> Self {
        let end = Box::pin(async move {
            drain.started.cancelled().await;
            tokio::time::sleep_until(drain.random_end()).await;
        });
        Self { body, end, ending: false, at_event_end: true }
    }
}

impl Body for ForwardedWatch {
    type Data = Bytes;
    type Error = pool::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, pool::BodyError>>> {
        self.ending = self.ending || self.end.as_mut().poll(context).is_ready();
        if self.ending && self.at_event_end {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Some(last) = data.last()
        {
            self.at_event_end = *last == b'\n';
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
