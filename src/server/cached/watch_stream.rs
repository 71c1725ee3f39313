//! The body of a watch: polls a watcher of the cache, and schedules its bookmarks and its end
//! (`docs/semantics.md` §5.6, §5.7).
//!
//! It holds at most one batch of frames, mostly by reference; what is copied counts as held
//! (`docs/decisions/response-bodies.md`). hyper does not poll the body of a client that does not
//! read, so that its watcher stays at its position and eventually falls out of the history. A slow
//! client therefore does not affect other clients.
//!
//! There are thousands of these streams, and an event wakes all of them. Each is therefore polled
//! by hand, and does at a wake-up only what the wake-up requires. A poll takes these steps, and
//! starts again after each step that changed something, until one of them returns:
//!
//! 1. If a timer has fired, or must be set: poll the revocation, the change of what the client may
//!    see, the drain, then the clock. The first two drop the pending frames and end the watch. A
//!    drain makes a last bookmark due, after which the watch ends, and brings its end forward. The
//!    clock makes a bookmark due, or the end.
//! 2. If a piece is pending: return it.
//! 3. If the watch has ended: end the stream.
//! 4. If its time is over: the watch has ended.
//! 5. Poll the watcher. If it has frames, the end of the initial events, or an end of its own:
//!    continue with step 1. If it has used up its budget without a match: wake the task again,
//!    behind all others. If it has nothing: return a bookmark if one is due. Only at that point is
//!    a bookmark true.
//! 6. Register the task's waker with the watcher, and repeat all steps once. If there is still
//!    nothing to do, wait.
//!
//! Two sources wake the task. The cache does when there may be an event; then neither a timer nor
//! the clock is polled. A timer (an end, the drain, the one clock timer) first sets a flag,
//! and is polled only if the flag is set, so that it is polled even while events come without a
//! pause. No event is returned after the poll that found the watch revoked.

mod coalesce;
mod schedule;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::Stream;
use tokio::time::Instant;

use crate::api::media_type::{Encoding, View};
use crate::api::resource_version::ResourceVersion;
use crate::api::status::Status;
use crate::cache::core::watch_cache::{EndCause, Now};
use crate::cache::core::watcher::{Batch, Watcher};
use crate::cache::handle::CacheHandle;
use crate::codec::frame;
use crate::codec::gzip;
use crate::codec::rope::{PIECE_BYTES, Rope};
use crate::server::cached::watch_stream::coalesce::coalesce;
use crate::server::cached::watch_stream::schedule::Timers;
pub(crate) use crate::server::cached::watch_stream::schedule::{Schedule, WatchEnd};
use crate::server::drain::WatchDrain;
use crate::server::metrics::ResourceMetrics;
use crate::telemetry::metrics::GaugeGuard;

pub(crate) struct WatchStream<B> {
    watcher: Watcher,
    /// The cache's handle, which keeps the cache from being idle.
    bookmarks: B,
    schedule: Schedule,
    /// Whether a bookmark must end the initial events.
    end_bookmark: bool,
    /// Bookmarks at or below this resourceVersion are not sent: the client has it from its start.
    bookmarks_above: ResourceVersion,
    pending: VecDeque<Bytes>,
    timers: Timers,
    yielded: bool,
    metrics: Arc<ResourceMetrics>,
    /// The deliveries until the next one whose delay is observed.
    next_sample: u8,
    /// The cause of the end, as a label value.
    ended: Option<&'static str>,
    _open: GaugeGuard,
}

/// The source of bookmarks: the handle of a cache, except in tests.
pub(crate) trait Bookmarks: Send {
    fn bookmark(&self, at: ResourceVersion, initial_events_end: bool) -> Option<Bytes>;

    /// Returns the ERROR event after which a client that watches from `at` lists again.
    fn expired(&self, at: ResourceVersion) -> Bytes;

    /// Observes the delivery of an event that was received at `received`, to a watch of this age.
    fn delivered(&self, received: Now, age: Duration);
}

/// The handle of a cache, and the form in which its watcher shows objects.
pub(crate) struct CacheBookmarks(pub(crate) CacheHandle, pub(crate) Encoding, pub(crate) View);

