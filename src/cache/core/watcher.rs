//! One client's watch: a cursor into the shared history, never a queue (design, section 4).
//!
//! A watcher takes at its own pace from the published state. One that is slow costs nothing but its position, until
//! the first event that it is owed leaves the window; then it ends (semantics.md §5.10). The protocol between it and
//! the writer, with the order on which it hangs, is in [`cursor`](crate::cache::core::cursor).
//!
//! Lock order: the cursor's `initial` while a part of the initial state is encoded; the cache's mutex on drop;
//! never both.

mod batch;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::Guard;
use smallvec::smallvec;

pub(crate) use self::batch::ObjectBatch;
pub use self::batch::{Batch, Chunks};
use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::Cursor;
use crate::cache::core::end_cause::EndCause;
pub use crate::cache::core::filter::WatchFilter;
use crate::cache::core::inner::CacheInner;
use crate::cache::core::state::State;
use crate::codec::frame::{self, EventType};

/// Where a watch begins (semantics.md §1.6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the whole present state as ADDED events.
    InitialEvents,
    /// With the events after a resourceVersion. One in the future is silent until it has passed.
    After(ResourceVersion),
    /// With the events after the present.
    Now,
}

/// See the module. Dropping it unregisters it.
#[derive(Debug)]
pub struct Watcher {
    cache: Arc<CacheInner>,
    cursor: Arc<Cursor>,
    filter: WatchFilter,
    view: View,
    /// Whether the initial events are not all taken.
    initial: bool,
    /// Whether something of a relist's difference was taken since [`Watcher::take_bookmark_due`].
    bookmark_due: bool,
    resource_version: ResourceVersion,
    ended: Option<EndCause>,
}

impl Watcher {
    pub(super) fn new(
        cache: Arc<CacheInner>,
        cursor: Arc<Cursor>,
        filter: WatchFilter,
        start: WatchStart,
        resource_version: ResourceVersion,
    ) -> Self {
        let initial = start == WatchStart::InitialEvents;
        let view = View::Full;
        let (bookmark_due, ended) = (false, None);
        Self { cache, cursor, filter, view, initial, bookmark_due, resource_version, ended }
    }

    /// Has the events show this of their objects, instead of all. To be called before anything is taken.
    pub fn with_view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// Takes what is due, up to about `max_bytes` (at least one event), without waiting, and without
    /// looking at more than 10,000 objects or events.
    pub fn next_batch(&mut self, max_bytes: usize) -> Batch {
        if let Some(cause) = self.ended {
            Batch::Ended(cause)
        } else if self.initial {
            self.next_initial_events(max_bytes)
        } else {
            self.next_events(max_bytes)
        }
    }

    /// Like [`Self::next_batch`], for who reads the objects here: no frame is encoded. For watches of whole collections, since no filter is asked.
    pub(crate) fn next_objects(&mut self) -> ObjectBatch {
        let batch = self.pending_objects();
        if let ObjectBatch::Ended(cause) = batch {
            self.ended = Some(cause);
        }
        batch
    }

    /// Completes when there may be something to take. Cancel safe.
    pub async fn woken(&self) {
        poll_fn(|context| self.poll_woken(context)).await;
    }

