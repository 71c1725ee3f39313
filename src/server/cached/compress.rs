//! Answers compressed for clients that take gzip (semantics.md §8.7): lists from segments that are kept, anything else anew.
//!
//! A list all of whose segments are kept is put together where the request is served, in less than it takes to hand it to another thread and
//! back. What must be compressed is, on threads that may block.

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

/// Compresses. Cheap to clone.
#[derive(Clone)]
pub struct Compressor {
    segments: SegmentCache,
    metrics: GzipMetrics,
}

impl Compressor {
    /// Keeps so many bytes of what it compressed.
    pub fn new(bytes_max: usize, metrics: GzipMetrics) -> Self {
        metrics.limit(bytes_max);
        Self { segments: SegmentCache::new(bytes_max), metrics }
    }

    /// Lets go, now and then, of what nobody asks for any more. Without end.
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

    /// Begins a list with what is kept of it.
    pub(crate) fn look_up(&self, list: SplicedList) -> PendingList {
        let pending = self.segments.look_up(list);
        let (segments, missing) = pending.segment_counts();
        self.metrics.looked_up(segments, missing);
        pending
    }

    /// Ends it.
    pub(crate) async fn complete(&self, mut pending: PendingList) -> Result<Vec<Bytes>, Reason> {
        let (_, missing) = pending.segment_counts();
        if missing == 0 {
            return pending.member().ok_or(FAILED);
        }
        let this = self.clone();
        let completed = tokio::task::spawn_blocking(move || {
            this.segments.complete(&mut pending)?;
            this.update_metrics();
            pending.member()
        });
        completed.await.ok().flatten().ok_or(FAILED)
    }
}

/// Compresses chunks.
pub(crate) async fn compress(chunks: Vec<Bytes>) -> Result<Vec<Bytes>, Reason> {
    let compressed = tokio::task::spawn_blocking(move || gzip::compress(&chunks)).await;
    compressed.ok().and_then(Result::ok).ok_or(FAILED)
}

/// Between two looks at what is kept.
const TICK: Duration = Duration::from_secs(60);

/// A task that panics or a runtime that stops: the upstream answers.
const FAILED: Reason = Reason::Refused(Refusal::Stopping);
