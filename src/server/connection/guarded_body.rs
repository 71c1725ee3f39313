//! The body of a response as hyper polls it: guarded by the activity of its connection, and by a
//! send time-out.
//!
//! One wrapper does both, since every frame of every watch passes through it.
//!
//! hyper takes up to sixteen pieces of an HTTP/1.1 response before it writes one. So such a body
//! waits until its last pieces were written, as far as they were copied for it.
//!
//! A body that ends with its first piece, as most do, is never tracked by [`SendTimeouts`]: once
//! its last piece is handed out, it is dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use prometheus::IntCounter;

use crate::codec::held_bytes::HeldBytes;
use crate::codec::rope::{PIECE_BYTES, Rope};
use crate::flow::habit::is_expired;
use crate::server::connection::activity::RequestGuard;
use crate::server::connection::send_timeouts::{SendTimeouts, TrackedBody};
use crate::server::flow_control::meter::Meter;
use crate::server::http::body::Body;
use crate::server::lanes::{Lane, LaneUse};
use crate::upstream::pool::BodyError;

/// A response body that keeps its request open, and that a send time-out may drop.
#[derive(Debug)]
pub(crate) struct GuardedBody {
    body: Source,
    /// `None` for HTTP/1.1.
    timeouts: Option<SendTimeouts>,
    /// Counts the bytes of an HTTP/1.1 response that hyper has not written.
    unwritten: Option<HeldBytes>,
    /// Counts the bytes of the response, unless they are counted already.
    sent: Option<IntCounter>,
    /// Counts what the response costs, if that is wanted.
    meter: Option<Box<Meter>>,
    /// Lets a large response take turns with others.
    lane: Option<Box<LaneUse>>,
    _request: RequestGuard,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most bodies are small and their own; a box would cost each an allocation"
)]
enum Source {
    /// A body before its first piece, or one without a time-out.
    Own(Body),
    /// A body that [`SendTimeouts`] tracks by its number, and may drop.
    Tracked(u64, Arc<Mutex<TrackedBody>>),
}

impl GuardedBody {
    /// Wraps `body`. Without `timeouts` it never times out.
    pub(crate) fn new(body: Body, timeouts: Option<SendTimeouts>, request: RequestGuard) -> Self {
        let body = Source::Own(body);
        Self {
            body,
            timeouts,
            unwritten: None,
            sent: None,
            meter: None,
            lane: None,
            _request: request,
        }
    }

    /// Waits with each piece until few bytes of the response are held.
    pub(crate) fn paced_by(mut self, unwritten: Option<HeldBytes>) -> Self {
        self.unwritten = unwritten;
        self
    }

    /// Counts the bytes of the response.
    pub(crate) fn counted_by(mut self, sent: Option<IntCounter>) -> Self {
        self.sent = sent;
        self
    }

    /// Counts what the response costs.
    pub(crate) fn metered_by(mut self, meter: Option<Box<Meter>>) -> Self {
        self.meter = meter;
        self
    }

    /// Takes turns with others, if the response is longer than a piece.
    pub(crate) fn in_lane(mut self, lane: Option<Lane>) -> Self {
        let is_short = |hint: &SizeHint| hint.exact().is_some_and(|it| it <= PIECE_BYTES as u64);
        if !self.is_end_stream() && !is_short(&self.size_hint()) {
            self.lane = lane.map(|lane| Box::new(LaneUse::new(lane)));
        }
        self
    }

