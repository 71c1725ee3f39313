//! When a watch gets bookmarks, and when it ends (`docs/semantics.md` §5.6, §5.7).

use std::time::Duration;

use tokio::time::Instant;

/// When a watch gets bookmarks, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// When the watch ends.
    pub(super) end: Instant,
    /// Whether the client wants bookmarks.
    pub(super) bookmarks: bool,
    /// When the next bookmark is due; `None` for no more.
    pub(super) next_bookmark: Option<Instant>,
}

impl Schedule {
    /// Creates the schedule of a watch that begins at `start`. Without a `timeout` of the client's
    /// it ends after 30 to 60 minutes.
    pub(crate) fn new(start: Instant, timeout: Option<Duration>, bookmarks: bool) -> Self {
        let timeout = timeout
            .unwrap_or_else(|| DURATION_MIN.mul_f64(1.0 + fastrand::f64()))
            .min(DURATION_MAX);
        let mut schedule = Self { end: start + timeout, bookmarks, next_bookmark: None };
        if bookmarks {
            schedule.schedule_bookmark(start);
        }
        schedule
    }

    /// Schedules the next bookmark a minute after `now` or just before the end, whichever is
    /// sooner. There is none in the last two seconds.
    pub(super) fn schedule_bookmark(&mut self, now: Instant) {
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
