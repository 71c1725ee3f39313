//! One client's watch: a cursor into the shared history. There is no queue per watcher, so memory
//! does not grow with slow clients.
//!
//! A watcher reads from the published state at its own pace. A slow one costs only its position,
//! until its first pending event leaves the window; then the watch ends (`docs/semantics.md`
//! §5.10). `cursor.rs` describes the protocol between watcher and writer, and the order of
//! operations on which it depends.
//!
//! Lock order: the cursor's `initial` is held while a part of the initial state is encoded, and the
//! cache's mutex on drop; the two are never held together.

mod batch;
mod initial;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::Guard;

use self::batch::Frames;
pub(crate) use self::batch::ObjectBatch;
pub use self::batch::{Batch, Chunks};
use self::initial::InitialBatch;
use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::{Cursor, EndCause};
use crate::cache::core::event::Now;
pub use crate::cache::core::filter::WatchFilter;
use crate::cache::core::inner::CacheInner;
use crate::cache::core::state::State;
use crate::codec::gzip::segment_cache::SegmentCache;
use crate::codec::held_bytes::HeldBytes;

/// Where a watch starts (`docs/semantics.md` §1.6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// The whole current state as ADDED events, then the later events.
    InitialEvents,
    /// The events after a resourceVersion. If it is in the future, no event up to it is delivered.
    After(ResourceVersion),
    /// The events after the current state.
    Now,
}

/// One client's watch. Dropping it unregisters it.
#[derive(Debug)]
pub struct Watcher {
    cache: Arc<CacheInner>,
    cursor: Arc<Cursor>,
    view: View,
    /// Counts what is copied for this watch alone.
    held: Option<HeldBytes>,
    /// Has the compressed initial events, if frames are to be compressed.
    compressed: Option<SegmentCache>,
    /// Whether some initial events are still unread.
    initial: bool,
    /// Whether events of a relist were read since the last [`Watcher::take_bookmark_due`].
    bookmark_due: bool,
    resource_version: ResourceVersion,
    /// The bytes that the view has left out of frames since they were last taken.
    dropped_bytes: usize,
    ended: Option<EndCause>,
}

impl Watcher {
    pub(super) fn new(
        cache: Arc<CacheInner>,
        cursor: Arc<Cursor>,
        start: WatchStart,
        resource_version: ResourceVersion,
    ) -> Self {
        let initial = start == WatchStart::InitialEvents;
        Self {
            cache,
            cursor,
            view: View::Full,
            held: None,
            compressed: None,
            initial,
            bookmark_due: false,
            resource_version,
            dropped_bytes: 0,
            ended: None,
        }
    }

    /// Counts what is copied for this watch alone as held.
    pub fn held_by(mut self, held: HeldBytes) -> Self {
        self.held = Some(held);
        self
    }

    /// Makes each batch of initial events and each other frame a gzip member. Call this before
    /// reading.
    pub fn compressed_by(mut self, segments: SegmentCache) -> Self {
        self.compressed = Some(segments);
        self
    }

    /// Whether frames are gzip members.
    pub fn is_compressed(&self) -> bool {
        self.compressed.is_some()
    }

    /// Returns the account that counts what is copied for this watch alone, if there is one.
    pub fn held(&self) -> Option<&HeldBytes> {
        self.held.as_ref()
    }

    /// Sets the view of the objects in events; the default is the full object. Call this before
    /// reading.
    pub fn with_view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// Returns the next frames, up to about `max_bytes` (a run, if initial events are compressed)
    /// but at least one event, without waiting. Checks at most 10,000 objects or events.
    pub fn next_batch(&mut self, max_bytes: usize) -> Batch {
        if let Some(cause) = self.ended {
            Batch::Ended(cause)
        } else if self.is_cut_off() {
            self.end(EndCause::Aggregated)
        } else if self.initial {
            self.next_initial_events(max_bytes)
        } else {
            self.next_events(max_bytes)
        }
    }

