//! The body of a watch: drives a watcher of the cache, and times its bookmarks and its end (semantics.md §5.6, §5.7).
//!
//! It holds one taken batch at most. A client that does not read is not polled by hyper, so that its watcher stays
//! where it is and falls out of the history in the end: slow clients cost nothing but themselves.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::core::watcher::{Taken, Watcher};
use crate::cache::handle::CacheHandle;
use crate::telemetry::server_metrics::{GaugeGuard, ResourceMetrics};

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

/// When and over how long the streams of a server end when it drains.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    pub(crate) begins: CancellationToken,
    pub(crate) over: Duration,
}

impl Drain {
    /// When a stream that knows this moment ends. Not all clients of a Weir that stops shall come to the next one in the same moment.
    pub(crate) fn moment(&self) -> Instant {
        Instant::now() + self.over.mul_f64(fastrand::f64())
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
    drain: Drain,
    drains: bool,
    /// Comes when the client has lost the right to it.
    revoked: Option<Revoked>,
    metrics: Arc<ResourceMetrics>,
    ended: Option<&'static str>,
    _open: GaugeGuard,
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
            drain,
            drains: false,
            revoked: None,
            _open: metrics.watcher(),
            metrics,
            ended: None,
        }
    }

    /// Ends it, cleanly and at once, when its client's right to it is lost.
    pub(crate) fn until(mut self, revoked: Option<Revoked>) -> Self {
        self.revoked = revoked;
        self
    }

    /// The next bytes to send; `None` at a clean end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Looked at each time, since a watch of a busy resource may never wait.
            if self.is_revoked().await {
                self.taken.clear();
                self.ended = Some("forbidden");
                return None;
            }
            if let Some(chunk) = self.taken.pop_front() {
                self.metrics.delivered(0, chunk.len());
                return Some(chunk);
            }
            if self.ended.is_some() {
                return None;
            }
            let now = Instant::now();
            if now >= self.schedule.ends {
                self.ended = Some(if self.drains { "shutdown" } else { "deadline" });
                return None;
            }
            match self.watcher.take(TAKE_BYTES_MAX) {
                Taken::Frames { chunks, events } => {
                    self.metrics.delivered(events, 0);
                    gather(chunks, &mut self.taken);
                }
                Taken::InitialEventsEnd(at) => {
                    self.bookmarks_above = at;
                    if self.end_bookmark {
                        self.taken.extend(self.bookmarks.bookmark(at, true));
                    }
                }
                Taken::Searching => tokio::task::yield_now().await,
                Taken::Idle => match self.due_bookmark(now) {
                    Some(bookmark) => self.taken.push_back(bookmark),
                    None => self.wait().await,
                },
                Taken::Ended(cause) => self.ended = Some(cause_word(cause)),
            }
        }
    }

    /// Called only right after the watcher was idle: a bookmark claims that nothing before it is still owed.
    fn due_bookmark(&mut self, now: Instant) -> Option<Bytes> {
        // Without one, a client that was given the difference of a relist could not come back after it.
        let owed = self.watcher.owes_bookmark() && self.schedule.bookmarks;
        if !owed && self.schedule.bookmark.is_none_or(|due| now < due) {
            return None;
        }
        self.schedule.next_bookmark(now);
        let at = self.watcher.resource_version();
        if at <= self.bookmarks_above {
            return None;
        }
        self.bookmarks.bookmark(at, false)
    }

    async fn is_revoked(&mut self) -> bool {
        let Some(revoked) = &mut self.revoked else { return false };
        let ready = poll_fn(|context| Poll::Ready(revoked.as_mut().poll(context).is_ready())).await;
        if ready {
            // Polled once only.
            self.revoked = Some(Box::pin(std::future::ready(())));
        }
        ready
    }

    async fn wait(&mut self) {
        let until =
            self.schedule.bookmark.map_or(self.schedule.ends, |due| due.min(self.schedule.ends));
        let lost = async {
            match &mut self.revoked {
                Some(revoked) => revoked.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.watcher.woken() => {}
            () = lost => self.revoked = Some(Box::pin(std::future::ready(()))),
            () = tokio::time::sleep_until(until) => {}
            () = self.drain.begins.cancelled(), if !self.drains => {
                self.drains = true;
                self.schedule.ends = self.schedule.ends.min(self.drain.moment());
            }
        }
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
fn gather(chunks: Vec<Bytes>, into: &mut VecDeque<Bytes>) {
    let mut run: Vec<Bytes> = Vec::new();
    let mut length = 0;
    for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
        if length + chunk.len() > JOINED_BYTES_MAX {
            into.extend(join(&mut run, length));
            length = 0;
        }
        length += chunk.len();
        run.push(chunk);
    }
    into.extend(join(&mut run, length));
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
