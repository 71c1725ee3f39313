//! Lets large answers from the caches take turns: bodies and tasks behind [`flow::lanes`].
//!
//! A body of up to [`FREE_BYTES`] asks for nothing. A longer one needs a slot for each part of it.
//! It keeps the slot until the poll of its connection's task ends. The part is made, encrypted and
//! written in that poll, so that a client that reads slowly holds no slot. No more connections than
//! there are slots are ready to run with large answers at a time, and small answers find a short
//! queue before them. Work on another thread, such as the selection of thousands of objects, holds
//! a slot while it lasts.
//!
//! While nobody waits, a slot may be used for any number of parts.
//!
//! One lock, never held across an await or while a task is woken.
//!
//! [`flow::lanes`]: crate::flow::lanes

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::codec::rope::PIECE_BYTES;
use crate::flow::lanes::{Lanes as Core, SlotId, SlotState};

pub(crate) struct Lanes {
    inner: Mutex<Inner>,
    /// The answers that wait, for a look without the lock.
    waiting: AtomicUsize,
    began: Instant,
}

struct Inner {
    core: Core,
    wakers: HashMap<SlotId, Waker>,
}

/// The flow of an answer: whoever it is for.
#[derive(Clone)]
pub(crate) struct Lane {
    lanes: Arc<Lanes>,
    flow: u64,
}

/// The use that one answer makes of slots.
pub(crate) struct LaneUse {
    lane: Lane,
    /// The bytes that may be sent without a slot.
    free: usize,
    /// The bytes that may be sent with the present slot.
    quota: usize,
    slot: Option<SlotId>,
}

/// A slot in use. Dropping it gives it back.
pub(crate) struct Slot {
    lanes: Arc<Lanes>,
    id: SlotId,
}

impl Lanes {
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        let inner = Inner { core: Core::new(slots), wakers: HashMap::new() };
        let waiting = AtomicUsize::new(0);
        Arc::new(Self { inner: Mutex::new(inner), waiting, began: Instant::now() })
    }

    pub(crate) fn lane(self: &Arc<Self>, flow: u64) -> Lane {
        Lane { lanes: Arc::clone(self), flow }
    }

    /// Changes the number of slots, and withdraws those that are not taken. Call this some times a
    /// second.
    pub(crate) fn tend(&self, slots: usize) {
        self.change(|Inner { core, .. }, now| {
            core.resize(now, slots);
            core.withdraw(now);
        });
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns how long the answers of a flow that wait will take; `None` if none wait.
    pub(crate) fn expected(&self, flow: u64) -> Option<Duration> {
        if self.waiting() == 0 {
            return None;
        }
        self.inner.lock().core.expected(flow)
    }

    /// Changes the core, and wakes those who have got a slot.
    fn change<T>(&self, change: impl FnOnce(&mut Inner, Duration) -> T) -> T {
        let mut inner = self.inner.lock();
        let changed = change(&mut inner, self.began.elapsed());
        let Inner { core, wakers } = &mut *inner;
        let granted = core.take_granted();
        let woken: Vec<Waker> = granted.iter().filter_map(|id| wakers.remove(id)).collect();
        self.waiting.store(core.waiting(), Ordering::Relaxed);
        drop(inner);
        woken.iter().for_each(wake_after_io);
        changed
    }

    /// Takes the slot of a request if it was granted, or asks for one.
    fn take(&self, slot: Option<SlotId>, flow: u64, bytes: u64, waker: &Waker) -> SlotReply {
        self.change(|Inner { core, wakers }, now| {
            let asked = slot.filter(|id| core.state(*id).is_some());
            let id = asked.unwrap_or_else(|| core.ask(now, flow, bytes));
            match core.state(id) {
                Some(SlotState::Granted) => {
                    core.take(now, id);
                    wakers.remove(&id);
                    SlotReply::New(id)
                }
                Some(SlotState::InUse(since)) => SlotReply::Held(id, now.saturating_sub(since)),
                Some(SlotState::Waits) | None => {
                    wakers.insert(id, waker.clone());
                    SlotReply::Queued(id)
                }
            }
        })
    }

    fn end(&self, id: SlotId) {
        let waker = self.change(|Inner { core, wakers }, now| {
            core.end(now, id);
            wakers.remove(&id)
        });
        drop(waker);
    }
}