    /// Works like [`Self::next_batch`] for a reader inside this process: returns objects, and
    /// encodes no frames. Only for watches of whole collections, since the filter is not applied.
    pub(crate) fn next_objects(&mut self) -> ObjectBatch {
        let batch = self.pending_objects();
        if let ObjectBatch::Ended(cause) = batch {
            self.ended = Some(cause);
        }
        batch
    }

    /// Completes when there may be something to read. Cancel safe.
    pub async fn until_woken(&self) {
        poll_fn(|context| self.poll_woken(context)).await;
    }

    fn poll_woken(&self, context: &Context<'_>) -> Poll<()> {
        self.register_waker(context.waker());
        if self.is_idle() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Registers the task to wake, once, when there may be something to read. Events from before
    /// this call wake nothing, so check for them after it.
    pub(crate) fn register_waker(&self, task: &Waker) {
        self.cursor.wake_slot.register(task);
    }

    /// Returns whether [`Self::next_batch`] would find nothing. This does not mean that a bookmark
    /// may claim the current resourceVersion.
    pub(crate) fn is_idle(&self) -> bool {
        !self.initial && self.ended.is_none() && !self.bookmark_due && self.cursor.is_idle()
    }

    /// Returns a waker for the other futures of the task registered with [`Self::register_waker`].
    /// It sets the timer flag and wakes the task.
    pub(crate) fn timer_waker(&self) -> Waker {
        self.cursor.timer_waker()
    }

    /// Clears the timer flag and returns whether it was set. Check it after
    /// [`Self::register_waker`] too.
    pub(crate) fn take_timer_fired(&self) -> bool {
        self.cursor.wake_slot.take_timer_fired()
    }

    /// Returns the resourceVersion up to which everything was read, which a bookmark may claim.
    /// Only meaningful right after `next_batch` returned `Idle` or `InitialEventsEnd`. It is the
    /// cache's own resourceVersion: for a watch that started ahead of the cache it is below the
    /// start, and no bookmark may be sent there (`docs/semantics.md` §5.6).
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns whether events of a relist were read since the last call, so that a bookmark should
    /// follow at once. Without it the client would resume from a resourceVersion within the relist,
    /// from which it cannot resume. Only meaningful where [`Self::resource_version`] is.
    pub fn take_bookmark_due(&mut self) -> bool {
        std::mem::take(&mut self.bookmark_due)
    }

    /// Returns the bytes that the view has left out of frames since the last call.
    pub fn take_dropped_bytes(&mut self) -> usize {
        std::mem::take(&mut self.dropped_bytes)
    }

    /// Whether not even the pending events may be read: another server answers for the resource.
    fn is_cut_off(&self) -> bool {
        self.cursor.end().is_some_and(|end| end.cause == EndCause::Aggregated)
    }

    fn next_initial_events(&mut self, max_bytes: usize) -> Batch {
        let mut slot = self.cursor.initial.lock();
        let outrun = slot.as_ref().is_none_or(|initial| {
            let end_bytes = initial.state.history().end_bytes();
            let current = self.cache.load();
            current.as_ref().is_some_and(|current| self.cache.is_outrun(current, end_bytes))
        });
        let Some(initial) = slot.as_mut().filter(|_| !outrun) else {
            // This may be the last reference to the state, so free it after releasing the lock.
            let outrun = slot.take();
            drop(slot);
            drop(outrun);
            return self.end(EndCause::Slow);
        };
        let after = initial.after.take();
        let mut batch = InitialBatch::new(self.compressed.as_ref(), self.view);
        let (mut events, mut scanned, mut more) = (0, 0, false);
        let after_key = after.as_ref().map(|after| after.key.as_str());
        for object in initial.state.store().scan(&self.cursor.filter, after_key) {
            initial.after = Some(Arc::clone(object));
            scanned += self.cursor.filter.scan_cost(object);
            if self.cursor.filter.matches(object) {
                self.dropped_bytes += object.dropped(self.view).length as usize;
                events += 1;
                more = batch.push(object, self.view, max_bytes);
            }
            more |= scanned >= SCAN_MAX;
            if more {
                break;
            }
        }
        if events > 0 {
            drop(slot);
            let frames = batch.finish(self.view, self.held.as_ref());
            return Batch::InitialEvents { frames, events };
        }
        if more {
            return Batch::Yield;
        }
        // Freed after releasing the lock, too.
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
            let Frames { chunks, received, position, bookmark_due, dropped_bytes } =
                self.collect_frames(state, (from, to), max_bytes);
            self.bookmark_due |= bookmark_due;
            self.dropped_bytes += dropped_bytes;
            self.cursor.marks.set_position(position);
            if !chunks.is_empty() {
                let events = chunks.len();
                return Batch::Frames { chunks, events, received };
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
        if self.is_cut_off() {
            return ObjectBatch::Ended(EndCause::Aggregated);
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
            self.cursor.marks.set_position(to);
            let events = history.events(from, to);
            let events = events.filter(|(seq, event)| {
                history.resume_version(*seq, event) > self.cursor.skip_through
            });
            return ObjectBatch::Events(events.map(|(_, event)| Arc::clone(event)).collect());
        }
        end.map_or(ObjectBatch::Idle, ObjectBatch::Ended)
    }

    /// Encodes the pending events that match the filter.
    fn collect_frames(&self, state: &State, (from, to): (u64, u64), max_bytes: usize) -> Frames {
        let (mut chunks, mut received, mut bookmark_due) = (Chunks::new(), Now::default(), false);
        let history = state.history();
        let to = to.min(from.saturating_add(SCAN_MAX as u64));
        let (mut bytes, mut dropped_bytes, mut scanned) = (0, 0, 0);
        for (seq, event) in history.events(from, to) {
            scanned += self.cursor.filter.scan_cost(event.object());
            if history.resume_version(seq, event) <= self.cursor.skip_through {
                continue;
            }
            let frame = match self.compressed {
                Some(_) => event.compressed_frame(&self.cursor.filter, self.view),
                None => event.frame(&self.cursor.filter, self.view),
            };
            if let Some(frame) = frame {
                let is_plain = self.compressed.is_none();
                bytes += if is_plain { frame.len() } else { event.object().body().len() };
                dropped_bytes += event.object().dropped(self.view).length as usize;
                if chunks.is_empty() {
                    received = event.received();
                }
                chunks.push(frame);
                bookmark_due = history.relist_at(seq).is_some();
            }
            if bytes >= max_bytes || scanned >= SCAN_MAX {
                let position = seq + 1;
                return Frames { chunks, received, position, bookmark_due, dropped_bytes };
            }
        }
        Frames { chunks, received, position: to, bookmark_due, dropped_bytes }
    }

    fn end(&mut self, cause: EndCause) -> Batch {
        self.ended = Some(cause);
        Batch::Ended(cause)
    }
}

/// The events to read.
struct PendingEvents<'a> {
    state: &'a State,
    /// The number of the first pending event in `state` and the number after the last one.
    range: Option<(u64, u64)>,
    /// Set if the watch ends after these events.
    end: Option<EndCause>,
}

impl<'a> PendingEvents<'a> {
    /// Computes the pending events of `current`, which the caller loaded before this call: marks
    /// and the end must be read after the state (see `cursor.rs`). Returns `None` if there is no
    /// state.
    fn new(cursor: &'a Cursor, current: &'a Guard<Option<Arc<State>>>) -> Option<Self> {
        let (state, end) = match cursor.end() {
            Some(end) => (&end.state, Some(end.cause)),
            None => (current.as_ref()?, None),
        };
        Some(Self { state, range: cursor.pending(state), end })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.cache.unregister(&self.cursor);
    }
}

/// The maximum number of objects or events that one call checks, fewer where each
/// [costs](WatchFilter::scan_cost) more. This takes about a millisecond. A filter may match nothing
/// in a large collection, and other tasks of the thread must not wait for a whole scan.
pub(super) const SCAN_MAX: usize = 10_000;
