//! Metrics of the compressed parts of lists that are kept. All names begin with `weir_`.

use prometheus::{IntCounter, IntGauge, Registry};

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
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
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
        self.bytes_limit.set(i64::try_from(bytes_max).unwrap_or(i64::MAX));
    }

    /// Counts the parts of a list: of so many so many were missing.
    pub fn looked_up(&self, parts: usize, missing: usize) {
        self.hits.inc_by(parts.saturating_sub(missing) as u64);
        self.misses.inc_by(missing as u64);
    }

    /// Sets how many are kept, and their bytes.
    pub fn kept(&self, segments: u64, bytes: u64) {
        self.segments.set(i64::try_from(segments).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
