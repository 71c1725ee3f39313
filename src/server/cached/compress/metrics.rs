//! Metrics of the cached segments of compressed lists. All names begin with `weir_`.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{counter, gauge, saturating_i64};

/// The metrics of compressed segments. Cheap to clone: clones share the metrics.
#[derive(Clone, Debug)]
pub struct GzipMetrics {
    segments: IntGauge,
    bytes: IntGauge,
    bytes_limit: IntGauge,
    hits: IntCounter,
    misses: IntCounter,
}

impl GzipMetrics {
    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let counter = |name: &str, help: &str| counter(registry, name, help);
        Ok(Self {
            segments: gauge("weir_gzip_segments", "Compressed segments of lists in the cache.")?,
            bytes: gauge(
                "weir_gzip_segments_bytes",
                "Size of the compressed segments of lists in the cache, in bytes.",
            )?,
            bytes_limit: gauge(
                "weir_gzip_segments_bytes_limit",
                "Limit on the size of the compressed segments of lists in the cache, in bytes.",
            )?,
            hits: counter(
                "weir_gzip_segment_hits_total",
                "Segments of compressed lists that were in the cache.",
            )?,
            misses: counter(
                "weir_gzip_segment_misses_total",
                "Segments of compressed lists that had to be compressed.",
            )?,
        })
    }

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
