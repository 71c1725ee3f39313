//! A batch of initial events: frames, or a run of objects that becomes a gzip member.

use std::sync::Arc;

use crate::api::media_type::View;
use crate::codec::frame::{self, EventType};
use crate::codec::gzip::segment_cache::{EventRun, SegmentCache};
use crate::codec::held_bytes::HeldBytes;
use crate::codec::object::Object;
use crate::codec::rope::{Rope, RopeBuilder};

/// A batch that is being collected.
pub(super) enum InitialBatch {
    /// Frames, up to a number of bytes.
    Frames(RopeBuilder),
    /// The objects of a run, which all watchers with the same objects share.
    Run(SegmentCache, EventRun, Vec<Arc<Object>>),
}

impl InitialBatch {
    /// Begins a batch, which is compressed if `segments` are given.
    pub(super) fn new(segments: Option<&SegmentCache>, view: View) -> Self {
        match segments {
            Some(segments) => Self::Run(segments.clone(), EventRun::new(view), Vec::new()),
            None => Self::Frames(RopeBuilder::default()),
        }
    }

    /// Adds an object, and returns whether the batch is full.
    pub(super) fn push(&mut self, object: &Arc<Object>, view: View, max_bytes: usize) -> bool {
        match self {
            Self::Frames(builder) => {
                frame::append(builder, EventType::Added, object, view);
                builder.len() >= max_bytes
            }
            Self::Run(_, run, objects) => {
                objects.push(Arc::clone(object));
                run.ends_with(object)
            }
        }
    }

    /// Returns the frames. Copies for this watch alone count as held.
    pub(super) fn finish(self, view: View, held: Option<&HeldBytes>) -> Rope {
        match (self, held) {
            (Self::Run(segments, _, objects), _) => segments.initial_events(view, &objects).into(),
            (Self::Frames(builder), Some(held)) => builder.finish_held(held),
            (Self::Frames(builder), None) => builder.finish(),
        }
    }
}
