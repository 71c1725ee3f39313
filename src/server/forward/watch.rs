//! The end of a forwarded watch when Weir drains, or when a cache can take over.
//!
//! Such a stream lasts at least half an hour, and the upstream does not know that Weir stops. Weir
//! ends it as the upstream ends its own watches when it stops: cleanly, between two events
//! (`docs/semantics.md` §5.7). That is when its connection starts to drain. This needs a format in
//! which the end of an event is visible: JSON and protobuf. Watches in other formats last until the
//! drain deadline.
//!
//! A watch that was forwarded because there was no cache ends in the same way when there is one
//! ([`crate::server::forward::claim`]).

mod event_scanner;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::server::drain::{WATCH_AGE_MIN, WatchDrain};
use crate::server::forward::claim::WatchClaim;
use crate::server::forward::watch::event_scanner::EventScanner;
use crate::upstream::pool;

/// The body of a forwarded watch, which ends between two events when Weir drains or when a cache
/// can take over.
pub(crate) struct ForwardedWatch {
    body: pool::Body,
    drained: Pin<Box<dyn Future<Output = ()> + Send>>,
    claim: Option<WatchClaim>,
    /// Whether the time of the end has come.
    ending: bool,
    events: EventScanner,
}

impl ForwardedWatch {
    /// Returns the scanner of a response with these headers, if it has a format in which the end of
    /// an event is visible.
    pub(super) fn scanner(headers: &HeaderMap) -> Option<EventScanner> {
        EventScanner::for_response(headers)
    }

    /// Relays `body` until it ends, until Weir drains, or until a cache can take over.
    pub(super) fn new(
        body: pool::Body,
        events: EventScanner,
        drain: WatchDrain,
        claim: Option<WatchClaim>,
    ) -> Self {
        let begun = Instant::now();
        let drained = Box::pin(async move {
            drain.started().cancelled().await;
            tokio::time::sleep_until(begun + WATCH_AGE_MIN).await;
        });
        Self { body, drained, claim, ending: false, events }
    }

    fn poll_ending(&mut self, context: &mut Context<'_>) -> bool {
        let marked = self.events.initial_events_ended();
        self.ending = self.ending
            || self.drained.as_mut().poll(context).is_ready()
            || self.claim.as_mut().is_some_and(|claim| claim.poll_takeover(context, marked));
        self.ending
    }
}

impl Body for ForwardedWatch {
    type Data = Bytes;
    type Error = pool::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, pool::BodyError>>> {
        if self.poll_ending(context) && self.events.at_event_end() {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.events.scan(data);
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
