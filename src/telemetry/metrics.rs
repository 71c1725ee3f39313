//! The registry of all metrics. A component owns a struct of handles, registered once, and no label is looked up on a hot path.
//!
//! Names follow Prometheus' conventions with the prefix `weir_`; the process' own figures have the names that every Prometheus
//! client gives them (`process_resident_memory_bytes`, `process_start_time_seconds`, ...).

use prometheus::{GaugeVec, Opts};

use crate::telemetry::auth_metrics::AuthMetrics;
use crate::telemetry::cache_metrics::CacheMetrics;
use crate::telemetry::gzip_metrics::GzipMetrics;
use crate::telemetry::server_metrics::ServerMetrics;
use crate::telemetry::upstream_metrics::UpstreamMetrics;

/// All of them. Cheap to clone; every handle counts into the same registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// What `/metrics` gathers.
    pub registry: prometheus::Registry,
    /// Authentication, authorization, audit.
    pub auth: AuthMetrics,
    /// Reflectors, caches, budgets, watchers.
    pub cache: CacheMetrics,
    /// Compressed lists.
    pub gzip: GzipMetrics,
    /// Requests and deliveries.
    pub server: ServerMetrics,
    /// Upstream requests, connections and streams.
    pub upstream: UpstreamMetrics,
}

impl Metrics {
    /// Registers them all, and the process' own figures, in a registry of their own.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = prometheus::Registry::new();
        register_process(&registry)?;
        register_build_info(&registry)?;
        let auth = AuthMetrics::register(&registry)?;
        let cache = CacheMetrics::register(&registry)?;
        let gzip = GzipMetrics::register(&registry)?;
        let server = ServerMetrics::register(&registry)?;
        let upstream = UpstreamMetrics::register(&registry)?;
        Ok(Self { registry, auth, cache, gzip, server, upstream })
    }
}

/// CPU, memory, file descriptors, threads and start time, read from `/proc` at each scrape.
#[cfg(target_os = "linux")]
fn register_process(registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
}

/// The collector knows Linux only.
#[cfg(not(target_os = "linux"))]
fn register_process(_registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
    Ok(())
}

fn register_build_info(registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
    let options = Opts::new("weir_build_info", "The build of this Weir, in labels; always 1.");
    let build_info = GaugeVec::new(options, &["version", "os", "arch"])?;
    build_info
        .with_label_values(&[
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH,
        ])
        .set(1.0);
    registry.register(Box::new(build_info))
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn all_are_registered_once_with_our_prefix() {
        let metrics = Metrics::new().unwrap();
        let text = TextEncoder::new().encode_to_string(&metrics.registry.gather()).unwrap();
        assert!(text.contains("weir_build_info{arch="), "{text}");
        for line in text.lines().filter(|line| line.starts_with("# HELP ")) {
            let rest = line.trim_start_matches("# HELP ");
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            assert!(name.starts_with("weir_") || name.starts_with("process_"), "{line}");
            assert!(!help.is_empty(), "{line}");
        }
    }
}
