//! Runs of neighbouring objects of a list or of the initial events of a watch, which are compressed
//! together.
//!
//! **Ends of runs.** The objects decide where runs end. An object of n bytes ends a run with a
//! probability of n in the mean of [`Bounds`], by the hash of its key, and never before the minimum
//! or after the maximum. So an object that is added or deleted moves only the boundaries next to
//! it, and runs of small objects are as long as runs of large ones.
//!
//! **Identity.** A run is identified by the format of its objects and their ids, which no two
//! objects of this process have in common ([`Object::id`]). Two runs are equal only if all of these
//! are; no hash decides, and no object is kept alive for the comparison.

use std::ops::Range;
use std::sync::Arc;

use weir_api::media_type::View;

use crate::frame::{self, EventType};
use crate::list::ItemFormat;
use crate::object::Object;

/// The form in which a run writes its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RunFormat {
    /// The items of a list.
    Items(ItemFormat),
    /// The ADDED frames of a watch. The encoding is that of the objects.
    InitialEvents(View),
}

impl RunFormat {
    fn bounds(self) -> Bounds {
        match self {
            Self::Items(_) => OF_ITEMS,
            Self::InitialEvents(_) => OF_INITIAL_EVENTS,
        }
    }

    /// Returns about the length of an object, without separators.
    fn len(self, object: &Object) -> usize {
        match self {
            Self::Items(format) => format.len(object),
            Self::InitialEvents(view) => object.in_view(view).len(),
        }
    }

    /// Appends the objects of a run.
    pub(super) fn write(self, objects: &[Arc<Object>], out: &mut Vec<u8>) {
        for (index, object) in objects.iter().enumerate() {
            match self {
                Self::Items(format) => {
                    if index > 0 {
                        out.extend_from_slice(format.separator());
                    }
                    format.write(object, out);
                }
                Self::InitialEvents(view) => {
                    frame::write(out, EventType::Added, object, view);
                }
            }
        }
    }
}

/// The identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    format: RunFormat,
    pub(super) objects: Box<[u64]>,
}

impl Run {
    pub(super) fn new(format: RunFormat, objects: &[Arc<Object>]) -> Self {
        Self { format, objects: objects.iter().map(|object| object.id()).collect() }
    }
}

/// Splits objects into runs.
pub(super) fn runs(
    format: RunFormat,
    objects: &[Arc<Object>],
) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = objects.get(start..).filter(|rest| !rest.is_empty())?;
        let mut run = RunLength::new(format);
        let last = rest.iter().position(|object| run.ends_with(object));
        let run = start..start + last.map_or(rest.len(), |last| last + 1);
        start = run.end;
        Some(run)
    })
}

/// The length in bytes of a run that is being collected.
pub(super) struct RunLength {
    format: RunFormat,
    bytes: usize,
}

impl RunLength {
    pub(super) fn new(format: RunFormat) -> Self {
        Self { format, bytes: 0 }
    }

    /// Adds an object, and returns whether it ends the run.
    pub(super) fn ends_with(&mut self, object: &Object) -> bool {
        let length = self.format.len(object);
        self.bytes += length;
        let Bounds { mean, min, max } = self.format.bounds();
        self.bytes >= max || (self.bytes >= min && is_boundary(object, length, mean))
    }
}

/// Whether an object of this size ends a run.
fn is_boundary(object: &Object, bytes: usize, mean: u64) -> bool {
    u64::from(object.key_hash()) < ((bytes as u64) << 32) / mean
}

/// The uncompressed bytes of runs.
struct Bounds {
    mean: u64,
    /// The minimum length of a run that an object ends.
    min: usize,
    /// The length at which a run ends that no object ended.
    max: usize,
}

/// A smaller mean compresses less again when an object changes; a larger one needs fewer bytes in
/// total. Runs have 145 KiB on average: 5,000 pods then need a sixth more bytes than without runs,
/// with 96 KiB a quarter more, and with 256 KiB a tenth more.
const OF_ITEMS: Bounds = Bounds { mean: 96 << 10, min: 64 << 10, max: 256 << 10 };
/// These are deflated by the task of a connection, so that each takes about a millisecond.
const OF_INITIAL_EVENTS: Bounds = Bounds { mean: 32 << 10, min: 16 << 10, max: 64 << 10 };
