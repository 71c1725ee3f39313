//! The results of one poll of a watcher.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::end_cause::EndCause;
use crate::cache::core::event::Event;
use crate::cache::core::state::State;

/// Frames; mostly there is one event to take.
pub type Chunks = SmallVec<[Bytes; 1]>;

/// What a watcher took.
#[derive(Debug)]
pub enum Batch {
    /// Frames to send now, in order; each `Bytes` is one or more whole frames. `events` counts them.
    Frames {
        /// The bytes.
        chunks: Chunks,
        /// How many events they hold.
        events: usize,
    },
    /// The initial events are all taken: they were the state at this resourceVersion. Comes exactly once if the watch began with
    /// them; here the initial-events-end bookmark goes.
    InitialEventsEnd(ResourceVersion),
    /// Nothing yet of much that was looked at, and there is more: to be called again, once others have had their turn.
    Yield,
    /// Nothing until woken.
    Idle,
    /// The watch is over; all that was owed before was position, unless the cause is `Slow`.
    Ended(EndCause),
}

/// What a watcher took of the objects themselves.
#[derive(Debug)]
pub(crate) enum ObjectBatch {
    /// The initial events, as the state that they are. Comes exactly once if the watch began with them.
    State(Arc<State>),
    /// Events, in order.
    Events(Vec<Arc<Event>>),
    /// Nothing until woken.
    Idle,
    /// The watch is over; all that was owed before was position, unless the cause is `Slow`.
    Ended(EndCause),
}
