//! A waker that defers notifications received while its task is already being polled. They set a
//! flag instead of rescheduling the task.
//!
//! The parts of a connection wake each other while they are polled: a stream that has a frame wakes
//! its connection, and a request wakes its stream. With the task's own waker, the scheduler would
//! treat this as a task that yields: it would queue the task behind all others, wake another thread
//! to look for work, and poll everything once more for nothing. A flag that is set during the turn
//! is only checked before the turn ends.
//!
//! One atomic holds the state; there is no lock. A task that ends a turn without a successful
//! [`DeferredWaker::try_idle`] must wake itself: a waker in state POLLING wakes no task.
//!
//! | from | by | to |
//! |---|---|---|
//! | IDLE | [`DeferredWaker::take_notified`] | POLLING |
//! | POLLING or NOTIFIED | [`DeferredWaker::take_notified`] | POLLING |
//! | POLLING | a notification | NOTIFIED |
//! | POLLING | [`DeferredWaker::try_idle`] | IDLE |
//! | IDLE | a notification, which wakes the task | NOTIFIED |
//! | NOTIFIED | [`DeferredWaker::try_idle`] | NOTIFIED, and returns false |

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use futures_util::task::{ArcWake, AtomicWaker, WakerRef, waker_ref};

/// A waker of one part of a task. Its `data` is what the task reads after a notification; both
/// share one allocation.
#[derive(Debug)]
pub(crate) struct DeferredWaker<T = ()>(Arc<WakerState<T>>);

/// The shared half of a [`DeferredWaker`].
#[derive(Debug)]
pub(crate) struct WakerState<T> {
    state: AtomicU8,
    task: AtomicWaker,
    pub(crate) data: T,
}

const IDLE: u8 = 0;
const POLLING: u8 = 1;
/// A bit, so that a notification is one `fetch_or`.
const NOTIFIED: u8 = 2;

impl<T: Send + Sync + 'static> DeferredWaker<T> {
    pub(crate) fn new(data: T) -> Self {
        let state = AtomicU8::new(IDLE);
        Self(Arc::new(WakerState { state, task: AtomicWaker::new(), data }))
    }

    /// Returns the shared half, for those who share the data.
    pub(crate) fn state(&self) -> Arc<WakerState<T>> {
        Arc::clone(&self.0)
    }

    pub(crate) fn data(&self) -> &T {
        &self.0.data
    }

    /// Registers `task` to be woken by the next notification. Call this at the start of every turn.
    pub(crate) fn register(&self, task: &Waker) {
        self.0.task.register(task);
    }

    /// Clears the flag and returns whether it was set. Call this before polling the work it guards.
    pub(crate) fn take_notified(&self) -> bool {
        self.0.state.swap(POLLING, Ordering::AcqRel) & NOTIFIED != 0
    }

    /// Whether a notification arrived since [`Self::take_notified`].
    pub(crate) fn is_notified(&self) -> bool {
        self.0.state.load(Ordering::Acquire) & NOTIFIED != 0
    }

    /// Ends the turn. Returns false if a notification arrived since [`Self::take_notified`]: the
    /// work must be polled again.
    #[must_use]
    pub(crate) fn try_idle(&self) -> bool {
        let state = &self.0.state;
        state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns the waker to poll the guarded work with.
    pub(crate) fn waker(&self) -> WakerRef<'_> {
        waker_ref(&self.0)
    }
}

impl<T: Send + Sync + 'static> ArcWake for WakerState<T> {
    fn wake_by_ref(this: &Arc<Self>) {
        if this.state.fetch_or(NOTIFIED, Ordering::AcqRel) == IDLE {
            this.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_wakes_the_task_once_while_idle_and_never_during_a_turn() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let count = || woken.0.load(Ordering::Relaxed);
        let (deferred, task) = (DeferredWaker::new(()), Waker::from(Arc::clone(&woken)));
        let turn = || {
            deferred.register(&task);
            deferred.take_notified()
        };
        assert!(!turn());
        let waker = deferred.waker().clone();
        waker.wake_by_ref();
        assert!(deferred.is_notified() && !deferred.try_idle());
        assert!(deferred.take_notified(), "notified");
        assert!(!deferred.is_notified() && deferred.try_idle());
        assert_eq!(count(), 0);
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(count(), 1);
        assert!(turn());
        assert!(deferred.try_idle());
        waker.wake();
        assert_eq!(count(), 2);
    }

    /// A notification between two steps of another thread is either seen in the turn or wakes the
    /// task.
    #[test]
    fn no_notification_is_lost() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let (deferred, task) = (DeferredWaker::new(()), Waker::from(Arc::clone(&woken)));
        let sent = AtomicUsize::new(0);
        let waker = deferred.waker().clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=100_000 {
                    sent.store(number, Ordering::Release);
                    waker.wake_by_ref();
                }
            });
            let (mut seen, mut wakes) = (0, 0);
            while seen < 100_000 {
                deferred.register(&task);
                deferred.take_notified();
                seen = sent.load(Ordering::Acquire);
                if deferred.try_idle() {
                    // Like a task, wait until woken.
                    while seen < 100_000 && woken.0.load(Ordering::Acquire) == wakes {
                        std::thread::yield_now();
                    }
                    wakes = woken.0.load(Ordering::Acquire);
                }
            }
        });
    }
}
