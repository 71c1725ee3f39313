//! The end of a forwarded watch when Weir drains.
//!
//! Such a stream lasts at least half an hour, and the upstream does not know that Weir stops. Weir
//! ends it as the upstream ends its own watches when it stops: cleanly, between two events
//! (`docs/semantics.md` §5.7). That is when its connection starts to drain. This needs a format in
//! which the end of an event is visible: the newline of JSON. Watches in other formats last until
//! the drain deadline.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::server::drain::{WATCH_AGE_MIN, WatchDrain};
use crate::upstream::pool;

/// The body of a forwarded watch, which ends between two events when Weir drains.
pub(crate) struct ForwardedWatch {
    body: pool::Body,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether the time of the end has come.
    ending: bool,
    /// Whether the relayed data ends with a whole event.
    at_event_end: bool,
}

impl ForwardedWatch {
    /// Whether a response with these headers has a format in which the end of an event is visible.
    pub(crate) fn is_supported(headers: &HeaderMap) -> bool {
        let json = headers.get(CONTENT_TYPE).is_some_and(|form| form == "application/json");
        json && !headers.contains_key(CONTENT_ENCODING)
    }

    /// Relays `body` until it ends, or until Weir drains.
    pub(crate) fn new(body: pool::Body, drain: WatchDrain) -> Self {
        let begun = Instant::now();
        let end = Box::pin(async move {
            drain.started().cancelled().await;
            tokio::time::sleep_until(begun + WATCH_AGE_MIN).await;
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
