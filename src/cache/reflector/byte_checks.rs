//! Checks whether the bytes of a list are those of an old definition.
//!
//! The instances of an upstream learn of a changed definition one after another, and the list and
//! the watch of a cache may reach different ones. So after a change the first watch verifies the
//! bytes of the list before an event counts, and once more when every instance must have seen the
//! change (`docs/decisions/upstream-bytes.md`).

use std::time::Duration;

use tokio::time::Instant;

/// The checks that are still to be made.
#[derive(Debug, Default)]
pub(super) struct ByteChecks {
    /// The number of lists that are still to be verified.
    checks_left: u32,
    /// The time of the next verification of the bytes by an open watch.
    next_check: Option<Instant>,
}

impl ByteChecks {
    /// Checks are due if the definition has just changed.
    pub(super) fn new(is_redefined: bool) -> Self {
        if !is_redefined {
            return Self::default();
        }
        Self { checks_left: CHECKS_MAX, next_check: Some(Instant::now() + LATE_CHECK_DELAY) }
    }

    /// Whether the watch after a list verifies the bytes of the list.
    pub(super) fn are_due(&self) -> bool {
        self.checks_left > 0
    }

    /// When an open watch verifies the bytes; `None` if it need not.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// Notes that the late verification begins.
    pub(super) fn begin_late_check(&mut self) {
        self.next_check = None;
    }

    /// Notes that the bytes were the same.
    pub(super) fn note_same(&mut self) {
        self.checks_left = 0;
    }

    /// Notes that the bytes differed. Returns whether a check was due already.
    pub(super) fn note_different(&mut self) -> bool {
        let was_due = self.are_due();
        self.checks_left = if was_due { self.checks_left - 1 } else { CHECKS_MAX };
        was_due
    }
}

/// The number of lists in a row that are verified. Instances of different versions may write
/// different bytes for as long as they run side by side; the cache must not list for ever.
const CHECKS_MAX: u32 = 4;
/// The delay of the second verification of an open watch.
const LATE_CHECK_DELAY: Duration = Duration::from_secs(30);
