//! Lists compressed once: runs of neighbouring items are deflated and kept, and lists are put together from them.
//!
//! A list is cut into runs of items. A run is deflated from a fresh state and ends with a sync flush, on the boundary of a byte, so that any runs make
//! one gzip member together ([`super::member`]). A list of which a few objects changed has all runs but theirs in common with the one before; so have
//! lists of one namespace, by other selectors, or by pages, as far as they show the same objects side by side.
//!
//! **Where runs end** is decided by the objects themselves: one of n bytes ends a run with a probability of n in [`RUN_BYTES_MEAN`], by the hash of
//! its key, and never before [`RUN_BYTES_MIN`] or after [`RUN_BYTES_MAX`]. So an object that comes or goes moves no boundary but those beside it, and
//! runs are as long for small objects as for large ones.
//!
//! **What a run is** is told exactly: by how its items are written and by the numbers of its objects, which no two objects of this
//! process have in common ([`Object::id`]). Two runs are the same only if all of these are; no hash decides, and no object is
//! kept alive to compare it with.
//!
//! **What is kept** is bounded in bytes, and what was not used for longest goes first: the runs of objects that were replaced are
//! never asked for again. They go after [`IDLE_MAX`] at the latest, as long as somebody calls [`SegmentCache::totals`] now and then. A run is deflated once however many lists want it at the same time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::member;
use super::run::{Run, runs};
use super::segment::{Deflater, Segment};
use crate::codec::list::SplicedList;

/// The runs that are kept. Cheap to clone.
#[derive(Clone)]
pub struct SegmentCache {
    cache: Cache<Run, Arc<Segment>>,
}

/// A list of which some segments may be missing.
pub struct PendingList {
    list: SplicedList,
    runs: Vec<(Range<usize>, Option<Arc<Segment>>)>,
}

impl SegmentCache {
    /// Keeps so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let weigh = |run: &Run, segment: &Arc<Segment>| {
            let bytes =
                segment.deflated.len() + size_of_val(&*run.objects) + SEGMENT_OVERHEAD_BYTES;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder()
            .max_capacity(bytes_max as u64)
            .weigher(weigh)
            // What is new is wanted more than what was wanted often: that may be of objects which are no more.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(IDLE_MAX)
            .build();
        Self { cache }
    }

    /// How many segments are kept, and their bytes with all that is kept beside them.
    pub fn totals(&self) -> (u64, u64) {
        self.cache.run_pending_tasks();
        (self.cache.entry_count(), self.cache.weighted_size())
    }

    /// Looks up what is kept of a list.
    pub fn look_up(&self, list: SplicedList) -> PendingList {
        let (format, objects) = (list.item_format(), list.objects());
        let runs = runs(format, objects)
            .map(|run| {
                let segment = self.cache.get(&Run::new(format, objects, &run));
                (run, segment)
            })
            .collect();
        PendingList { list, runs }
    }

    /// Deflates what is missing of a list, which is then kept. Takes some milliseconds of CPU per megabyte: not for an async worker. `None` if
    /// the compressor fails.
    pub fn complete(&self, pending: &mut PendingList) -> Option<()> {
        let mut deflater = Deflater::new();
        let (format, objects) = (pending.list.item_format(), pending.list.objects());
        for (run, segment) in &mut pending.runs {
            if segment.is_none() {
                let deflate = || deflater.segment(format, objects.get(run.clone())?).map(Arc::new);
                let run = Run::new(format, objects, run);
                *segment = Some(self.cache.optionally_get_with(run, deflate)?);
            }
        }
        Some(())
    }
}

impl PendingList {
    /// How many segments it has, and how many of them are missing.
    pub fn segment_counts(&self) -> (usize, usize) {
        let missing = self.runs.iter().filter(|(_, segment)| segment.is_none()).count();
        (self.runs.len(), missing)
    }

    /// The gzip member; `None` while segments are missing.
    pub fn member(self) -> Option<Vec<Bytes>> {
        let segments: Option<Vec<_>> = self.runs.into_iter().map(|(_, segment)| segment).collect();
        Some(member::build(&self.list, &segments?))
    }
}

/// How long what nobody asks for is kept: clients that list again after a while find it, and what was deleted does not stay for good.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// What a kept segment costs beside its bytes and its objects' numbers: the entry, its place in the order of use, and the allocator's rounding.
/// Measured generously.
const SEGMENT_OVERHEAD_BYTES: usize = 320;

#[cfg(test)]
mod tests;
