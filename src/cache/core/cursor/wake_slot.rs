//! The task that reads a watcher, until it is woken, and whether a timer of the task fired.
//! `cursor.rs` describes the protocol.
//!
//! It uses nothing but atomics, so that tests/interleavings can run it with loom's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// The task of a watcher.
#[derive(Debug, Default)]
pub(crate) struct WakeSlot {
    /// The task to wake, until it is woken.
    task: AtomicWaker,
    /// Whether a timer fired since the flag was last taken.
    timer_fired: AtomicBool,
}

impl WakeSlot {
    /// Registers the task to wake, once. Call this before the last check of the marks and of the
    /// timer flag.
    pub(crate) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Wakes the registered task. Call this after a state was published.
    pub(crate) fn wake(&self) {
        self.task.wake();
    }

    /// Sets the timer flag, and wakes the registered task.
    pub(super) fn fire_timer(&self) {
        self.timer_fired.store(true, Ordering::Release);
        self.task.wake();
    }

    /// Clears the timer flag and returns whether it was set.
    pub(crate) fn take_timer_fired(&self) -> bool {
        // The flag is rarely set, and a load is cheaper than a swap.
        self.timer_fired.load(Ordering::Relaxed) && self.timer_fired.swap(false, Ordering::Acquire)
    }
}
