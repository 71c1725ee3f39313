//! The body of a watch: drives a watcher of the cache, and times its bookmarks and its end (semantics.md §5.6, §5.7).
//!
//! It holds one taken batch at most. A client that does not read is not polled by hyper, so that its watcher stays
//! where it is and falls out of the history in the end: slow clients cost nothing but themselves.
//!
//! There are thousands of these, and an event wakes them all, so it is polled by hand and does at a wake-up only what that is for. A poll takes
//! these steps, from the first again after each that changed something, until one returns:
//!
//! 1. An alarm rang, or one must be set anew: the right to the watch is looked at, then the drain, then the clock. A lost right drops what
//!    was taken and ends the watch; a drain brings its end nearer; the clock makes a bookmark due, or the end.
//! 2. A piece was taken and not given: it is given.
//! 3. The watch has ended: so does the stream.
//! 4. Its time is over: it has ended.
//! 5. The watcher is asked. It has frames, the end of the initial events, or an end of its own: on to the first step. It is still searching:
//!    the task goes to the end of the queue. It has nothing: if a bookmark is due, and only then can it be true, that is given.
//! 6. The watcher is told whom to wake, and all is looked at once more. If there is still nothing to do, the task sleeps.
//!
//! Two things wake the task. The cache does when there may be an event; then no alarm is looked at, and no clock. An alarm (the right's own
//! future, the drain, the one timer) rings first, and is polled only then, so also while events keep coming without a pause. No event is given
//! after the poll in which the right was found lost.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::core::watcher::{Batch, Chunks, Watcher};
use crate::cache::handle::CacheHandle;
use crate::server::drain::Drain;
use crate::server::metrics::ResourceMetrics;
use crate::telemetry::metrics::GaugeGuard;

/// When a watch gets bookmarks, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    ends: Instant,
    /// Whether the client wants any.
    bookmarks: bool,
    bookmark: Option<Instant>,
}

impl Schedule {
    /// Counts from `began`. Without a time-out of the client's it ends after 30 to 60 minutes.
    pub(crate) fn new(began: Instant, timeout: Option<Duration>, bookmarks: bool) -> Self {
        let timeout = timeout
            .unwrap_or_else(|| DURATION_MIN.mul_f64(1.0 + fastrand::f64()))
            .min(DURATION_MAX);
        let mut schedule = Self { ends: began + timeout, bookmarks, bookmark: None };
        if bookmarks {
            schedule.next_bookmark(began);
        }
        schedule
    }

    /// The next one comes in a minute or just before the end, whichever is sooner; none in the last two seconds.
    fn next_bookmark(&mut self, now: Instant) {
        let jitter = BOOKMARK_JITTER.mul_f64(fastrand::f64());
        let last = self.ends - BOOKMARK_BEFORE_END;
        let next = (now + BOOKMARK_INTERVAL + jitter).min(last);
        self.bookmark = Some(next).filter(|next| *next > now);
    }
}

/// See the module.
pub(crate) struct WatchStream<B> {
    watcher: Watcher,
    /// The cache's handle, which keeps it from being idle.
    bookmarks: B,
    schedule: Schedule,
    end_bookmark: bool,
    /// No bookmark at or below what the client already has from its start.
    bookmarks_above: ResourceVersion,
    taken: VecDeque<Bytes>,
    alarms: Alarms,
    /// Whether something was given since the task slept last.
    gave: bool,
    metrics: Arc<ResourceMetrics>,
    ended: Option<&'static str>,
    _open: GaugeGuard,
}

/// What ends a watch or makes a bookmark due, besides the cache.
struct Alarms {
    /// Whether they must be polled even though none rang: at first, and when the schedule has changed.
    unset: bool,
    /// Comes when the client has lost the right to it.
    revoked: Option<Revoked>,
    /// Comes once, when the server drains.
    draining: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    drain: Drain,
    drains: bool,
    /// One for all that is timed.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether a bookmark is due.
    bookmark: bool,
    /// Whether the time is over.
    over: bool,
}

/// Comes when the right to a watch is lost.
pub(crate) type Revoked = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where bookmarks come from: a cache's handle, but for tests.
pub(crate) trait Bookmarks: Send {
    /// See [`CacheHandle::bookmark`].
    fn bookmark(&self, at: ResourceVersion, initial_events_end: bool) -> Option<Bytes>;
}