    /// Returns `read` of the body, or `default` if the body timed out.
    fn read<T>(&self, read: impl FnOnce(&Body) -> T, default: T) -> T {
        match &self.body {
            Source::Own(body) => read(body),
            Source::Tracked(_, tracked) => tracked.lock().body.as_ref().map_or(default, read),
        }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Rope;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, BodyError>>> {
        let this = self.get_mut();
        if let Some(unwritten) = &this.unwritten {
            ready!(unwritten.poll_below(UNWRITTEN_BYTES_MAX, context));
        }
        ready!(this.poll_lane(context));
        let began = this.meter.as_mut().and_then(|meter| meter.begin_poll());
        let polled = this.poll_piece(context);
        if let Some(lane) = &mut this.lane {
            match piece_bytes(&polled) {
                Some(bytes) => lane.sent(bytes),
                None => lane.rested(),
            }
        }
        if let Some((sent, bytes)) = this.sent.as_ref().zip(piece_bytes(&polled)) {
            sent.inc_by(bytes as u64);
        }
        if let Some(meter) = &mut this.meter {
            if meter.may_expire()
                && let Poll::Ready(Some(Ok(frame))) = &polled
                && frame.data_ref().is_some_and(|data| is_expired(data.chunk()))
            {
                meter.expire();
            }
            meter.end_poll(began, piece_bytes(&polled));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.read(http_body::Body::is_end_stream, false)
    }

    fn size_hint(&self) -> SizeHint {
        self.read(http_body::Body::size_hint, SizeHint::default())
    }
}

impl GuardedBody {
    fn poll_lane(&mut self, context: &Context<'_>) -> Poll<()> {
        let left = self.lane.as_ref().and_then(|_| self.size_hint().exact());
        let polled = self.lane.as_mut().map_or(Poll::Ready(()), |it| it.poll_slot(left, context));
        if let (Poll::Pending, Source::Tracked(_, tracked)) = (polled, &self.body) {
            // The client is not late: its last piece was taken.
            tracked.lock().deadline = None;
        }
        polled
    }

    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Rope>, BodyError>>> {
        match &mut self.body {
            Source::Own(body) => {
                let polled = Pin::new(&mut *body).poll_frame(context);
                if let Some(bytes) = piece_bytes(&polled) {
                    let rest = std::mem::replace(body, Body::empty());
                    match &self.timeouts {
                        // The last piece: hyper keeps the body until it is sent, but nothing of it
                        // is needed any more.
                        _ if rest.is_end_stream() => drop(rest),
                        Some(timeouts) => {
                            let (id, tracked) = timeouts.insert(rest, timeouts.deadline(bytes));
                            self.body = Source::Tracked(id, tracked);
                        }
                        None => *body = rest,
                    }
                }
                polled
            }
            Source::Tracked(_, tracked) => {
                let mut tracked = tracked.lock();
                let Some(body) = &mut tracked.body else {
                    return Poll::Ready(Some(Err(BodyError::Stalled)));
                };
                let polled = Pin::new(&mut *body).poll_frame(context);
                let bytes = piece_bytes(&polled);
                let ended = bytes.is_some() && body.is_end_stream();
                if ended {
                    *body = Body::empty();
                }
                let unsent = self.timeouts.as_ref().zip(bytes).filter(|_| !ended);
                tracked.deadline = unsent.map(|(timeouts, bytes)| timeouts.deadline(bytes));
                polled
            }
        }
    }
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        if let (Source::Tracked(id, _), Some(timeouts)) = (&self.body, &self.timeouts) {
            timeouts.remove(*id);
        }
    }
}

/// Returns the length of a piece that was handed out.
fn piece_bytes(polled: &Poll<Option<Result<Frame<Rope>, BodyError>>>) -> Option<usize> {
    match polled {
        Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, Rope::remaining)),
        _ => None,
    }
}

