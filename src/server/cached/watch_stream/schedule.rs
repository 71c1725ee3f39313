//! When a watch gets bookmarks, and when it ends (`docs/semantics.md` §5.6, §5.7).

use std::time::Duration;

use tokio::time::Instant;

use crate::server::drain::WATCH_AGE_MIN;

/// When a watch gets bookmarks, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    begun: Instant,
    /// When the watch ends.
    pub(super) end: Instant,
    /// Whether the client wants bookmarks.
    pub(super) bookmarks: bool,
    /// When the next bookmark is due; `None` for no more.
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

    /// Returns for how long the watch has lasted.
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
