//! Gzip compression of responses (`docs/semantics.md` §8.7): a list is joined from cached segments,
//! any other body is compressed as a whole (`docs/decisions/gzip-segments.md`).
//!
//! A list whose segments are all in the cache is joined by the task that serves the request, which
//! takes less time than a hand-over to another thread and back. Compression itself runs on threads
//! that may block.

pub(crate) mod metrics;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;

use crate::cache::refusal::Refusal;
use crate::codec::gzip;
use crate::codec::gzip::segment_cache::{PendingList, SegmentCache};
use crate::codec::list::SplicedList;
use crate::server::cached::compress::metrics::GzipMetrics;
use crate::server::delegate::Reason;
use crate::tasks::blocking::spawn_blocking;

/// Compresses lists and other bodies. Cheap to clone: clones share the cached segments.
#[derive(Clone)]
pub struct Compressor {
    segments: SegmentCache,
    metrics: GzipMetrics,
}

impl Compressor {
    /// Creates a compressor that caches at most `bytes_max` of compressed segments.
    pub fn new(bytes_max: usize, metrics: GzipMetrics) -> Self {
        metrics.limit(bytes_max);
        Self { segments: SegmentCache::new(bytes_max), metrics }
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

    fn update_metrics(&self) {
        let (count, bytes) = self.segments.totals();
        self.metrics.kept(count, bytes);
    }

    /// Looks up the cached segments of a list.
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

/// Compresses a body as one gzip member.
pub(crate) async fn compress(chunks: Vec<Bytes>) -> Result<Vec<Bytes>, Reason> {
    let compressed = spawn_blocking(move || gzip::compress(&chunks)).await;
    compressed.ok().and_then(Result::ok).ok_or(FAILED)
}

/// The interval of updates of the metrics.
const TICK: Duration = Duration::from_secs(60);

/// The reason if the task panics or the runtime stops: the upstream answers.
const FAILED: Reason = Reason::Refused(Refusal::Stopping);
