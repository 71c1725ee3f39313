//! A cache of compressed parts of lists and of the initial events of watches.
//!
//! A list is split into runs of items ([`super::run`]). Each run is deflated once
//! ([`super::segment`]), and the segments are joined to one gzip member ([`super::member`]). A list
//! of which a few objects changed has all other runs in common with the previous one. Lists of one
//! namespace, by other selectors or by pages share runs as far as they have the same objects next
//! to each other (`docs/decisions/response-bodies.md`). A watch takes its initial events in runs,
//! too, and each is a member of its own.
//!
//! The cached bytes are bounded, and the least recently used segments are evicted first: runs with
//! replaced objects are never requested again. A segment is evicted after [`IDLE_MAX`] at the
//! latest, as long as [`SegmentCache::totals`] is called now and then. A run is deflated once, even
//! if several lists need it at the same time. An evicted segment counts as held while clients read
//! it ([`HeldBytes`]).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use weir_api::media_type::View;

use super::member;
use super::run::{Run, RunFormat, RunLength, runs};
use super::segment::{Deflater, Segment};
use crate::held_bytes::HeldBytes;
use crate::list::SplicedList;
use crate::object::Object;

/// The cached segments, by run. Cheap to clone.
#[derive(Clone)]
pub struct SegmentCache {
    cache: Cache<Run, Arc<Segment>>,
}

weir_api::opaque!(SegmentCache);

/// A list of which some segments may still be missing.
pub struct PendingList {
    list: SplicedList,
    runs: Vec<(Range<usize>, Option<Arc<Segment>>)>,
}

impl SegmentCache {
    /// Creates a cache of at most `bytes_max`. An evicted segment counts as held while clients read
    /// it.
    pub fn new(bytes_max: usize, held: HeldBytes) -> Self {
        let weigh = |run: &Run, segment: &Arc<Segment>| {
            let bytes = segment.deflated.bytes().len()
                + size_of_val(&*run.objects)
                + SEGMENT_OVERHEAD_BYTES;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let evicted = move |_, segment: Arc<Segment>, _| segment.deflated.count_as_held(&held);
        let cache = Cache::builder()
            .max_capacity(bytes_max as u64)
            .weigher(weigh)
            .eviction_listener(evicted)
            // New segments matter more than frequently used ones, whose objects may no longer
            // exist.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(IDLE_MAX)
            .build();
        Self { cache }
    }

    /// Returns the number of cached segments and their bytes, including the overhead.
    pub fn totals(&self) -> (u64, u64) {
        self.cache.run_pending_tasks();
        (self.cache.entry_count(), self.cache.weighted_size())
    }

    /// Drops all segments.
    pub fn clear(&self) {
        self.cache.invalidate_all();
    }

    /// Looks up the segments of a list.
    pub fn look_up(&self, list: SplicedList) -> PendingList {
        let (format, objects) = (RunFormat::Items(list.format), list.objects());
        let runs = runs(format, objects)
            .map(|run| {
                let of_run = objects.get(run.clone()).unwrap_or_default();
                let segment = self.cache.get(&Run::new(format, of_run));
                (run, segment)
            })
            .collect();
        PendingList { list, runs }
    }

    /// Deflates the missing segments of a list and caches them. Takes some milliseconds of CPU per
    /// megabyte: do not call it on an async worker. Returns `None` if the compressor fails.
    pub fn complete(&self, pending: &mut PendingList) -> Option<()> {
        let mut deflater = Deflater::new();
        let format = RunFormat::Items(pending.list.format);
        for (run, segment) in &mut pending.runs {
            if segment.is_none() {
                let objects = pending.list.objects().get(run.clone()).unwrap_or_default();
                let deflate = || deflater.segment(format, objects).map(Arc::new);
                let run = Run::new(format, objects);
                *segment = Some(self.cache.optionally_get_with(run, deflate)?);
            }
        }
        Some(())
    }

    /// Returns the ADDED frames of these objects as a gzip member. They are a run of the initial
    /// events of a watch, so that all watches with the same objects share it. A run that is not
    /// in the cache takes about a millisecond of CPU, or more if it has a long object.
    pub fn initial_events(&self, view: View, objects: &[Arc<Object>]) -> Vec<Bytes> {
        let format = RunFormat::InitialEvents(view);
        let run = Run::new(format, objects);
        if let Some(segment) = self.cache.get(&run) {
            return member::of_segment(&segment);
        }
        // Two threads may deflate the same run: neither waits for the other.
        let Some(segment) = Deflater::new().segment(format, objects).map(Arc::new) else {
            let mut frames = Vec::new();
            format.write(objects, &mut frames);
            return vec![member::stored(&frames)];
        };
        self.cache.insert(run, Arc::clone(&segment));
        member::of_segment(&segment)
    }
}

/// Finds the ends of the runs of the initial events of a watch.
pub struct EventRun(RunLength);

impl EventRun {
    /// Begins a run of objects in a view.
    pub fn new(view: View) -> Self {
        Self(RunLength::new(RunFormat::InitialEvents(view)))
    }

    /// Adds an object, and returns whether it ends the run.
    pub fn ends_with(&mut self, object: &Object) -> bool {
        self.0.ends_with(object)
    }
}

impl PendingList {
    /// Returns the number of segments, and how many of them are missing.
    pub fn segment_counts(&self) -> (usize, usize) {
        let missing = self.runs.iter().filter(|(_, segment)| segment.is_none()).count();
        (self.runs.len(), missing)
    }

    /// Returns the list.
    pub fn into_list(self) -> SplicedList {
        self.list
    }

    /// Returns the gzip member; `None` while segments are missing.
    pub fn member(self) -> Option<Vec<Bytes>> {
        let segments: Option<Vec<_>> = self.runs.into_iter().map(|(_, segment)| segment).collect();
        Some(member::build(&self.list, &segments?))
    }
}

/// How long an unused segment is cached. Clients that list again after a while still find it, and
/// deleted objects do not stay for ever.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// The cost of a cached segment besides its bytes and its objects' ids: the map's node, its place
/// in the order of use, and the allocator's rounding. An overestimate, as measured.
const SEGMENT_OVERHEAD_BYTES: usize = 320;

#[cfg(test)]
mod tests;
