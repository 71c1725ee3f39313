//! Whether an upstream supports watch-lists (KEP-3157): learned by trying one.
//!
//! An upstream changes: it is upgraded, or was slow only once. So the answer "no" is valid for a
//! while only ([`REJECTED_FOR`], [`UNSUPPORTED_FOR`]), and every answer is doubted when the version
//! of the upstream changes. Until the next attempt the last answer is still given to clients'
//! watches.
//!
//! [`watch_list_attempt`](super::watch_list_attempt) tries one; a watch-list that fills a cache may
//! bring the same answer.
//!
//! Lock order: the map of the [`SingleFlight`], then `failed`; `answer`, with no other lock.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tasks::single_flight::SingleFlight;

/// Whether an upstream supports watch-lists. Unknown until one was tried
/// (`docs/decisions/exact-lists-and-pages.md`).
#[derive(Debug, Default)]
pub(crate) struct WatchListSupport {
    answer: Mutex<Option<Answer>>,
    pub(super) attempts: SingleFlight<(), ()>,
    /// When the last attempt ended, if it brought no answer.
    pub(super) failed: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    is_supported: bool,
    /// Whether the upstream compresses watch-lists; `None` if no attempt has shown it.
    is_compressed: Option<bool>,
    /// When it must be learned again; `None` if it stays valid.
    expires: Option<Instant>,
}

impl Answer {
    fn is_valid(&self) -> bool {
        self.expires.is_none_or(|expires| Instant::now() < expires)
    }
}

impl WatchListSupport {
    /// Returns the last answer, valid or not; `None` while nothing is known.
    pub(crate) fn last_answer(&self) -> Option<bool> {
        self.answer.lock().map(|answer| answer.is_supported)
    }

    /// Whether a watch-list has reached the end of its initial events, at the last attempt.
    pub(crate) fn is_supported(&self) -> bool {
        self.last_answer() == Some(true)
    }

    /// Whether the upstream compresses watch-lists for clients that accept gzip, as from 1.37 on.
    /// `None` if no attempt has shown it.
    pub(crate) fn is_compressed(&self) -> Option<bool> {
        self.answer.lock().and_then(|answer| answer.is_compressed)
    }

    /// Whether the support is known and need not be learned again.
    pub(crate) fn is_known(&self) -> bool {
        self.answer.lock().is_some_and(|answer| answer.is_valid())
    }

    /// Whether a watch-list should be tried: it is supported, or the support is not known.
    pub(crate) fn is_worth_trying(&self) -> bool {
        self.is_supported() || !self.is_known()
    }

    /// Whether an answer was known and must be learned again.
    pub(crate) fn has_expired(&self) -> bool {
        self.answer.lock().is_some_and(|answer| !answer.is_valid())
    }

    /// Notes an attempt to renew an answer that has expired. The next one follows after
    /// [`UNSUPPORTED_FOR`] without an answer.
    pub(crate) fn note_attempt(&self) {
        if let Some(expired) = self.answer.lock().as_mut().filter(|answer| !answer.is_valid()) {
            expired.expires = Some(Instant::now() + UNSUPPORTED_FOR);
        }
    }

    /// Notes that a watch-list reached the end of its initial events. This stays valid: an upstream
    /// that no longer has watch-lists refuses the next one.
    ///
    /// `is_compressed` is `None` if it did not accept gzip.
    pub(crate) fn set_supported(&self, is_compressed: Option<bool>) {
        let mut answer = self.answer.lock();
        let before = answer.and_then(|answer| answer.is_compressed);
        let is_compressed = is_compressed.or(before);
        *answer = Some(Answer { is_supported: true, is_compressed, expires: None });
    }

    /// Notes that the upstream rejected a watch-list as invalid.
    pub(crate) fn set_unsupported(&self) {
        self.set_unsupported_for(REJECTED_FOR);
    }

    /// Notes that the upstream answered watch-lists like ordinary watches, or too slowly. Has no
    /// effect if a watch-list has succeeded.
    pub(crate) fn presume_unsupported(&self) {
        if !self.is_supported() {
            self.set_unsupported_for(UNSUPPORTED_FOR);
        }
    }

    fn set_unsupported_for(&self, duration: Duration) {
        let expires = Some(Instant::now() + duration);
        *self.answer.lock() = Some(Answer { is_supported: false, is_compressed: None, expires });
    }

    /// Doubts the answer, because the version of the upstream changed.
    pub(crate) fn expire(&self) {
        if let Some(answer) = self.answer.lock().as_mut() {
            answer.expires = Some(Instant::now());
        }
    }
}

/// How long a rejection is valid. The upstream rejects another attempt at once, which costs less
/// than a paged list. A feature gate may be switched on without another version.
const REJECTED_FOR: Duration = Duration::from_secs(60);
/// How long it is believed that an upstream has no watch-lists which did not say so. A wrong answer
/// costs a paged list, and clients' watch-lists are forwarded; another attempt costs an empty
/// watch.
const UNSUPPORTED_FOR: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_there_are_no_watch_lists_is_believed_for_a_while_only() {
        type Learn = fn(&WatchListSupport);
        let answers: [(Learn, Duration); 2] = [
            (WatchListSupport::set_unsupported, REJECTED_FOR),
            (WatchListSupport::presume_unsupported, UNSUPPORTED_FOR),
        ];
        for (learn, duration) in answers {
            let support = WatchListSupport::default();
            assert!(support.is_worth_trying() && support.last_answer().is_none());
            learn(&support);
            assert!(!support.is_worth_trying() && support.is_known());
            tokio::time::advance(duration - Duration::from_secs(1)).await;
            assert!(support.is_known());
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(support.is_worth_trying() && support.has_expired());
            assert_eq!(support.last_answer(), Some(false), "until it is learned again");
            assert!(support.has_expired());
            support.note_attempt();
            assert!(!support.has_expired(), "one attempt at a time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_version_of_the_upstream_is_asked_again() {
        let support = WatchListSupport::default();
        support.set_unsupported();
        support.expire();
        assert!(support.is_worth_trying() && !support.is_known());
        support.set_supported(Some(false));
        support.presume_unsupported();
        assert!(support.is_known() && support.is_supported(), "it was only slow");
        support.expire();
        assert!(support.is_supported() && !support.is_known());
    }
}
