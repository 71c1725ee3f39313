//! Counts the users of a cache and the requests that wait for it.
//!
//! The registry stops caches that nobody has used for a while.
//!
//! Invariant: a cache is idle only while no handle counts as a use.
//!
//! No locks.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::cache::clock::Clock;

/// The users of a cache.
#[derive(Debug)]
pub(crate) struct Usage {
    clock: Clock,
    users: AtomicUsize,
    last_used_ms: AtomicU64,
    ready_waiters: AtomicUsize,
}

impl Usage {
    /// Starts without users.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            users: AtomicUsize::new(0),
            last_used_ms: AtomicU64::new(clock.millis()),
            ready_waiters: AtomicUsize::new(0),
        }
    }

    /// Counts a use, until [`Self::end`].
    pub(crate) fn begin(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
        self.last_used_ms.store(self.clock.millis(), Ordering::Relaxed);
    }

    /// Ends a use.
    pub(crate) fn end(&self) {
        self.last_used_ms.store(self.clock.millis(), Ordering::Relaxed);
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is no user.
    pub(crate) fn is_unused(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    /// Returns when a use last began or ended, in milliseconds of the caches' clock.
    pub(crate) fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// Whether there was no user for at least `timeout`.
    pub(crate) fn is_idle(&self, timeout: Duration) -> bool {
        let idle_ms = self.clock.millis().saturating_sub(self.last_used_ms());
        self.is_unused() && u128::from(idle_ms) >= timeout.as_millis()
    }

    /// Returns the number of requests that wait for the first state.
    pub(crate) fn ready_waiters(&self) -> usize {
        self.ready_waiters.load(Ordering::Relaxed)
    }

    /// Counts a request that waits for the first state. Returns `None` if too many wait already.
    pub(crate) fn add_ready_waiter(&self) -> Option<ReadyWaiter<'_>> {
        let waiter = ReadyWaiter { usage: self };
        let before = self.ready_waiters.fetch_add(1, Ordering::Relaxed);
        (before < READY_WAITERS_MAX).then_some(waiter)
    }
}

/// A request that waits for the first state of a cache. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct ReadyWaiter<'a> {
    usage: &'a Usage,
}

impl Drop for ReadyWaiter<'_> {
    fn drop(&mut self) {
        self.usage.ready_waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests that may wait for the first state of one cache. Further ones are forwarded within the
/// forward budget.
const READY_WAITERS_MAX: usize = 16_384;
