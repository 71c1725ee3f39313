//! The part of a watcher that it shares with the writer: its position and the events marked for it.
//!
//! A watcher has no queue. The writer marks the events that match the watcher's filter, or may
//! match it if there are too many filters to compare, as one range: `marked_from` is the number of
//! the first of them that the watcher may not have read, and `marked_to` the number after the last.
//! The watcher stores in `position` the number of the next event that it will read. Events are
//! pending exactly if `position < marked_to`, and the first of them is `max(marked_from,
//! position)`. A watcher without marked events therefore never falls out of the window, however far
//! the window has moved.
//!
//! Only the writer stores `marked_from` and `marked_to`, with the cache's mutex held. Only the
//! watcher stores `position`. The writer moves `marked_from` only when it sees `marked_to <=
//! position`, which means that all marked events were read. So `marked_from` does not change while
//! the watcher sees `marked_to > position`. If the writer reads an old `position`, `marked_from`
//! stays too low, but is never too high.
//!
//! Correctness depends on this order: the writer sets marks, then publishes the state, then wakes
//! the watchers; a watcher loads the state first and reads the marks after it. If the writer set a
//! mark after publishing, a watcher could find no pending event in a state that contains one for
//! it. It would then claim the state's resourceVersion in a bookmark, and a client that resumes
//! from there would never receive the event. The end of a watch is set before publishing for the
//! same reason.
//!
//! A cursor holds the waker of the task that reads the watcher. Waking removes the waker. A watcher
//! whose client does not read is therefore woken once and not again. The same task may also wait
//! for timers and other futures (a deadline, the end of an authorization). These wake it through
//! [`Cursor::timer_waker`], which also sets a flag, so that the task polls them only if the flag is
//! set. To avoid a lost wake-up, the task registers its waker before it reads the flag and the
//! marks, and the other side sets the flag or the mark before it wakes.

mod marks;
mod wake_slot;

use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

use self::marks::Marks;
use self::wake_slot::WakeSlot;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::filter::WatchFilter;
use crate::cache::core::state::State;
use crate::codec::object::Object;

/// The state of one watcher that is shared with the dispatcher.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Unique within a cache.
    pub(super) id: u64,
    /// The dispatcher's group of the watchers with an equal filter, which share it.
    pub(super) group: u64,
    pub(super) filter: Arc<WatchFilter>,
    /// Whether a part of this process reads the watcher, for which objects that cannot be read do
    /// not count.
    pub(super) is_follower: bool,
    /// Events up to this resourceVersion are not delivered. Set if the requested start or the
    /// initial state was ahead of the cache; zero otherwise.
    pub(super) skip_through: ResourceVersion,
    pub(super) wake_slot: WakeSlot,
    /// The initial state, until the watcher has read it.
    pub(super) initial: Mutex<Option<InitialEvents>>,
    end: OnceLock<WatchEnd>,
    pub(super) marks: Marks,
}

/// The end of a watch: the state up to which events are still delivered, and the cause.
#[derive(Debug)]
pub(super) struct WatchEnd {
    /// The last state that the watch covers.
    pub(super) state: Arc<State>,
    /// The cause that the watcher reports.
    pub(super) cause: EndCause,
}

/// The reason why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// A new list replaced the state.
    Relist,
    /// The state was proved wrong. The client may have received wrong events, and must list.
    Wrong,
    /// An aggregated API server serves the resource now. Its resourceVersions have nothing to do
    /// with those of the state, so that the client must list.
    Aggregated,
    /// The cache was stopped (idle, over budget, excluded, or shutdown).
    Stopped,
    /// An object that the watch may match cannot be read. The client resumes at the API server.
    Unreadable,
    /// The watcher fell out of the history window, or read its initial state too slowly.
    Slow,
}

/// The initial state of a watch, which is sent as ADDED events.
#[derive(Debug)]
pub(super) struct InitialEvents {
    /// The state that is sent.
    pub(super) state: Arc<State>,
    /// The last object that was read; `None` at the start.
    pub(super) after: Option<Arc<Object>>,
}

impl InitialEvents {
    /// Starts with the first object of `state`.
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state, after: None }
    }
}

impl Cursor {
    /// Creates a cursor, to which the dispatcher gives its id and group. The events from the first
    /// number of `pending` up to but not including the second are pending after the initial events.
    pub(super) fn new(
        filter: WatchFilter,
        pending: (u64, u64),
        skip_through: ResourceVersion,
        initial: Option<InitialEvents>,
    ) -> Self {
        Self {
            id: 0,
            group: 0,
            filter: Arc::new(filter),
            is_follower: false,
            skip_through,
            wake_slot: WakeSlot::default(),
            initial: Mutex::new(initial),
            end: OnceLock::new(),
            marks: Marks::new(pending),
        }
    }

    /// Returns the number of the first pending event in `state` and the number after the last one,
    /// or `None` if no event is pending. The caller must have loaded `state` before this call.
    pub(super) fn pending(&self, state: &State) -> Option<(u64, u64)> {
        self.marks.pending(state.history().end_seq())
    }

    /// Returns the number of the first event of `state` that the watcher may still have to read;
    /// `None` for none. While it reads its initial state, that is the first one after it, wanted or
    /// not: events that leave the history drop objects that the watcher still holds.
    pub(super) fn unread_from(&self, state: &State) -> Option<u64> {
        // If the lock is held, the watcher is reading its initial state right now.
        match self.initial.try_lock().is_none_or(|initial| initial.is_some()) {
            true => Some(self.marks.position()),
            false => self.pending(state).map(|(from, _)| from),
        }
    }

    /// Returns whether no marked event is unread and the watch has not ended, so that the state
    /// need not be loaded. This does not mean that a bookmark may claim the current
    /// resourceVersion.
    pub(super) fn is_idle(&self) -> bool {
        self.marks.are_read() && self.end.get().is_none()
    }

    /// Returns a waker for the other futures of the watcher's task. It sets the timer flag and
    /// wakes the task.
    pub(super) fn timer_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Ends the watch. Call this with the cache's mutex held, before the next state is published.
    pub(super) fn set_end(&self, end: WatchEnd) {
        // The first end counts. There is no second one, since the dispatcher has no ended cursor.
        drop(self.end.set(end));
    }

    /// Returns the end of the watch, if it has ended. Call this after loading the state.
    pub(super) fn end(&self) -> Option<&WatchEnd> {
        self.end.get()
    }
}

impl Wake for Cursor {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_slot.fire_timer();
    }
}
