//! A waker for what is polled in turns: what it hears while its turn lasts costs no wake-up.
//!
//! The parts of a connection wake each other while they are polled: a stream that has a frame wakes its connection, and a request its stream. By
//! the task's own waker the scheduler would take that for a task that yields: it queues it behind all others, wakes another thread to look for work, and
//! polls everything once more for nothing. A deferred rung during the turn is only looked at before the turn ends.
//!
//! One atomic holds the state; there is no lock. Whoever ends a turn without [`DeferredWaker::try_idle`] wakes the task itself: a deferred that still listens wakes nobody.
//!
//! | from | by | to |
//! |---|---|---|
//! | resting | [`DeferredWaker::take_notified`] | listening |
//! | listening, or rung meanwhile | [`DeferredWaker::take_notified`] | listening |
//! | listening | ringing | rung |
//! | listening | [`DeferredWaker::try_idle`] | resting |
//! | resting | ringing, which wakes the task | rung |
//! | rung | [`DeferredWaker::try_idle`] | rung, and says so |

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;

use futures_util::task::{ArcWake, AtomicWaker, WakerRef, waker_ref};

/// See the module. It carries what is looked at when it rang, so that both lie together.
#[derive(Debug)]
pub(crate) struct DeferredWaker<T = ()>(Arc<WakerState<T>>);

/// What rings a deferred.
#[derive(Debug)]
pub(crate) struct WakerState<T> {
    state: AtomicU8,
    task: AtomicWaker,
    /// See [`DeferredWaker::data`].
    pub(crate) data: T,
}

const IDLE: u8 = 0;
const POLLING: u8 = 1;
/// A bit.
const NOTIFIED: u8 = 2;

impl<T: Send + Sync + 'static> DeferredWaker<T> {
    pub(crate) fn new(data: T) -> Self {
        let state = AtomicU8::new(IDLE);
        Self(Arc::new(WakerState { state, task: AtomicWaker::new(), data }))
    }

    /// For who shares what it carries.
    pub(crate) fn state(&self) -> Arc<WakerState<T>> {
        Arc::clone(&self.0)
    }

    /// What it was made with.
    pub(crate) fn data(&self) -> &T {
        &self.0.data
    }

    /// Whom to wake while it rests, once. To be said at the beginning of each turn.
    pub(crate) fn register(&self, task: &Waker) {
        self.0.task.register(task);
    }

    /// What rang before is about to be looked at. To be called before that is polled. Tells whether anything did.
    pub(crate) fn take_notified(&self) -> bool {
        self.0.state.swap(POLLING, Ordering::AcqRel) & NOTIFIED != 0
    }

    /// Whether it rang since.
    pub(crate) fn is_notified(&self) -> bool {
        self.0.state.load(Ordering::Acquire) & NOTIFIED != 0
    }

    /// Ends the turn, unless it rang since: then there is something to look at still.
    #[must_use]
    pub(crate) fn try_idle(&self) -> bool {
        let state = &self.0.state;
        state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// To poll with.
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
    fn it_wakes_once_while_it_rests_and_never_during_a_turn() {
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
        assert!(deferred.take_notified(), "it rang");
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

    /// Whatever rings between two threads' steps is either looked at in the turn or wakes the task.
    #[test]
    fn nothing_that_rings_is_lost() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let (deferred, task) = (DeferredWaker::new(()), Waker::from(Arc::clone(&woken)));
        let said = AtomicUsize::new(0);
        let waker = deferred.waker().clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=100_000 {
                    said.store(number, Ordering::Release);
                    waker.wake_by_ref();
                }
            });
            let (mut heard, mut wakes) = (0, 0);
            while heard < 100_000 {
                deferred.register(&task);
                deferred.take_notified();
                heard = said.load(Ordering::Acquire);
                if deferred.try_idle() {
                    // Until it is woken, as a task would be.
                    while heard < 100_000 && woken.0.load(Ordering::Acquire) == wakes {
                        std::thread::yield_now();
                    }
                    wakes = woken.0.load(Ordering::Acquire);
                }
            }
        });
    }
}