/// A cache's handle, and the view in which its watcher shows objects.
pub(crate) struct CacheBookmarks(pub(crate) CacheHandle, pub(crate) View);

impl Bookmarks for CacheBookmarks {
    fn bookmark(&self, at: ResourceVersion, initial_events_end: bool) -> Option<Bytes> {
        self.0.bookmark(at, initial_events_end, self.1)
    }
}

impl<B: Bookmarks> WatchStream<B> {
    /// `bookmarks_above` is what the client has already; the initial events, if there are any, replace it.
    pub(crate) fn new(
        watcher: Watcher,
        bookmarks_above: ResourceVersion,
        bookmarks: B,
        schedule: Schedule,
        end_bookmark: bool,
        drain: Drain,
        metrics: Arc<ResourceMetrics>,
    ) -> Self {
        Self {
            bookmarks_above,
            watcher,
            bookmarks,
            schedule,
            end_bookmark,
            taken: VecDeque::new(),
            alarms: Alarms::new(drain),
            gave: false,
            _open: metrics.watcher(),
            metrics,
            ended: None,
        }
    }

    /// Ends it, cleanly and at once, when its client's right to it is lost.
    pub(crate) fn until(mut self, revoked: Option<Revoked>) -> Self {
        self.alarms.revoked = revoked;
        self
    }

    /// The first step of the module's list.
    fn look_at_alarms(&mut self) {
        let alarm = self.watcher.timer_waker();
        let mut context = Context::from_waker(&alarm);
        if self.alarms.is_revoked(&mut context) {
            self.taken.clear();
            self.ended = Some("forbidden");
        } else {
            self.alarms.set(&mut self.schedule, &mut context);
        }
    }

    /// Takes what there is, and gives its first piece.
    fn take(&mut self) -> Step {
        match self.watcher.next_batch(TAKE_BYTES_MAX) {
            Batch::Frames { chunks, events } => {
                let first = gather(chunks, &mut self.taken);
                self.metrics.delivered(events, first.as_ref().map_or(0, Bytes::len));
                first.map_or(Step::Again, Step::Give)
            }
            Batch::InitialEventsEnd(at) => {
                self.bookmarks_above = at;
                let wanted = self.end_bookmark.then(|| self.bookmarks.bookmark(at, true));
                self.taken.extend(wanted.flatten());
                Step::Again
            }
            Batch::Yield => Step::Yield,
            Batch::Idle => {
                let bookmark = self.due_bookmark();
                self.taken.extend(bookmark);
                if self.taken.is_empty() && !self.alarms.unset { Step::Sleep } else { Step::Again }
            }
            Batch::Ended(cause) => {
                self.ended = Some(cause_word(cause));
                Step::Again
            }
        }
    }

    /// Called only right after the watcher was idle: a bookmark claims that nothing before it is still owed.
    fn due_bookmark(&mut self) -> Option<Bytes> {
        // Without one, a client that was given the difference of a relist could not come back after it.
        let owed = self.watcher.take_bookmark_due() && self.schedule.bookmarks;
        if !owed && !self.alarms.bookmark {
            return None;
        }
        self.schedule.next_bookmark(Instant::now());
        (self.alarms.bookmark, self.alarms.unset) = (false, true);
        let at = self.watcher.resource_version();
        if at <= self.bookmarks_above {
            return None;
        }
        self.bookmarks.bookmark(at, false)
    }

    fn next_given(&mut self) -> Option<Bytes> {
        let chunk = self.taken.pop_front()?;
        if self.taken.is_empty() {
            // What a burst needed is not kept for a silent hour.
            self.taken = VecDeque::new();
        }
        self.metrics.delivered(0, chunk.len());
        Some(chunk)
    }
}

/// What comes of asking the watcher.
enum Step {
    Give(Bytes),
    Again,
    Yield,
    Sleep,
}

impl<B: Bookmarks + Unpin> Stream for WatchStream<B> {
    type Item = Bytes;