    fn poll_woken(&self, context: &Context<'_>) -> Poll<()> {
        self.register_waker(context.waker());
        if self.is_idle() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Names the task that is woken, once, when there may be something to take. What was there before wakes nobody, so whoever waits looks
    /// after this call.
    pub(crate) fn register_waker(&self, task: &Waker) {
        self.cursor.register_waker(task);
    }

    /// Whether there is nothing to take, as [`Self::next_batch`] would find; but it claims nothing for a bookmark.
    pub(crate) fn is_idle(&self) -> bool {
        !self.initial && self.ended.is_none() && !self.bookmark_due && self.cursor.is_idle()
    }

    /// For the other futures of the task that is named by [`Self::register_waker`]: what they wake rings, and wakes that task.
    pub(crate) fn timer_waker(&self) -> Waker {
        self.cursor.timer_waker()
    }

    /// Whether an alarm rang since the last call. To be looked at after [`Self::register_waker`] too.
    pub(crate) fn take_timer_fired(&self) -> bool {
        self.cursor.take_timer_fired()
    }

    /// Everything owed up to this resourceVersion has been taken: what a bookmark may claim. Only meaningful
    /// right after `take` returned `Idle` or `InitialEventsEnd`. It is the cache's own: below the start of a
    /// watch that began ahead of the cache, where no bookmark may be sent (semantics.md §5.6).
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Whether what was taken since the last call came from a relist, so that a bookmark should follow at once: without it the client would
    /// come back from a resourceVersion of which nobody can tell what it stands for. Only meaningful where [`Self::resource_version`] is.
    pub fn take_bookmark_due(&mut self) -> bool {
        std::mem::take(&mut self.bookmark_due)
    }

    fn next_initial_events(&mut self, max_bytes: usize) -> Batch {
        let mut slot = self.cursor.initial.lock();
        let Some(initial) = slot.as_mut() else {
            drop(slot);
            return self.end(EndCause::Slow);
        };
        let after = initial.after.take();
        let mut buffer = Vec::new();
        let (mut events, mut scanned, mut more) = (0, 0, false);
        let after_key = after.as_ref().map(|after| after.key.as_str());
        for object in initial.state.store().scan(&self.filter, after_key) {
            initial.after = Some(Arc::clone(object));
            scanned += 1;
            if self.filter.matches(object) {
                frame::encode_into(&mut buffer, EventType::Added, object, self.view);
                events += 1;
            }
            more = buffer.len() >= max_bytes || scanned >= SCAN_MAX;
            if more {
                break;
            }
        }
        initial.batches += 1;
        if events > 0 {
            return Batch::Frames { chunks: smallvec![buffer.into()], events };
        }
        if more {
            return Batch::Yield;
        }
        // The state may be the last of its kind: it is freed after the lock.
        let done = slot.take();
        drop(slot);
        self.initial = false;
        if let Some(initial) = done {
            self.resource_version = initial.state.resource_version();
        }
        Batch::InitialEventsEnd(self.resource_version)
    }

    fn next_events(&mut self, max_bytes: usize) -> Batch {
        let current = self.cache.load();
        let Some(PendingEvents { state, range, end }) = PendingEvents::new(&self.cursor, &current)
        else {
            return self.end(EndCause::Stopped);
        };
        if let Some((from, to)) = range {
            if from < state.history().first_seq() {
                return self.end(EndCause::Slow);
            }
            let Frames { chunks, position, bookmark_due } =
                self.collect_frames(state, (from, to), max_bytes);
            self.bookmark_due |= bookmark_due;
            self.cursor.set_position(position);
            if !chunks.is_empty() {
                let events = chunks.len();
                return Batch::Frames { chunks, events };
            }
            if position < to {
                return Batch::Yield;
            }
        }
        if let Some(cause) = end {
            return self.end(cause);
        }
        self.resource_version = state.resource_version();
        Batch::Idle
    }

    fn pending_objects(&mut self) -> ObjectBatch {
        if let Some(cause) = self.ended {
            return ObjectBatch::Ended(cause);
        }
        if std::mem::take(&mut self.initial) {
            let initial = self.cursor.initial.lock().take();
            return match initial {
                Some(initial) => ObjectBatch::State(initial.state),
                None => ObjectBatch::Ended(EndCause::Slow),
            };
        }
        let current = self.cache.load();
        let Some(PendingEvents { state, range, end }) = PendingEvents::new(&self.cursor, &current)
        else {
            return ObjectBatch::Ended(EndCause::Stopped);
        };
        if let Some((from, to)) = range {
            let history = state.history();
            if from < history.first_seq() {
                return ObjectBatch::Ended(EndCause::Slow);
            }
            let to = to.min(from.saturating_add(SCAN_MAX as u64));
            self.cursor.set_position(to);
            let events = history.events(from, to);
            let events = events.filter(|(seq, event)| {
                history.resume_version(*seq, event) > self.cursor.skip_through
            });
            return ObjectBatch::Events(events.map(|(_, event)| Arc::clone(event)).collect());
        }
        end.map_or(ObjectBatch::Idle, ObjectBatch::Ended)
    }

    /// The frames of the events owed.
    fn collect_frames(&self, state: &State, (from, to): (u64, u64), max_bytes: usize) -> Frames {
        let (mut chunks, mut bookmark_due) = (Chunks::new(), false);
        let history = state.history();
        let to = to.min(from.saturating_add(SCAN_MAX as u64));
        let mut bytes = 0;
        for (seq, event) in history.events(from, to) {
            if history.resume_version(seq, event) <= self.cursor.skip_through {
                continue;
            }
            if let Some(frame) = event.frame(&self.filter, self.view) {
                bytes += frame.len();
                chunks.push(frame);
                bookmark_due = history.relist_at(seq).is_some();
                if bytes >= max_bytes {
                    return Frames { chunks, position: seq + 1, bookmark_due };
                }
            }
        }
        Frames { chunks, position: to, bookmark_due }
    }

    fn end(&mut self, cause: EndCause) -> Batch {
        self.ended = Some(cause);
        Batch::Ended(cause)
    }
}

/// What there is to take.
struct PendingEvents<'a> {
    state: &'a State,
    /// The first event that is owed of it, and the one after the last.
    range: Option<(u64, u64)>,
    /// Why nothing comes after it.
    end: Option<EndCause>,
}

impl<'a> PendingEvents<'a> {
    /// What there is to take of a state that was looked at before this call, since the marks and the end come after it: see the module of the
    /// cursor. `None` if there is no state any more.
    fn new(cursor: &'a Cursor, current: &'a Guard<Option<Arc<State>>>) -> Option<Self> {
        let (state, end) = match cursor.end() {
            Some(end) => (&end.state, Some(end.cause)),
            None => (current.as_ref()?, None),
        };
        Some(Self { state, range: cursor.pending(state), end })
    }
}

/// What was gathered of the events owed.
struct Frames {
    chunks: Chunks,
    /// The number of the first event not looked at.
    position: u64,
    /// Whether the last of them is of a relist.
    bookmark_due: bool,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.cache.unregister(&self.cursor);
    }
}

/// How many objects or events a call looks at: a millisecond's worth or so. A filter may match nothing in a large collection, and
/// whoever shares the thread must not wait for the whole of it.
pub(super) const SCAN_MAX: usize = 10_000;
