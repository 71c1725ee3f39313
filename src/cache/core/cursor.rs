//! The part of a watcher that the writer sees too: how far it has taken, and what it is owed.
//!
//! A watcher has no queue. The writer tells it by two numbers which events may concern it: `from`, the first one
//! that it may not have taken, and `to`, the one after the last. The watcher tells by `taken` how far it came.
//! It is owed something exactly if `taken < to`, and then nothing before `max(from, taken)`; so a watcher that
//! nothing concerned for long does not fall out of the window, however far the window moved on.
//!
//! `from` and `to` are written only by the writer (under the cache's mutex), `taken` only by the watcher. The writer moves
//! `from` only when it sees `to <= taken`, all marks taken; so while the watcher sees `to > taken`, `from` stands
//! still. A stale `taken` read by the writer leaves `from` too low, never too high.
//!
//! The order that everything hangs on: marks are set, then the state is published, then watchers are woken; and a
//! watcher loads the state first and the marks after it. Were a mark set after the publishing, a watcher could find
//! nothing owed in a state that holds an event for it, claim the state's resourceVersion in a bookmark, and the client that
//! resumes there would never see the event. The end of a watch is set before the publishing for the same reason.
//!
//! A cursor knows the one task that waits for its watcher. Whoever wakes it takes it out, so that a watcher that does not come back, since
//! its client reads nothing, is woken once and left alone. The task may have alarms of its own beside the cache (a deadline, a right that ends):
//! those ring through the cursor ([`Cursor::timer_waker`]), and it need not look at them at any other wake-up. The watcher first names its task
//! and then looks at the alarms and the marks; who rings or marks does that first and wakes then. So one of them sees the other.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::end_cause::EndCause;
use crate::cache::core::index_key::IndexKey;
use crate::cache::core::now::Now;
use crate::cache::core::state::State;
use crate::codec::object::Object;

/// See the module.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Tells cursors apart within a cache.
    pub(super) id: u64,
    /// Where the dispatcher keeps it.
    pub(super) index_key: IndexKey,
    /// Its index there. Written only under the cache's mutex.
    pub(super) slot: AtomicUsize,
    /// Events whose place is not after this are not delivered: the asked start or the initial state, where they were ahead of the cache; else zero.
    pub(super) skip_through: ResourceVersion,
    /// The task that waits, until it is woken.
    task: AtomicWaker,
    /// Whether an alarm rang that was not looked at.
    timer_fired: AtomicBool,
    /// The initial state, until it is taken or taken away.
    pub(super) initial: Mutex<Option<InitialEvents>>,
    end: OnceLock<WatchEnd>,
    marked_from: AtomicU64,
    marked_to: AtomicU64,
    position: AtomicU64,
    /// The last batch that marked it, so that each batch wakes it once. Written only under the cache's mutex.
    round: AtomicU64,
}

/// How a watch ends: with what is still owed, and why.
#[derive(Debug)]
pub(super) struct WatchEnd {
    /// The last state that the watch is about.
    pub(super) state: Arc<State>,
    /// Why it ends.
    pub(super) cause: EndCause,
}

/// A state that is being walked as ADDED events.
#[derive(Debug)]
pub(super) struct InitialEvents {
    /// The state.
    pub(super) state: Arc<State>,
    /// The last object taken.
    pub(super) after: Option<Arc<Object>>,
    /// How often something was taken, and how often it had been at the last check for stalled watchers.
    pub(super) batches: u64,
    /// The number of steps that such a check saw first, and when.
    pub(super) last_check: Option<(u64, Now)>,
}

impl InitialEvents {
    /// A walk from the start.
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state, after: None, batches: 0, last_check: None }
    }
}

