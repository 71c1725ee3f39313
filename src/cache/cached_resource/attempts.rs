//! The attempts of a cache to learn what a list does not show, of which one runs at a time.
//! [`watch_list_attempt`](crate::cache::watch_list_attempt) says what an attempt is.
//!
//! Lock order: the map of the [`SingleFlight`], then `failed`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tasks::single_flight::{InFlightGuard, SharedOutcome, SingleFlight};

/// The attempts of one cache.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    running: SingleFlight<(), ()>,
    /// When the last attempt ended, if it brought no answer.
    failed: Mutex<Option<Instant>>,
}

/// The end of an attempt, and the guard of one that the caller must make.
type Joined = (SharedOutcome<()>, Option<InFlightGuard<(), ()>>);

impl Attempts {
    /// Joins the attempt in progress, or begins one. Returns `None` if the last one failed a moment
    /// ago.
    pub(crate) fn join(&self) -> Option<Joined> {
        let may_start = || {
            let failed = *self.failed.lock();
            let is_recent = failed.is_some_and(|failed| failed.elapsed() < RETRY_AFTER);
            if is_recent { Err(()) } else { Ok(()) }
        };
        let (outcome, run) = self.running.try_join(&(), may_start).ok()?;
        Some((outcome, run.map(|(guard, ())| guard)))
    }

    /// Notes whether the attempt in progress brought an answer, before its guard is completed.
    pub(crate) fn note_end(&self, is_answered: bool) {
        *self.failed.lock() = (!is_answered).then(Instant::now);
    }
}

/// The pause after an attempt without an answer. Meanwhile the watches that need it are forwarded.
const RETRY_AFTER: Duration = Duration::from_secs(10);
