//! The results of reading from a watcher once.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::cursor::EndCause;
use crate::cache::core::event::{Event, Now};
use crate::cache::core::state::State;
use crate::codec::rope::Rope;

/// Encoded frames; mostly one.
pub type Chunks = SmallVec<[Bytes; 1]>;

/// The result of [`Watcher::next_batch`](super::Watcher::next_batch).
#[derive(Debug)]
pub enum Batch {
    /// Frames to send now, in order. Each `Bytes` holds one or more whole frames.
    Frames {
        /// The encoded frames.
        chunks: Chunks,
        /// The number of events in `chunks`.
        events: usize,
        /// When the first of them was received from the upstream.
        received: Now,
    },
    /// Frames of initial events, to send now. They share the bytes of long objects.
    InitialEvents {
        /// The encoded frames.
        frames: Rope,
        /// The number of events in `frames`.
        events: usize,
    },
    /// All initial events were read; they were the state at this resourceVersion. Returned exactly
    /// once if the watch started with initial events. This is the position of the
    /// initial-events-end bookmark.
    InitialEventsEnd(ResourceVersion),
    /// The limit of checked objects or events was reached without a match. Call again after
    /// yielding to other tasks.
    Yield,
    /// Nothing to read until the task is woken.
    Idle,
    /// The watch has ended. Everything pending before the end was read, unless the cause is `Slow`.
    Ended(EndCause),
}

/// The result of [`Watcher::next_objects`](super::Watcher::next_objects).
#[derive(Debug)]
pub(crate) enum ObjectBatch {
    /// The initial events, as a whole state. Returned exactly once if the watch started with
    /// initial events.
    State(Arc<State>),
    /// Events in order.
    Events(Vec<Arc<Event>>),
    /// Nothing to read until the task is woken.
    Idle,
    /// The watch has ended. Everything pending before the end was read, unless the cause is `Slow`.
    Ended(EndCause),
}

/// The encoded frames of pending events.
pub(super) struct Frames {
    pub(super) chunks: Chunks,
    /// When the event of the first of them was received.
    pub(super) received: Now,
    /// The number of the first event that was not read.
    pub(super) position: u64,
    /// Whether the last frame belongs to a relist.
    pub(super) bookmark_due: bool,
    /// The bytes that the view has left out.
    pub(super) dropped_bytes: usize,
}