impl Cursor {
    /// One that is owed the events from `from` up to but not including `to`, after its initial ones.
    pub(super) fn new(
        id: u64,
        index_key: IndexKey,
        (from, to): (u64, u64),
        skip_through: ResourceVersion,
        initial: Option<InitialEvents>,
    ) -> Self {
        Self {
            id,
            index_key,
            skip_through,
            slot: AtomicUsize::new(0),
            task: AtomicWaker::new(),
            timer_fired: AtomicBool::new(false),
            initial: Mutex::new(initial),
            end: OnceLock::new(),
            marked_from: AtomicU64::new(from),
            marked_to: AtomicU64::new(to),
            position: AtomicU64::new(from),
            round: AtomicU64::new(0),
        }
    }

    /// Marks the events from `first` to `last` as ones that may concern it. Returns whether it is the batch's first mark. To be called
    /// under the cache's mutex, before they are published, with ascending numbers.
    pub(super) fn mark(&self, (first, last): (u64, u64), round: u64) -> bool {
        if self.marked_to.load(Ordering::Relaxed) <= self.position.load(Ordering::Acquire) {
            self.marked_from.store(first, Ordering::Relaxed);
        }
        self.marked_to.store(last + 1, Ordering::Release);
        self.round.swap(round, Ordering::Relaxed) != round
    }

    /// The numbers of the first event owed of a state, and of the one after the last; `None` if nothing is. The
    /// state must have been loaded before.
    pub(super) fn pending(&self, state: &State) -> Option<(u64, u64)> {
        let to = self.marked_to.load(Ordering::Acquire).min(state.history().end_seq());
        let from =
            self.marked_from.load(Ordering::Relaxed).max(self.position.load(Ordering::Relaxed));
        (from < to).then_some((from, to))
    }

    /// Whether nothing is marked that was not taken, and it has not ended: no state need be looked at. It tells nothing of what a bookmark may claim.
    pub(super) fn is_idle(&self) -> bool {
        self.marked_to.load(Ordering::Acquire) <= self.position.load(Ordering::Relaxed)
            && self.end.get().is_none()
    }

    /// Names the task to be woken from now on, once. To be called before marks and alarms are looked at for the last time.
    pub(super) fn register_waker(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Wakes the task that waits. To be called once a state is published.
    pub(super) fn wake_task(&self) {
        self.task.wake();
    }

    /// What to give to a future of the watcher's own task that is to be polled only when it is due: it rings, and wakes the task.
    pub(super) fn timer_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Whether an alarm rang since the last call.
    pub(super) fn take_timer_fired(&self) -> bool {
        // Mostly not; reading costs less.
        self.timer_fired.load(Ordering::Relaxed) && self.timer_fired.swap(false, Ordering::Acquire)
    }

    /// Everything before this number was taken.
    pub(super) fn set_position(&self, seq: u64) {
        self.position.store(seq, Ordering::Release);
    }

    /// Ends the watch; to be called under the cache's mutex, before the next state is published.
    pub(super) fn set_end(&self, end: WatchEnd) {
        // Only the first end counts, and none comes twice: an ended cursor is in no index.
        drop(self.end.set(end));
    }

    /// How the watch ends, once it does. To be read after the state was loaded.
    pub(super) fn end(&self) -> Option<&WatchEnd> {
        self.end.get()
    }

    /// Takes the initial state away from a watcher that took nothing of it between an earlier call and `now`, if that call is
    /// `older_than` ago. Returns whether it did.
    pub(super) fn end_if_stalled(&self, older_than: std::time::Duration, now: Now) -> bool {
        let mut slot = self.initial.lock();
        let Some(initial) = slot.as_mut() else { return false };
        match initial.last_check {
            Some((batches, since)) if batches == initial.batches => {
                if now.0.saturating_sub(since.0) < older_than {
                    return false;
                }
            }
            _ => {
                initial.last_check = Some((initial.batches, now));
                return false;
            }
        }
        // The state may be the last of its kind: it is freed after the lock.
        let initial = slot.take();
        drop(slot);
        drop(initial);
        self.wake_task();
        true
    }
}

impl Wake for Cursor {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.timer_fired.store(true, Ordering::Release);
        self.task.wake();
    }
}
