//! Whether an upstream supports watch-lists (KEP-3157): detected at the first attempt.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether an upstream supports watch-lists. Unknown until one was tried
/// (`docs/decisions/older-api-servers.md`).
#[derive(Debug, Default)]
pub(crate) struct WatchListSupport(AtomicU8);

impl WatchListSupport {
    /// Whether a watch-list should be tried: it is supported, or the support is unknown.
    pub(crate) fn is_worth_trying(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UNSUPPORTED
    }

    /// Whether a watch-list has reached the end of its initial events.
    pub(crate) fn is_supported(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SUPPORTED
    }

    /// Whether the support is known.
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Notes that a watch-list reached the end of its initial events.
    pub(crate) fn set_supported(&self) {
        self.0.store(SUPPORTED, Ordering::Relaxed);
    }

    /// Notes that the upstream rejected a watch-list as invalid.
    pub(crate) fn set_unsupported(&self) {
        self.0.store(UNSUPPORTED, Ordering::Relaxed);
    }

    /// Notes that the upstream answered watch-lists like ordinary watches. Has no effect once the
    /// support is known.
    pub(crate) fn presume_unsupported(&self) {
        let _unchanged = self
            .0
            .compare_exchange(UNKNOWN, UNSUPPORTED, Ordering::Relaxed, Ordering::Relaxed)
            .is_err();
    }
}

const UNKNOWN: u8 = 0;
const SUPPORTED: u8 = 1;
const UNSUPPORTED: u8 = 2;
