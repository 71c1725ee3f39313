//! The metrics of all components, in one registry.
//!
//! Names follow Prometheus' conventions and have the prefix `weir_`. The metrics of the process
//! have the names that every Prometheus client uses (`process_resident_memory_bytes`,
//! `process_start_time_seconds`, ...).

use crate::admin::{Figures, MemoryFigures};
use crate::app::build_info;
use crate::app::certificates::Expiries;
use crate::app::reload::ReloadMetrics;
use crate::auth::metrics::AuthMetrics;
use crate::cache::metrics::CacheMetrics;
use crate::server::FlowMetrics;
use crate::server::GzipMetrics;
use crate::server::OverloadMetrics;
use crate::server::ServerMetrics;
use crate::server::ShadowMetrics;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::{gauge_vec, register};
use crate::telemetry::trace::metrics::TracingMetrics;
use crate::upstream::metrics::UpstreamMetrics;

/// The metrics of all components. Cheap to clone: all clones share one registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The registry that `/metrics` reads.
    pub registry: prometheus::Registry,
    /// Authentication, authorization and audit.
    pub auth: AuthMetrics,
    /// Notable events.
    pub events: Events,
    /// Reflectors, caches, budgets and watchers.
    pub cache: CacheMetrics,
    /// Classes of requests, and clients' costs.
    pub flow: FlowMetrics,
    /// Compressed lists.
    pub gzip: GzipMetrics,
    /// Weir's own overload.
    pub overload: OverloadMetrics,
    /// Client requests and watch deliveries.
    pub server: ServerMetrics,
    /// Comparisons of shadow mode.
    pub shadow: ShadowMetrics,
    /// Reloads of the configuration.
    pub reload: ReloadMetrics,
    /// The export of spans.
    pub tracing: TracingMetrics,
    /// Upstream requests, connections and streams.
    pub upstream: UpstreamMetrics,
}

impl Metrics {
    /// Creates a registry and registers all metrics in it, those of the process included.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = prometheus::Registry::new();
        // CPU, memory, file descriptors, threads and start time, read from `/proc` at each scrape.
        #[cfg(target_os = "linux")]
        register(&registry, prometheus::process_collector::ProcessCollector::for_self())?;
        register_build_info(&registry)?;
        let events = Events::register(&registry)?;
        let auth = AuthMetrics::register(&registry)?.with_events(&events);
        let cache = CacheMetrics::register(&registry)?.with_events(&events);
        let flow = FlowMetrics::register(&registry)?;
        let gzip = GzipMetrics::register(&registry)?;
        let overload = OverloadMetrics::register(&registry)?.with_events(&events);
        let reload = ReloadMetrics::register(&registry)?.with_events(&events);
        let server = ServerMetrics::register(&registry)?;
        let shadow = ShadowMetrics::register(&registry)?;
        let tracing = TracingMetrics::register(&registry)?;
        let upstream = UpstreamMetrics::register(&registry)?.with_events(&events);
        Ok(Self {
            registry,
            auth,
            events,
            cache,
            flow,
            gzip,
            overload,
            reload,
            server,
            shadow,
            tracing,
            upstream,
        })
    }
}

impl Metrics {
    /// Returns the present figures for operators.
    pub(super) fn figures(&self, expiries: &Expiries) -> Figures {
        let expiries = expiries.iter().filter_map(|(usage, expiry)| Some((*usage, expiry()?)));
        Figures {
            server: self.server.figures(),
            upstream: self.upstream.figures(),
            overload: self.overload.figures(),
            flow: self.flow.figures(),
            gzip: self.gzip.figures(),
            configuration: self.reload.figures(),
            certificates: expiries.collect(),
        }
    }

    /// Returns what takes memory.
    pub(super) fn memory(&self) -> MemoryFigures {
        let server = self.server.figures();
        let ([gzip, _], [held, _]) = (self.gzip.figures(), server.held);
        let [tokens, permissions, audit] = self.auth.memory();
        MemoryFigures {
            parts: vec![
                ("caches", self.cache.figures().bytes),
                ("compressedLists", gzip),
                ("documents", server.documents),
                ("responses", held),
                ("tokens", tokens),
                ("permissions", permissions),
                ("audit", audit),
            ],
            limit: self.overload.figures().memory_max,
            connections: server.connections.unwrap_or(0.0),
            watches: server.watches,
        }
    }
}

fn register_build_info(registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
    let build_info: prometheus::IntGaugeVec = gauge_vec(
        registry,
        "weir_build_info",
        "The build of this Weir, in labels; always 1.",
        &["version", "profile", "os", "arch"],
    )?;
    build_info
        .with_label_values(&[
            build_info::VERSION,
            build_info::PROFILE,
            std::env::consts::OS,
            std::env::consts::ARCH,
        ])
        .set(1);
    Ok(())
}

#[cfg(test)]
mod cardinality;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn every_metric_has_a_prefix_and_a_help_text() {
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
