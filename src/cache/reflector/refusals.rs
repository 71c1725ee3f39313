//! Refusals of the upstream (403, 404, 405, 406), and how long they are not believed.
//!
//! While kube-apiserver starts, it answers 403 until it has read roles and bindings, and 404 for a
//! custom resource until it has read the definitions. With several API servers behind one address,
//! one that starts can refuse what the others allow. So a cache that has had a state keeps it, and
//! its watches, until a refusal has lasted for [`BELIEVED_AFTER`]. Access reviews must then deny a
//! 403. A resource that is gone is not served until then: discovery retires its cache.
//!
//! Malformed responses are not believed at once for the same reason: what stands between Weir and
//! an API server may send them for a while.
//!
//! The decision is in `docs/decisions/reflector-failures.md`.
//!
//! A new cache has no state to keep, and its requests wait. It ends with the first refusal, or
//! after [`COLD_RETRY_DURATION`] if nothing was known of the resource before. The registry starts
//! it again soon.

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::refusal::Refusal;

/// The refusals since a watch was last open.
#[derive(Debug, Default)]
pub(super) struct RefusalStreak {
    since: Option<Instant>,
}

/// The malformed responses since one could be parsed.
#[derive(Debug, Default)]
pub(super) struct MalformedStreak {
    since: Option<Instant>,
    count: u32,
}

/// The reaction to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Try again after at least `min` and at most `max`.
    Retry {
        /// The shortest wait.
        min: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Ask access reviews whether Weir's identity lacks the right.
    Review,
    /// The reflector ends.
    Believe,
}

impl RefusalStreak {
    /// Notes a refusal. `had_state` is whether the cache has had a state, `is_patient` whether a
    /// new cache may try again.
    pub(super) fn note(&mut self, refusal: Refusal, had_state: bool, is_patient: bool) -> Verdict {
        let now = Instant::now();
        let lasted = now.duration_since(*self.since.get_or_insert(now));
        if !had_state {
            let may_pass = matches!(refusal, Refusal::Forbidden | Refusal::Unknown);
            if !(is_patient && may_pass) || lasted >= COLD_RETRY_DURATION {
                return Verdict::Believe;
            }
            let wait = lasted.max(COLD_WAIT);
            return Verdict::Retry { min: wait, max: wait };
        }
        if lasted < BELIEVED_AFTER {
            return Verdict::Retry { min: Duration::ZERO, max: WAIT_MAX };
        }
        if refusal == Refusal::Forbidden { Verdict::Review } else { Verdict::Believe }
    }

    /// Ends the streak: a watch is open, and what it needs is allowed.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

impl MalformedStreak {
    /// Notes a malformed response. Returns whether the reflector ends; until then the usual
    /// back-off applies. `had_state` is whether the cache has had a state.
    pub(super) fn note(&mut self, had_state: bool) -> bool {
        let now = Instant::now();
        let lasted = now.duration_since(*self.since.get_or_insert(now));
        self.count += 1;
        match had_state {
            true => self.count >= MALFORMED_WITH_STATE_MAX && lasted >= BELIEVED_AFTER,
            false => self.count >= MALFORMED_MAX,
        }
    }

    /// Ends the streak: a response could be parsed.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }
}

/// After this number of malformed responses in a row, a resource without a state is considered
/// unreadable. A single one may be a stream that was cut within an object.
const MALFORMED_MAX: u32 = 2;
/// The same for a cache with a state. The usual back-off before as many attempts takes about as
/// long as [`BELIEVED_AFTER`].
const MALFORMED_WITH_STATE_MAX: u32 = 5;
/// How long a refusal must have lasted before a cache with a state ends. Far longer than an API
/// server needs to read its roles and definitions when it starts.
const BELIEVED_AFTER: Duration = Duration::from_secs(30);
/// The longest wait between two attempts until then, so that a cache continues soon after the
/// refusals end, and a lost right is noticed soon after [`BELIEVED_AFTER`].
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a new cache tries again. An API server was seen to refuse for up to 0.35 s while it
/// started. Requests wait for this once for each resource that Weir's identity may not list.
const COLD_RETRY_DURATION: Duration = Duration::from_secs(1);
/// The first wait of a new cache. Each later one doubles the time since the first refusal.
const COLD_WAIT: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cache_with_a_state_believes_a_refusal_after_half_a_minute() {
        let mut streak = RefusalStreak::default();
        let retry = Verdict::Retry { min: Duration::ZERO, max: WAIT_MAX };
        assert_eq!(streak.note(Refusal::Forbidden, true, false), retry);
        tokio::time::advance(BELIEVED_AFTER - Duration::from_millis(1)).await;
        assert_eq!(streak.note(Refusal::Forbidden, true, false), retry);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(streak.note(Refusal::Forbidden, true, false), Verdict::Review);
        assert_eq!(streak.note(Refusal::Unknown, true, false), Verdict::Believe);
        streak.end();
        assert_eq!(streak.note(Refusal::Forbidden, true, false), retry);
    }

    #[tokio::test(start_paused = true)]
    async fn malformed_responses_are_believed_sooner_without_a_state() {
        let mut streak = MalformedStreak::default();
        assert_eq!((streak.note(false), streak.note(false)), (false, true));
        streak.end();
        for _ in 0..MALFORMED_WITH_STATE_MAX {
            assert!(!streak.note(true), "they have not lasted");
        }
        tokio::time::advance(BELIEVED_AFTER).await;
        assert!(streak.note(true));
        streak.end();
        assert!(!streak.note(true));
        tokio::time::advance(BELIEVED_AFTER).await;
        assert!(!streak.note(true), "they are few");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_cache_tries_a_few_times_within_a_second() {
        let mut streak = RefusalStreak::default();
        let began = Instant::now();
        let mut attempts = 1;
        while let Verdict::Retry { min, max } = streak.note(Refusal::Forbidden, false, true) {
            assert_eq!(min, max);
            tokio::time::advance(min).await;
            attempts += 1;
        }
        assert_eq!((attempts, began.elapsed()), (4, COLD_RETRY_DURATION));
        for (refusal, is_patient) in [(Refusal::Forbidden, false), (Refusal::NotWatchable, true)] {
            let verdict = RefusalStreak::default().note(refusal, false, is_patient);
            assert_eq!(verdict, Verdict::Believe);
        }
    }
}
