//! Runs of neighbouring items of a list, which are compressed together.
//!
//! **Ends of runs.** The objects decide where runs end. An object of n bytes ends a run with a
//! probability of n in [`RUN_BYTES_MEAN`], by the hash of its key, and never before
//! [`RUN_BYTES_MIN`] or after [`RUN_BYTES_MAX`]. So an object that is added or deleted moves only
//! the boundaries next to it, and runs of small objects are as long as runs of large ones.
//!
//! **Identity.** A run is identified by the format of its items and the ids of its objects, which
//! no two objects of this process have in common ([`Object::id`]). Two runs are equal only if all
//! of these are; no hash decides, and no object is kept alive for the comparison.

use std::ops::Range;
use std::sync::Arc;

use crate::list::ItemFormat;
use crate::object::Object;

/// The identity of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    format: ItemFormat,
    pub(super) objects: Box<[u64]>,
}

impl Run {
    pub(super) fn new(format: ItemFormat, objects: &[Arc<Object>], run: &Range<usize>) -> Self {
        let objects = objects.get(run.clone()).unwrap_or_default();
        Self { format, objects: objects.iter().map(|object| object.id()).collect() }
    }
}

/// Splits a list's objects into runs.
pub(super) fn runs(
    format: ItemFormat,
    objects: &[Arc<Object>],
) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = objects.get(start..).filter(|rest| !rest.is_empty())?;
        let mut bytes = 0;
        let last = rest.iter().position(|object| {
            let length = format.len(object);
            bytes += length;
            bytes >= RUN_BYTES_MAX || (bytes >= RUN_BYTES_MIN && is_boundary(object, length))
        });
        let run = start..start + last.map_or(rest.len(), |last| last + 1);
        start = run.end;
        Some(run)
    })
}

/// Whether an object of this size ends a run.
fn is_boundary(object: &Object, bytes: usize) -> bool {
    u64::from(object.key_hash()) < ((bytes as u64) << 32) / RUN_BYTES_MEAN
}

/// Uncompressed bytes. A smaller mean compresses less again when an object changes; a larger one
/// needs fewer bytes in total. Runs have 145 KiB on average: 5,000 pods then need a sixth more
/// bytes than without runs, with 96 KiB a quarter more, and with 256 KiB a tenth more.
const RUN_BYTES_MEAN: u64 = 96 << 10;
/// The minimum length of a run that an object ends, in uncompressed bytes.
const RUN_BYTES_MIN: usize = 64 << 10;
/// The length at which a run ends that no object ended, in uncompressed bytes.
const RUN_BYTES_MAX: usize = 256 << 10;
