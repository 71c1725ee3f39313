//! The failures of a reflector's lists, as far as they decide about the next list.

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::reflector::failure::Failure;

/// The outcome of the lists since the last success.
#[derive(Debug, Default)]
pub(super) struct ListAttempts {
    /// Whether the next list must be consistent, because a list not older than the held state
    /// failed.
    pub(super) consistent: bool,
    /// Whether a streamed list failed. Until a list succeeds, watch-lists are used then, since no
    /// request time-out ends them.
    pub(super) stream_failed: bool,
    /// Watch-lists in a row that did not reach the end of their initial events.
    silent_watch_lists: u32,
    too_large: Option<TooLargeStreak>,
}

/// The responses in a row in which the upstream had not reached the held resourceVersion.
#[derive(Debug)]
struct TooLargeStreak {
    since: Instant,
    times: u32,
}

impl ListAttempts {
    /// Notes a failed list.
    pub(super) fn note_failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Silent => self.silent_watch_lists += 1,
            Failure::Expired => self.consistent = true,
            // A consistent list is at least as new as the held state, unless the history was
            // rewound. The commit of the list detects that.
            Failure::TooLarge if self.is_too_large_for_long() => self.consistent = true,
            _ => {}
        }
    }

    /// Notes that a list was committed.
    pub(super) fn note_success(&mut self) {
        self.consistent = false;
        self.stream_failed = false;
        self.silent_watch_lists = 0;
        self.too_large = None;
    }

    /// Forgets the failures that depend on the held state, after that state was dropped.
    pub(super) fn forget_held(&mut self) {
        self.consistent = false;
        self.too_large = None;
    }

    /// Whether watch-lists of this resource did not stay silent too often.
    pub(super) fn may_watch_list(&self) -> bool {
        self.silent_watch_lists < SILENT_WATCH_LISTS_MAX
    }

    /// Whether one more silent watch-list is the last one that is tried.
    pub(super) fn is_last_watch_list(&self) -> bool {
        self.silent_watch_lists + 1 >= SILENT_WATCH_LISTS_MAX
    }

    fn is_too_large_for_long(&mut self) -> bool {
        let now = Instant::now();
        let streak = self.too_large.get_or_insert(TooLargeStreak { since: now, times: 0 });
        streak.times += 1;
        streak.times >= TOO_LARGE_TIMES_MIN
            && now.duration_since(streak.since) >= TOO_LARGE_DURATION_MIN
    }
}

/// After this number of silent watch-lists in a row a resource is listed page by page.
const SILENT_WATCH_LISTS_MAX: u32 = 2;
/// How often, at least, the upstream must not have reached the held resourceVersion before a
/// rewound history is suspected.
const TOO_LARGE_TIMES_MIN: u32 = 3;
/// How long, at least, the upstream must not have reached the held resourceVersion before a rewound
/// history is suspected: an instance of the upstream may lag behind another.
const TOO_LARGE_DURATION_MIN: Duration = Duration::from_secs(30);