enum SlotReply {
    /// The slot is in use from now on.
    New(SlotId),
    /// It has been in use for this time.
    Held(SlotId, Duration),
    Queued(SlotId),
}

impl Lane {
    /// Waits for a slot, for work on another thread.
    pub(crate) async fn slot(&self) -> Slot {
        let mut waits = LaneUse::new(self.clone());
        let id = poll_fn(|context| {
            match self.lanes.take(waits.slot, self.flow, PART_BYTES as u64, context.waker()) {
                SlotReply::New(id) | SlotReply::Held(id, _) => Poll::Ready(id),
                SlotReply::Queued(id) => {
                    waits.slot = Some(id);
                    Poll::Pending
                }
            }
        })
        .await;
        waits.slot = None;
        Slot { lanes: Arc::clone(&self.lanes), id }
    }
}

impl LaneUse {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, free: FREE_BYTES, quota: 0, slot: None }
    }

    /// Waits until the next piece may be made. `left` are the bytes that the answer still has, if
    /// known.
    pub(crate) fn poll_slot(&mut self, left: Option<u64>, context: &Context<'_>) -> Poll<()> {
        if self.free > 0 {
            return Poll::Ready(());
        }
        let Lane { lanes, flow } = &self.lane;
        let left = left.unwrap_or(PART_BYTES as u64);
        match lanes.take(self.slot, *flow, left, context.waker()) {
            SlotReply::New(id) => {
                (self.slot, self.quota) = (Some(id), PART_BYTES);
                end_with_poll(Slot { lanes: Arc::clone(lanes), id });
                Poll::Ready(())
            }
            SlotReply::Held(_, time) if self.quota > 0 && time < PART_TIME => Poll::Ready(()),
            SlotReply::Held(..) if lanes.waiting() == 0 => {
                self.quota = PART_BYTES;
                Poll::Ready(())
            }
            // The slot ends with this poll, and another one is needed.
            SlotReply::Held(..) => {
                self.slot = None;
                self.poll_slot(Some(left), context)
            }
            SlotReply::Queued(id) => {
                self.slot = Some(id);
                Poll::Pending
            }
        }
    }

    /// Begins again with what may be sent without a slot: the answer had nothing to send.
    pub(crate) fn rested(&mut self) {
        self.free = FREE_BYTES;
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        if self.free > 0 {
            self.free = self.free.saturating_sub(bytes);
            return;
        }
        self.quota = self.quota.saturating_sub(bytes);
        if self.lane.lanes.waiting() > 0 {
            self.lane.lanes.inner.lock().core.sent(bytes as u64);
        }
    }
}

impl Drop for LaneUse {
    fn drop(&mut self) {
        // A slot that was taken ends with the poll of its task.
        if let Some(id) = self.slot {
            let lanes = &self.lane.lanes;
            let is_taken =
                matches!(lanes.inner.lock().core.state(id), Some(SlotState::InUse(_)) | None);
            if !is_taken {
                lanes.end(id);
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lanes.end(self.id);
    }
}

/// Wakes a task once this thread has run what else is ready, and has looked for events of sockets.
///
/// A task that is woken as usual runs next on this thread. So parts of large answers would follow
/// each other, and tokio looks at the sockets only after 61 tasks while there is a task to run: a
/// request that arrives would be read after tens of milliseconds.
fn wake_after_io(waker: &Waker) {
    let pending = pin!(yield_now()).poll(&mut Context::from_waker(waker));
    debug_assert!(pending.is_pending(), "it yields once");
}

thread_local! {
    /// The slots that were taken in the present poll of this thread.
    static TAKEN: RefCell<Vec<Slot>> = const { RefCell::new(Vec::new()) };
}

fn end_with_poll(slot: Slot) {
    TAKEN.with_borrow_mut(|taken| taken.push(slot));
}

/// Releases the slots that were taken since the last call on this thread. Each task that polls
/// bodies calls this at the end of its own poll.
pub(crate) fn end_poll() {
    let taken = TAKEN.with_borrow_mut(|taken| match taken.is_empty() {
        true => Vec::new(),
        false => std::mem::take(taken),
    });
    drop(taken);
}

/// The longest body that waits for nothing: it is a single piece.
const FREE_BYTES: usize = PIECE_BYTES;
/// The bytes of one part, if others wait.
const PART_BYTES: usize = 4 * PIECE_BYTES;
/// The time in which a part's pieces are made, if others wait: indenting and compressing take long.
const PART_TIME: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