impl Bookmarks for CacheBookmarks {
    fn bookmark(&self, at: ResourceVersion, initial_events_end: bool) -> Option<Bytes> {
        self.0.bookmark(at, initial_events_end, self.2)
    }

    fn expired(&self, at: ResourceVersion) -> Bytes {
        frame::encode_error(&Status::expired(at, at), self.1)
    }

    fn delivered(&self, received: Now, age: Duration) {
        self.0.note_delivered(received, age);
    }
}

impl<B: Bookmarks> WatchStream<B> {
    /// Creates the body of a watch. `bookmarks_above` is the resourceVersion that the client has
    /// already. The initial events, if there are any, replace it.
    pub(crate) fn new(
        watcher: Watcher,
        bookmarks_above: ResourceVersion,
        bookmarks: B,
        schedule: Schedule,
        end_bookmark: bool,
        drain: WatchDrain,
        metrics: Arc<ResourceMetrics>,
    ) -> Self {
        Self {
            bookmarks_above,
            watcher,
            bookmarks,
            schedule,
            end_bookmark,
            pending: VecDeque::new(),
            timers: Timers::new(drain),
            yielded: false,
            _open: metrics.watcher(),
            // Watches begin at different places of the cycle, so that short ones are sampled like
            // long ones.
            next_sample: 1 + metrics.open_watchers() % DELIVERIES_PER_SAMPLE,
            metrics,
            ended: None,
        }
    }

    /// Ends the watch at once when `revoked` resolves: its client is no longer allowed to watch.
    /// The end is clean, unless the watch shows a part. Ends it with a 410 when `view_changed`
    /// resolves: its client may see more or less than before, and lists again.
    pub(crate) fn with_ends(
        mut self,
        revoked: Option<WatchEnd>,
        view_changed: Option<WatchEnd>,
    ) -> Self {
        self.timers.set_ends(revoked, view_changed);
        self
    }

    /// Step 1.
    fn poll_timers(&mut self) {
        let waker = self.watcher.timer_waker();
        let mut context = Context::from_waker(&waker);
        if self.timers.is_revoked(&mut context) {
            self.pending.clear();
            // The client may be in other groups now, and see other objects.
            if self.timers.shows_part() {
                self.push_expired();
            }
            self.ended = Some("forbidden");
        } else if self.timers.is_view_changed(&mut context) {
            self.pending.clear();
            self.push_expired();
            self.ended = Some("permissions");
        } else {
            self.timers.poll(&mut self.schedule, &mut context);
        }
    }

    /// Step 5: polls the watcher, and returns the first piece.
    fn next_step(&mut self) -> Step {
        match self.watcher.next_batch(BATCH_BYTES_MAX) {
            Batch::Frames { chunks, events, received } => {
                self.sample_delay(received);
                let first = coalesce(chunks, &mut self.pending, self.watcher.held());
                self.metrics.delivered(events, first.as_ref().map_or(0, Bytes::len));
                first.map_or(Step::Continue, |first| Step::Return(first.into()))
            }
            Batch::InitialEvents { frames, events } => {
                self.metrics.delivered(events, frames.remaining());
                Step::Return(frames)
            }
            Batch::InitialEventsEnd(at) => {
                self.bookmarks_above = at;
                let bookmark = self.end_bookmark.then(|| self.bookmarks.bookmark(at, true));
                self.push(bookmark.flatten());
                Step::Continue
            }
            Batch::Yield => Step::Yield,
            Batch::Idle => {
                let bookmark = self.due_bookmark();
                self.push(bookmark);
                if self.pending.is_empty() && !self.timers.needs_poll && self.ended.is_none() {
                    Step::Wait
                } else {
                    Step::Continue
                }
            }
            Batch::Ended(cause) => {
                if matches!(cause, EndCause::Wrong | EndCause::Aggregated) {
                    // The client keeps wrong objects, or those of another server, until it lists.
                    self.push_expired();
                }
                self.ended = Some(cause_label(cause));
                Step::Continue
            }
        }
    }

    fn push_expired(&mut self) {
        let at = self.watcher.resource_version();
        self.push(Some(self.bookmarks.expired(at)));
    }

