//! The reasons besides the cache for which a watch ends or gets a bookmark: revocation, drain and
//! time.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::server::cached::watch_stream::schedule::Schedule;
use crate::server::drain::WatchDrain;

/// Resolves when the watch must end.
pub(crate) type WatchEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The revocation, the drain and the timer of a watch. They are polled only after one of them has
/// woken the watch, or after [`Timers::needs_poll`] was set.
pub(super) struct Timers {
    /// Whether they must be polled although none woke the watch: at first, and after the schedule
    /// has changed.
    pub(super) needs_poll: bool,
    /// Resolves when the client is no longer allowed to watch; `None` without reauthorization.
    revoked: Option<WatchEnd>,
    /// Resolves when the connection starts to drain; `None` afterwards.
    drain_started: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Counts this watch among those of its connection.
    _drain: WatchDrain,
    /// One timer for the end and all bookmarks.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether a bookmark is due.
    pub(super) bookmark_due: bool,
    /// Whether the end has come.
    pub(super) expired: bool,
}

impl Timers {
    pub(super) fn new(drain: WatchDrain) -> Self {
        Self {
            needs_poll: true,
            revoked: None,
            drain_started: Some(Box::pin(drain.started().clone().cancelled_owned())),
            _drain: drain,
            timer: None,
            bookmark_due: false,
            expired: false,
        }
    }

    /// Sets the future that ends the watch.
    pub(super) fn set_revoked(&mut self, revoked: Option<WatchEnd>) {
        self.revoked = revoked;
    }

    /// Polls the revocation.
    pub(super) fn is_revoked(&mut self, context: &mut Context<'_>) -> bool {
        let is_revoked =
            self.revoked.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready());
        if is_revoked {
            // A future must not be polled after it was ready.
            self.revoked = None;
        }
        is_revoked
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