/// The bytes of an HTTP/1.1 response that hyper may hold besides the next piece. A watch holds
/// fewer itself, so that it always goes on once they were written.
const UNWRITTEN_BYTES_MAX: usize = 2 * PIECE_BYTES;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;
    use crate::flow::overload::{Signals, Stage};
    use crate::server::connection::activity::ConnActivity;
    use crate::server::http::body::{FixedFrames, WatchFrames};
    use crate::server::metrics::ServerMetrics;
    use crate::server::overload::{Overload, Stages};

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn guarded(body: Body) -> (SendTimeouts, GuardedBody) {
        let metrics = ServerMetrics::register(&prometheus::Registry::new()).unwrap();
        let timeouts = SendTimeouts::new(TIMEOUT, metrics);
        let request = ConnActivity::new().begin_request(false);
        (timeouts.clone(), GuardedBody::new(body, Some(timeouts), request))
    }

    fn pieces(count: usize) -> Body {
        Body::chunks(vec![Bytes::from(vec![7; PIECE_BYTES]); count])
    }

    /// Sweeps for `time`.
    async fn sweep(timeouts: &SendTimeouts, time: Duration) {
        let overload = Overload::calm();
        assert!(tokio::time::timeout(time, timeouts.sweep(&overload)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_read_is_dropped_and_then_an_error() {
        let (timeouts, mut body) = guarded(pieces(3));
        body.frame().await.unwrap().unwrap();
        sweep(&timeouts, TIMEOUT - Duration::from_secs(1)).await;
        body.frame().await.unwrap().unwrap();
        sweep(&timeouts, TIMEOUT * 2).await;
        assert!(matches!(body.frame().await, Some(Err(BodyError::Stalled))));
        assert_eq!(timeouts.tracked(), 1);
        drop(body);
        assert_eq!(timeouts.tracked(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_be_silent_for_any_time() {
        let frames = futures_util::stream::iter([Rope::from(Bytes::from_static(b"event"))]);
        let frames = futures_util::StreamExt::chain(frames, futures_util::stream::pending());
        let (timeouts, mut body) = guarded(Body::Watch(Box::pin(FixedFrames(frames))));
        body.frame().await.unwrap().unwrap();
        assert!(body.frame().now_or_never().is_none());
        sweep(&timeouts, TIMEOUT * 9).await;
        assert!(body.frame().now_or_never().is_none());
    }

    /// A watch that goes on until it is asked to leave.
    struct Endless {
        is_leaving: bool,
        is_over: bool,
    }

    impl futures_util::Stream for Endless {
        type Item = Rope;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Rope>> {
            if self.is_over {
                return Poll::Ready(None);
            }
            self.is_over = self.is_leaving;
            let text: &[u8] = if self.is_leaving { b"bookmark" } else { b"event" };
            Poll::Ready(Some(Rope::from(Bytes::from_static(text))))
        }
    }

    impl WatchFrames for Endless {
        fn leave(mut self: Pin<&mut Self>) {
            self.is_leaving = true;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_read_ends_with_a_bookmark_while_weir_is_overloaded() {
        let frames = Endless { is_leaving: false, is_over: false };
        let (timeouts, mut body) = guarded(Body::Watch(Box::pin(frames)));
        let mut next = async || {
            let frame = body.frame().await?.unwrap().into_data().unwrap();
            Some(frame.chunk().to_vec())
        };
        assert_eq!(next().await.unwrap(), b"event");
        let overload = Overload::calm();
        let stages = Stages { all: Stage::VitalOnly, space: Stage::Calm };
        overload.set(stages, &Signals::default());
        // The bookmark stays for a client that reads later.
        let swept = tokio::time::timeout(TIMEOUT / 2, timeouts.sweep(&overload));
        assert!(swept.await.is_err());
        assert_eq!(next().await.unwrap(), b"bookmark");
        assert_eq!(next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_http1_body_waits_until_its_pieces_were_written() {
        let held = HeldBytes::new(usize::MAX).response();
        let copied = held.clone();
        let frames = futures_util::stream::repeat_with(move || {
            Rope::from(copied.hold(vec![7; PIECE_BYTES]))
        });
        let request = ConnActivity::new().begin_request(false);
        let body = Body::Watch(Box::pin(FixedFrames(frames)));
        let body = GuardedBody::new(body, None, request);
        let mut body = body.paced_by(Some(held.clone()));
        let first = body.frame().await.unwrap().unwrap();
        let _second = body.frame().await.unwrap().unwrap();
        assert!(body.frame().now_or_never().is_none());
        let next = tokio::spawn(async move { body.frame().await.unwrap().unwrap() });
        tokio::task::yield_now().await;
        assert_eq!(held.bytes(), 2 * PIECE_BYTES);
        drop(first);
        assert_eq!(next.await.unwrap().into_data().unwrap().remaining(), PIECE_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_one_piece_is_not_tracked() {
        let (timeouts, mut body) = guarded(pieces(1));
        body.frame().await.unwrap().unwrap();
        assert!(body.is_end_stream());
        assert_eq!(timeouts.tracked(), 0);
    }

    /// hyper keeps a body until the client has read its last piece, which may never happen.
    #[tokio::test(start_paused = true)]
    async fn a_body_is_released_with_its_last_piece() {
        for count in 1..4 {
            let (timeouts, mut body) = guarded(pieces(count));
            for _ in 0..count {
                body.frame().await.unwrap().unwrap();
            }
            assert!(body.is_end_stream(), "{count}");
            let released = |body: &Body| matches!(body, Body::Chunks(all) if all.is_released());
            assert!(body.read(released, false));
            sweep(&timeouts, TIMEOUT * 9).await;
            assert!(body.frame().await.is_none(), "{count}");
        }
    }
}
