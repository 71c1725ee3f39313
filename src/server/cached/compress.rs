//! Gzip compression of lists (`docs/semantics.md` §8.7), which are joined from cached segments
//! (`docs/decisions/response-bodies.md`). Any other body is compressed while it is sent
//! (`server/http/rendered.rs`).
//!
//! A list whose segments are all in the cache is joined by the task that serves the request, which
//! takes less time than a hand-over to another thread and back. Compression itself runs on threads
//! that may block.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use prometheus::{IntCounter, IntGauge};

use crate::cache::refusal::Refusal;
use crate::codec::gzip::segment_cache::{PendingList, SegmentCache};
use crate::codec::held_bytes::HeldBytes;
use crate::codec::list::SplicedList;
use crate::server::delegate::Reason;
use crate::tasks::spawn_blocking;
use crate::telemetry::metrics::{families, saturating_i64};

/// Compresses lists. Cheap to clone: clones share the cached segments.
#[derive(Clone)]
pub struct Compressor {
    segments: SegmentCache,
    metrics: GzipMetrics,
}

impl Compressor {
    /// Creates a compressor that caches at most `bytes_max` of compressed segments. An evicted one
    /// counts as held while clients read it.
    pub fn new(bytes_max: usize, held: HeldBytes, metrics: GzipMetrics) -> Self {
        metrics.limit(bytes_max);
        Self { segments: SegmentCache::new(bytes_max, held), metrics }
    }

    /// Updates the metrics of the segment cache every minute. Never returns.
    ///
    /// Reading the totals also makes the cache drop expired segments.
    pub async fn report_size(self) -> Infallible {
        loop {
            tokio::time::sleep(TICK).await;
            self.update_metrics();
        }
    }

    /// Drops all cached segments. Lists that are being sent keep theirs.
    pub fn give_back(&self) {
        self.segments.clear();
        self.update_metrics();
    }

    fn update_metrics(&self) {
        let (count, bytes) = self.segments.totals();
        self.metrics.kept(count, bytes);
    }

    /// Returns the cached segments, which also hold the initial events of compressed watches.
    pub(crate) fn segments(&self) -> SegmentCache {
        self.segments.clone()
    }

    pub(crate) fn look_up(&self, list: SplicedList) -> PendingList {
        let pending = self.segments.look_up(list);
        let (segments, missing) = pending.segment_counts();
        self.metrics.looked_up(segments, missing);
        pending
    }

    /// Compresses the missing segments of a list, and returns the gzip member.
    pub(crate) async fn complete(&self, mut pending: PendingList) -> Result<Vec<Bytes>, Reason> {
        let (_, missing) = pending.segment_counts();
        if missing == 0 {
            return pending.member().ok_or(FAILED);
        }
        let this = self.clone();
        let completed = spawn_blocking(move || {
            this.segments.complete(&mut pending)?;
            this.update_metrics();
            pending.member()
        });
        completed.await.ok().flatten().ok_or(FAILED)
    }
}

families! {
    /// The metrics of compressed segments. Cheap to clone: clones share the metrics.
    #[derive(Clone, Debug)]
    pub struct GzipMetrics {
        /// Compressed segments of lists and of initial events in the cache.
        segments: IntGauge = gauge("weir_gzip_segments"),
        /// Size of the compressed segments of lists and of initial events in the cache, in bytes.
        bytes: IntGauge = gauge("weir_gzip_segments_bytes"),
        /// Limit on the size of the compressed segments of lists and of initial events in the
        /// cache, in bytes.
        bytes_limit: IntGauge = gauge("weir_gzip_segments_bytes_limit"),
        /// Segments of compressed lists that were in the cache.
        hits: IntCounter = counter("weir_gzip_segment_hits_total"),
        /// Segments of compressed lists that had to be compressed.
        misses: IntCounter = counter("weir_gzip_segment_misses_total"),
    }
}

impl GzipMetrics {
    /// Sets the limit on the size of the cache.
    pub fn limit(&self, bytes_max: usize) {
        self.bytes_limit.set(saturating_i64(bytes_max));
    }

    /// Returns the bytes of the segments in the cache, and their limit.
    pub fn figures(&self) -> [f64; 2] {
        [&self.bytes, &self.bytes_limit].map(|gauge| gauge.get() as f64)
    }

    /// Counts the segments of a list, of which `missing` were not in the cache.
    pub fn looked_up(&self, segments: usize, missing: usize) {
        self.hits.inc_by(segments.saturating_sub(missing) as u64);
        self.misses.inc_by(missing as u64);
    }

    /// Sets the number of segments in the cache, and their bytes.
    pub fn kept(&self, segments: u64, bytes: u64) {
        self.segments.set(saturating_i64(segments));
        self.bytes.set(saturating_i64(bytes));
    }
}

const TICK: Duration = Duration::from_secs(60);

/// The reason if the task panics or the runtime stops: the upstream answers.
const FAILED: Reason = Reason::Refused(Refusal::Stopping);
