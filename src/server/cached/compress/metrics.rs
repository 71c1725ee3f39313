//! Metrics of the compressed parts of lists that are kept. All names begin with `weir_`.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{counter, gauge, saturating_i64};

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GzipMetrics {
    segments: IntGauge,
    bytes: IntGauge,
    bytes_limit: IntGauge,
    hits: IntCounter,
    misses: IntCounter,
}

impl GzipMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let counter = |name: &str, help: &str| counter(registry, name, help);
        Ok(Self {
            segments: gauge("weir_gzip_segments", "Compressed parts of lists that are kept.")?,
            bytes: gauge(
                "weir_gzip_segments_bytes",
                "What the compressed parts of lists that are kept weigh, in bytes.",
            )?,
            bytes_limit: gauge(
                "weir_gzip_segments_bytes_limit",
                "The most that the compressed parts of lists that are kept may weigh, in bytes.",
            )?,
            hits: counter(
                "weir_gzip_segment_hits_total",
                "Parts of compressed lists that were kept.",
            )?,
            misses: counter(
                "weir_gzip_segment_misses_total",
                "Parts of compressed lists that had to be compressed.",
            )?,
        })
    }

    /// Sets how many bytes may be kept.
    pub fn limit(&self, bytes_max: usize) {
        self.bytes_limit.set(saturating_i64(bytes_max));
    }

    /// Counts the parts of a list: of so many so many were missing.
    pub fn looked_up(&self, parts: usize, missing: usize) {
        self.hits.inc_by(parts.saturating_sub(missing) as u64);
        self.misses.inc_by(missing as u64);
    }

    /// Sets how many are kept, and their bytes.
    pub fn kept(&self, segments: u64, bytes: u64) {
        self.segments.set(saturating_i64(segments));
        self.bytes.set(saturating_i64(bytes));
    }
}
