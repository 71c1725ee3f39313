//! When a watch gets bookmarks, and when it ends (`docs/semantics.md` §5.6, §5.7): by time, by a
//! drain, or because its client may watch no more.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::server::drain::{WATCH_AGE_MIN, WatchDrain};

/// The times at which a watch gets bookmarks, and at which it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    begun: Instant,
    pub(super) end: Instant,
    pub(super) bookmarks: bool,
    /// The time of the next bookmark; `None` for no more.
    pub(super) next_bookmark: Option<Instant>,
    /// When the watch ends because Weir drains, if it has caught up by then.
    leave: Option<Instant>,
}

impl Schedule {
    /// Creates the schedule of a watch that begins at `start`. Without a `timeout` of the client's
    /// it ends after 30 to 60 minutes.
    pub(crate) fn new(start: Instant, timeout: Option<Duration>, bookmarks: bool) -> Self {
        let timeout = timeout
            .unwrap_or_else(|| DURATION_MIN.mul_f64(1.0 + fastrand::f64()))
            .min(DURATION_MAX);
        let (next_bookmark, leave) = (None, None);
        let mut schedule =
            Self { begun: start, end: start + timeout, bookmarks, next_bookmark, leave };
        if bookmarks {
            schedule.schedule_bookmark(start);
        }
        schedule
    }

    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Ends the watch as soon as it has caught up, with a last bookmark from which its client
    /// resumes. A watch that has just begun stays for a moment ([`WATCH_AGE_MIN`]).
    pub(super) fn leave(&mut self, now: Instant) {
        let leave = now.max(self.begun + WATCH_AGE_MIN);
        self.leave = Some(leave);
        self.end = self.end.min(leave + CATCH_UP_MAX);
        self.next_bookmark = Some(leave);
    }

    /// Whether the watch ends as soon as it has caught up.
    pub(super) fn is_leaving(&self, now: Instant) -> bool {
        self.leave.is_some_and(|leave| leave <= now)
    }

    /// Schedules the next bookmark a minute after `now` or just before the end, whichever is
    /// sooner. There is none in the last two seconds.
    pub(super) fn schedule_bookmark(&mut self, now: Instant) {
        if let Some(leave) = self.leave {
            self.next_bookmark = Some(leave).filter(|leave| *leave > now);
            return;
        }
        let jitter = BOOKMARK_JITTER.mul_f64(fastrand::f64());
        let last = self.end - BOOKMARK_BEFORE_END;
        let next = (now + BOOKMARK_INTERVAL + jitter).min(last);
        self.next_bookmark = Some(next).filter(|next| *next > now);
    }
}

pub(crate) type WatchEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The revocation, the change of what the client may see, the drain and the timer of a watch. They
/// are polled only after one of them has woken the watch, or after [`Timers::needs_poll`] was set.
pub(super) struct Timers {
    /// Whether they must be polled although none woke the watch: at first, and after the schedule
    /// has changed.
    pub(super) needs_poll: bool,
    /// Resolves when the client is no longer allowed to watch; `None` without reauthorization.
    revoked: Option<WatchEnd>,
    /// Resolves when the client may see more or less than the watch shows.
    view_changed: Option<WatchEnd>,
    /// Resolves when the connection starts to drain; `None` afterwards.
    drain_started: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Counts this watch among those of its connection.
    _drain: WatchDrain,
    /// One timer for the end and all bookmarks.
    timer: Option<Pin<Box<Sleep>>>,
    pub(super) bookmark_due: bool,
    pub(super) expired: bool,
}

impl Timers {
    pub(super) fn new(drain: WatchDrain) -> Self {
        Self {
            needs_poll: true,
            revoked: None,
            view_changed: None,
            drain_started: Some(Box::pin(drain.started().clone().cancelled_owned())),
            _drain: drain,
            timer: None,
            bookmark_due: false,
            expired: false,
        }
    }

    pub(super) fn set_ends(&mut self, revoked: Option<WatchEnd>, view_changed: Option<WatchEnd>) {
        (self.revoked, self.view_changed) = (revoked, view_changed);
    }

    /// Whether the watch shows a part of its collection.
    pub(super) fn shows_part(&self) -> bool {
        self.view_changed.is_some()
    }

    pub(super) fn is_revoked(&mut self, context: &mut Context<'_>) -> bool {
        has_come(&mut self.revoked, context)
    }

    pub(super) fn is_view_changed(&mut self, context: &mut Context<'_>) -> bool {
        has_come(&mut self.view_changed, context)
    }

    /// Polls the drain and the clock, and sets the timer for what comes next. A drain brings the
    /// end of `schedule` forward.
    pub(super) fn poll(&mut self, schedule: &mut Schedule, context: &mut Context<'_>) {
        self.needs_poll = false;
        if self.drain_started.as_mut().is_some_and(|drain| drain.as_mut().poll(context).is_ready())
        {
            self.drain_started = None;
            schedule.leave(Instant::now());
        }
        let now = Instant::now();
        while !self.expired {
            let bookmark = schedule.next_bookmark.filter(|_| !self.bookmark_due);
            let until = bookmark.map_or(schedule.end, |due| due.min(schedule.end));
            if now < until && self.poll_timer(until, context).is_pending() {
                return;
            }
            self.expired = until >= schedule.end;
            self.bookmark_due = !self.expired;
        }
    }

    fn poll_timer(&mut self, until: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(context)
    }

    /// Returns the cause of the end, as a label value.
    pub(super) fn cause(&self) -> &'static str {
        match self.drain_started {
            None => "shutdown",
            Some(_) => "deadline",
        }
    }
}

fn has_come(end: &mut Option<WatchEnd>, context: &mut Context<'_>) -> bool {
    let has_come = end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready());
    if has_come {
        // A future must not be polled after it was ready.
        *end = None;
    }
    has_come
}

/// kube-apiserver's `min-request-timeout`. A watch without a time-out lasts up to twice as long.
const DURATION_MIN: Duration = Duration::from_secs(1800);
/// Ten years: practically no limit, but one that does not overflow a clock.
const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The interval of kube-apiserver (`docs/semantics.md` §5.6).
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// kube-apiserver checks for due bookmarks every 1 to 1.25 s.
const BOOKMARK_JITTER: Duration = Duration::from_millis(1250);
/// The last bookmark comes this long before the end, so that the client resumes from near there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How long a watch may take to catch up when it must end: long enough to read a whole
/// history, and not so long that a watch of a very busy resource misses the deadline.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