    fn push(&mut self, frame: Option<Bytes>) {
        let compressed = |frame: Bytes| match self.watcher.is_compressed() {
            true => gzip::to_member(&frame),
            false => frame,
        };
        self.pending.extend(frame.map(compressed));
    }

    fn sample_delay(&mut self, received: Now) {
        self.next_sample = self.next_sample.wrapping_sub(1);
        if self.next_sample == 0 {
            self.next_sample = DELIVERIES_PER_SAMPLE;
            self.bookmarks.delivered(received, self.schedule.age());
        }
    }

    /// Returns a bookmark if one is due, and ends a watch whose connection drains. Called only
    /// right after the watcher was idle: a bookmark claims that no event before it is pending.
    fn due_bookmark(&mut self) -> Option<Bytes> {
        // Without a bookmark, a client that received the difference of a relist could not resume
        // after it.
        let bookmark_due = self.watcher.take_bookmark_due() && self.schedule.bookmarks;
        if !bookmark_due && !self.timers.bookmark_due {
            return None;
        }
        let now = Instant::now();
        self.schedule.schedule_bookmark(now);
        (self.timers.bookmark_due, self.timers.needs_poll) = (false, true);
        if self.schedule.is_leaving(now) {
            self.ended = Some(self.timers.cause());
        }
        let at = self.watcher.resource_version();
        if !self.schedule.bookmarks || at <= self.bookmarks_above {
            return None;
        }
        self.bookmarks.bookmark(at, false)
    }

    /// Step 2.
    fn next_pending(&mut self) -> Option<Bytes> {
        let piece = self.pending.pop_front()?;
        if self.pending.is_empty() {
            // Releases the capacity that a burst needed.
            self.pending = VecDeque::new();
        }
        self.metrics.delivered(0, piece.len());
        Some(piece)
    }
}

/// The next action of a poll, after the watcher was polled.
enum Step {
    Return(Rope),
    Continue,
    Yield,
    Wait,
}

impl<B: Bookmarks + Unpin> Stream for WatchStream<B> {
    type Item = Rope;

    /// Takes the steps of the module's documentation.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Rope>> {
        let this = self.get_mut();
        // After a piece there is mostly nothing more. So the waker is registered first, and one
        // look suffices.
        let mut registered = std::mem::take(&mut this.yielded);
        if registered {
            this.watcher.register_waker(context.waker());
        }
        loop {
            if this.watcher.take_timer_fired() || this.timers.needs_poll {
                this.poll_timers();
            }
            if let Some(piece) = this.next_pending() {
                this.yielded = true;
                return Poll::Ready(Some(piece.into()));
            }
            if this.ended.is_some() {
                return Poll::Ready(None);
            }
            if this.timers.expired {
                this.ended = Some(this.timers.cause());
                return Poll::Ready(None);
            }
            if registered && !this.timers.bookmark_due && this.watcher.is_idle() {
                return Poll::Pending;
            }
            let step = this.next_step();
            this.metrics.dropped(this.watcher.take_dropped_bytes());
            match step {
                Step::Return(piece) => {
                    this.yielded = true;
                    return Poll::Ready(Some(piece));
                }
                Step::Continue => {}
                Step::Yield => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::Wait if registered => return Poll::Pending,
                Step::Wait => {
                    this.watcher.register_waker(context.waker());
                    registered = true;
                }
            }
        }
    }
}

/// The body of a client that disconnected is dropped without another poll.
impl<B> Drop for WatchStream<B> {
    fn drop(&mut self) {
        self.metrics.watcher_ended(self.ended.unwrap_or("client"));
    }
}

fn cause_label(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Relist => "relist",
        EndCause::Wrong => "wrong",
        EndCause::Aggregated => "aggregated",
        EndCause::Stopped => "stopped",
        EndCause::Unreadable => "unreadable",
        EndCause::Slow => "slow",
    }
}

/// The delay of one in this number of deliveries is observed.
const DELIVERIES_PER_SAMPLE: u8 = 64;
/// The size of a batch, which is all that a slow client holds besides its socket's buffers.
const BATCH_BYTES_MAX: usize = PIECE_BYTES;

#[cfg(test)]
mod tests;