    /// See the module.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        // After a piece there is mostly nothing more; so it is looked at once, with the waker set.
        let mut waits = std::mem::take(&mut this.gave);
        if waits {
            this.watcher.register_waker(context.waker());
        }
        loop {
            if this.watcher.take_timer_fired() || this.alarms.unset {
                this.look_at_alarms();
            }
            if let Some(chunk) = this.next_given() {
                this.gave = true;
                return Poll::Ready(Some(chunk));
            }
            if this.ended.is_some() {
                return Poll::Ready(None);
            }
            if this.alarms.over {
                this.ended = Some(this.alarms.cause());
                return Poll::Ready(None);
            }
            if waits && !this.alarms.bookmark && this.watcher.is_idle() {
                return Poll::Pending;
            }
            match this.take() {
                Step::Give(chunk) => {
                    this.gave = true;
                    return Poll::Ready(Some(chunk));
                }
                Step::Again => {}
                Step::Yield => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::Sleep if waits => return Poll::Pending,
                Step::Sleep => {
                    this.watcher.register_waker(context.waker());
                    waits = true;
                }
            }
        }
    }
}

impl Alarms {
    fn new(drain: Drain) -> Self {
        Self {
            unset: true,
            revoked: None,
            draining: Some(Box::pin(drain.started.clone().cancelled_owned())),
            drain,
            drains: false,
            timer: None,
            bookmark: false,
            over: false,
        }
    }

    fn is_revoked(&mut self, context: &mut Context<'_>) -> bool {
        let lost =
            self.revoked.as_mut().is_some_and(|revoked| revoked.as_mut().poll(context).is_ready());
        if lost {
            // Polled once only.
            self.revoked = None;
        }
        lost
    }

    /// Looks at the drain and the clock, and sets the timer for what comes next.
    fn set(&mut self, schedule: &mut Schedule, context: &mut Context<'_>) {
        self.unset = false;
        if self.draining.as_mut().is_some_and(|draining| draining.as_mut().poll(context).is_ready())
        {
            self.draining = None;
            self.drains = true;
            schedule.ends = schedule.ends.min(self.drain.random_end());
        }
        let now = Instant::now();
        while !self.over {
            let bookmark = schedule.bookmark.filter(|_| !self.bookmark);
            let until = bookmark.map_or(schedule.ends, |due| due.min(schedule.ends));
            if now < until && self.poll_timer(until, context).is_pending() {
                return;
            }
            self.over = until >= schedule.ends;
            self.bookmark = !self.over;
        }
    }

    fn poll_timer(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(context)
    }

    /// Why the time is over.
    fn cause(&self) -> &'static str {
        if self.drains { "shutdown" } else { "deadline" }
    }
}

/// Nobody polls a body whose client went away; it is dropped.
impl<B> Drop for WatchStream<B> {
    fn drop(&mut self) {
        self.metrics.watcher_ended(self.ended.unwrap_or("client"));
    }
}

/// Joins neighbouring small frames: each chunk is a DATA frame and a TLS record of its own. What is large or stands alone
/// goes out as it is, shared by all watchers.
///
/// The first piece is returned, since it is mostly the only one; the others go into `rest`.
fn gather(mut chunks: Chunks, rest: &mut VecDeque<Bytes>) -> Option<Bytes> {
    if chunks.len() <= 1 {
        return chunks.pop();
    }
    let mut run: Vec<Bytes> = Vec::new();
    let mut length = 0;
    for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
        if length + chunk.len() > JOINED_BYTES_MAX {
            rest.extend(join(&mut run, length));
            length = 0;
        }
        length += chunk.len();
        run.push(chunk);
    }
    rest.extend(join(&mut run, length));
    rest.pop_front()
}

fn join(run: &mut Vec<Bytes>, length: usize) -> Option<Bytes> {
    if run.len() <= 1 {
        return run.pop();
    }
    let mut joined = BytesMut::with_capacity(length);
    for chunk in run.drain(..) {
        joined.extend_from_slice(&chunk);
    }
    Some(joined.freeze())
}

fn cause_word(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Relist => "relist",
        EndCause::Stopped => "stopped",
        EndCause::Slow => "slow",
    }
}

/// kube-apiserver's `min-request-timeout`; a watch without a time-out lasts up to twice as long.
const DURATION_MIN: Duration = Duration::from_secs(1800);
/// No cap in meaning, only one that no clock overflows: ten years.
const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// semantics.md §5.6.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// As the upstream's ticks of 1 to 1.25 s.
const BOOKMARK_JITTER: Duration = Duration::from_millis(1250);
/// The last bookmark before the end, so that the client resumes from near there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// What a watch takes at a time; it is all that a slow reader holds besides its socket's buffers.
const TAKE_BYTES_MAX: usize = 256 << 10;
/// Small enough to be cheap to copy, large enough for few records.
const JOINED_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
