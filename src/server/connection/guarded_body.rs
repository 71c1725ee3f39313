//! The body of a response as hyper polls it: guarded by the activity of its connection, and by a
//! send time-out.
//!
//! One wrapper does both, since every frame of every watch passes through it.
//!
//! hyper takes up to sixteen pieces of an HTTP/1.1 response before it writes one. So such a body
//! waits until its last pieces were written, as far as they were copied for it. And while such a
//! body waits for its turn among large ones, hyper may have pieces left that its socket did not
//! take. They wait as well: else each of hundreds of connections whose sockets have room again
//! would write them first, and small responses would wait behind them.
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
pub(crate) struct GuardedBody {
    body: Source,
    lane: Option<Box<LaneUse>>,
    guards: BodyGuards,
    request: RequestGuard,
}

#[derive(Default)]
pub(crate) struct BodyGuards {
    /// `None` for HTTP/1.1: it never times out.
    pub(crate) timeouts: Option<SendTimeouts>,
    /// Counts the bytes of an HTTP/1.1 response that hyper has not written. The body waits with
    /// each piece until there are few.
    pub(crate) unwritten: Option<HeldBytes>,
    /// Counts the bytes of the response, unless they are counted already.
    pub(crate) sent: Option<IntCounter>,
    /// Counts what the response costs, if that is wanted.
    pub(crate) meter: Option<Box<Meter>>,
}

#[derive(Debug)]
enum Source {
    /// A body before its first piece, or one without a time-out.
    Own(Body),
    /// A body that [`SendTimeouts`] tracks by its number, and may drop.
    Tracked(u64, Arc<Mutex<TrackedBody>>),
}

impl GuardedBody {
    /// Wraps `body`. If it is longer than a piece and has a `lane`, it takes turns with others.
    pub(crate) fn new(
        body: Body,
        request: RequestGuard,
        guards: BodyGuards,
        lane: Option<Lane>,
    ) -> Self {
        let is_short =
            |hint: &SizeHint| hint.exact().is_some_and(|length| length <= PIECE_BYTES as u64);
        let lane = lane.filter(|_| !body.is_end_stream() && !is_short(&body.size_hint()));
        let lane = lane.map(|lane| Box::new(LaneUse::new(lane)));
        Self { body: Source::Own(body), lane, guards, request }
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
        if let Some(unwritten) = &this.guards.unwritten
            && unwritten.poll_below(UNWRITTEN_BYTES_MAX, context).is_pending()
        {
            this.set_writes_wait(false);
            return Poll::Pending;
        }
        ready!(this.poll_lane(context));
        let began = this.guards.meter.as_mut().and_then(|meter| meter.begin_poll());
        let polled = this.poll_piece(context);
        if let Some(lane) = &mut this.lane {
            match piece_bytes(&polled) {
                Some(bytes) => lane.sent(bytes),
                None => lane.rested(),
            }
        }
        if let Some((sent, bytes)) = this.guards.sent.as_ref().zip(piece_bytes(&polled)) {
            sent.inc_by(bytes as u64);
        }
        if let Some(meter) = &mut this.guards.meter {
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
    /// Sets whether the connection writes what is left of this response.
    fn set_writes_wait(&self, wait: bool) {
        if self.lane.is_some() && self.guards.timeouts.is_none() {
            self.request.set_writes_wait(wait);
        }
    }

    fn poll_lane(&mut self, context: &Context<'_>) -> Poll<()> {
        let left = self.lane.as_ref().and_then(|_| self.size_hint().exact());
        let polled =
            self.lane.as_mut().map_or(Poll::Ready(()), |lane| lane.poll_slot(left, context));
        self.set_writes_wait(polled.is_pending());
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
                let Some(bytes) = piece_bytes(&polled) else { return polled };
                if body.is_end_stream() {
                    // hyper keeps the body until its last piece is sent, but nothing of it is
                    // needed any more.
                    *body = Body::empty();
                } else if let Some(timeouts) = &self.guards.timeouts {
                    let rest = std::mem::replace(body, Body::empty());
                    let (id, tracked) = timeouts.insert(rest, timeouts.deadline(bytes));
                    self.body = Source::Tracked(id, tracked);
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
                let unsent = self.guards.timeouts.as_ref().zip(bytes).filter(|_| !ended);
                tracked.deadline = unsent.map(|(timeouts, bytes)| timeouts.deadline(bytes));
                polled
            }
        }
    }
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        self.set_writes_wait(false);
        if let (Source::Tracked(id, _), Some(timeouts)) = (&self.body, &self.guards.timeouts) {
            timeouts.remove(*id);
        }
    }
}

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
mod tests;
