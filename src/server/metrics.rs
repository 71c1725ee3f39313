//! Metrics of the server. All names begin with `weir_`.
//!
//! The number of label values that clients can cause is bounded. Group, version and resource are
//! those of resources that discovery knows; the caller passes `None` for all others. All other
//! label values are constants of Weir. The counters of a request that a cache answered are resolved
//! once per resource, so that this path looks up no label.

mod connections;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, PullingGauge,
    Registry,
};

use crate::api::resource::GroupVersionResource;
use crate::codec::held_bytes::HeldBytes;
use crate::server::appointments::AppointmentMetrics;
use crate::server::metrics::connections::{ConnectionMetrics, LimitMetrics};
use crate::telemetry::metrics::{
    GaugeGuard, counter, counter_vec, gauge, gauge_vec, histogram_vec, saturating_i64,
};

/// The cache status of a response: its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum CacheStatus {
    /// A cache.
    Hit,
    /// The upstream.
    Forward,
    /// An error of Weir's own.
    Error,
}

impl CacheStatus {
    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Forward => "forward",
            Self::Error => "error",
        }
    }
}

/// The metrics of the server. Cheap to clone: clones share the metrics.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: IntCounterVec,
    duration: HistogramVec,
    in_flight: IntGauge,
    connections: ConnectionMetrics,
    limits: LimitMetrics,
    responses_stalled: IntCounter,
    lists_outrun: IntCounter,
    upgrades: IntGauge,
    watchers: IntGaugeVec,
    watch_events: IntCounterVec,
    watch_bytes: IntCounterVec,
    watchers_ended: IntCounterVec,
    documents_bytes: IntGauge,
    appointments: AppointmentMetrics,
    held: Arc<OnceLock<HeldBytes>>,
    /// Replaced as a whole at the first request for a resource, so that no request waits for
    /// another.
    resources: ArcSwap<HashMap<GroupVersionResource, Arc<ResourceMetrics>>>,
    /// The metrics of all requests without a known resource.
    other: OnceLock<Arc<ResourceMetrics>>,
}

impl ServerMetrics {
    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let inner = Inner {
            requests: counter_vec(
                registry,
                "weir_requests_total",
                "Client requests, by verb, resource, cache status, reason and status code.",
                &["verb", "group", "version", "resource", "cache_status", "reason", "code"],
            )?,
            duration: histogram_vec(
                registry,
                "weir_request_duration_seconds",
                "Time from the head of a request to the head of its response.",
                &["verb", "cache_status"],
                DURATION_BUCKETS_SECONDS,
            )?,
            in_flight: gauge(
                registry,
                "weir_requests_in_flight",
                "Client requests whose response head has not been sent yet.",
            )?,
            connections: ConnectionMetrics::register(registry)?,
            limits: LimitMetrics::register(registry)?,
            responses_stalled: counter(
                registry,
                "weir_responses_stalled_total",
                "HTTP/2 responses dropped because the client read nothing of them within the stall time-out.",
            )?,
            lists_outrun: counter(
                registry,
                "weir_lists_outrun_total",
                "Lists that broke off because their clients read much more slowly than the objects changed.",
            )?,
            upgrades: gauge(
                registry,
                "weir_upgraded_connections",
                "Client connections spliced to the upstream after an upgrade.",
            )?,
            watchers: gauge_vec(
                registry,
                "weir_watchers",
                "Open watches served from a cache.",
                RESOURCE_LABELS,
            )?,
            watch_events: counter_vec(
                registry,
                "weir_watch_events_total",
                "Events sent to watches served from a cache.",
                RESOURCE_LABELS,
            )?,
            watch_bytes: counter_vec(
                registry,
                "weir_watch_bytes_total",
                "Bytes sent to watches served from a cache, before compression and framing.",
                RESOURCE_LABELS,
            )?,
            watchers_ended: counter_vec(
                registry,
                "weir_watchers_ended_total",
                "Ended watches served from a cache, by cause.",
                &["group", "version", "resource", "cause"],
            )?,
            appointments: AppointmentMetrics::register(registry)?,
            documents_bytes: gauge(
                registry,
                "weir_documents_bytes",
                "Bytes of discovery and OpenAPI documents kept in memory.",
            )?,
            held: held_gauges(registry)?,
            resources: ArcSwap::default(),
            other: OnceLock::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the metrics of a resource. Pass `None` for a resource that discovery does not know,
    /// and for a request without a resource.
    pub fn resource(&self, gvr: Option<&GroupVersionResource>) -> Arc<ResourceMetrics> {
        let Some(gvr) = gvr else { return self.other() };
        let known = self.inner.resources.load();
        match known.get(gvr) {
            Some(known) => return Arc::clone(known),
            None if known.len() >= RESOURCES_MAX => return self.other(),
            None => {}
        }
        let new = ResourceMetrics::new(self, &gvr.group, &gvr.version, &gvr.resource);
        let new = Arc::new(new);
        self.inner.resources.rcu(|known| {
            let mut more = HashMap::clone(known);
            if more.len() < RESOURCES_MAX {
                more.entry(gvr.clone()).or_insert_with(|| Arc::clone(&new));
            }
            more
        });
        // A concurrent request may have inserted its own first.
        self.inner.resources.load().get(gvr).map_or_else(|| self.other(), Arc::clone)
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.in_flight.clone())
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection(&self, listener: &'static str) -> GaugeGuard {
        GaugeGuard::new(self.inner.connections.open.with_label_values(&[listener]))
    }

    /// Counts a connection that was refused or closed because of a limit.
    pub fn connection_refused(&self, cause: &'static str) {
        self.inner.connections.refused.with_label_values(&[cause]).inc();
    }

    /// Counts a TLS handshake as waiting until the guard is dropped.
    pub fn handshake_waiting(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.connections.handshakes_waiting.clone())
    }

    /// Returns the metrics of limits on one client.
    pub(crate) fn limits(&self) -> &LimitMetrics {
        &self.inner.limits
    }

    /// Counts a response that was dropped because its client did not read it.
    pub fn response_stalled(&self) {
        self.inner.responses_stalled.inc();
    }

    /// Counts a spliced connection until the guard is dropped.
    pub fn upgraded(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.upgrades.clone())
    }

    /// Sets the size of the documents in memory.
    pub fn documents(&self, bytes: u64) {
        self.inner.documents_bytes.set(saturating_i64(bytes));
    }

    /// Returns the metrics of appointments.
    pub(crate) fn appointments(&self) -> &AppointmentMetrics {
        &self.inner.appointments
    }

    /// Sets the account of the bytes that responses hold. Only the first call counts.
    pub fn set_held(&self, held: HeldBytes) {
        self.inner.held.get_or_init(|| held);
    }

    fn other(&self) -> Arc<ResourceMetrics> {
        let make = || Arc::new(ResourceMetrics::new(self, "", "", "other"));
        Arc::clone(self.inner.other.get_or_init(make))
    }
}

/// Registers the gauges of the bytes that responses hold, which are read at each scrape.
fn held_gauges(registry: &Registry) -> Result<Arc<OnceLock<HeldBytes>>, prometheus::Error> {
    let held = Arc::<OnceLock<HeldBytes>>::default();
    let gauge = |name: &str, help: &str, value: fn(&HeldBytes) -> usize| {
        let held = Arc::clone(&held);
        // Exact up to nine petabytes.
        let read = move || held.get().map_or(0.0, |held| value(held) as f64);
        registry.register(Box::new(PullingGauge::new(name, help, Box::new(read))?))
    };
    gauge(
        "weir_response_memory_bytes",
        "Bytes in memory that were copied or rendered for clients, which have not read them yet.",
        HeldBytes::bytes,
    )?;
    gauge(
        "weir_response_memory_bytes_limit",
        "Limit of the bytes in memory that wait for clients.",
        HeldBytes::bytes_max,
    )?;
    Ok(held)
}

/// The metrics of one resource.
#[derive(Debug)]
pub struct ResourceMetrics {
    metrics: ServerMetrics,
    labels: [Box<str>; 3],
    /// The counter and the histogram of cache hits with status 200, for get, list and watch.
    hits: [OnceLock<(IntCounter, Histogram)>; 3],
    watch: OnceLock<WatchHandles>,
}

#[derive(Debug)]
struct WatchHandles {
    watchers: IntGauge,
    events: IntCounter,
    bytes: IntCounter,
}

impl ResourceMetrics {
    fn new(metrics: &ServerMetrics, group: &str, version: &str, resource: &str) -> Self {
        Self {
            metrics: metrics.clone(),
            labels: [group.into(), version.into(), resource.into()],
            hits: Default::default(),
            watch: OnceLock::new(),
        }
    }

    /// Counts a request when the head of its response is known. `duration` is the time from the
    /// request's head to the response's.
    pub fn request(
        &self,
        verb: &'static str,
        cache_status: CacheStatus,
        reason: &'static str,
        code: u16,
        duration: Duration,
    ) {
        let hit = match verb {
            "get" => self.hits.first(),
            "list" => self.hits.get(1),
            "watch" => self.hits.get(2),
            _ => None,
        };
        let resolved;
        let (count, seconds) = match hit {
            Some(hit) if cache_status == CacheStatus::Hit && code == 200 => {
                hit.get_or_init(|| self.resolve(verb, cache_status, reason, "200"))
            }
            _ => {
                resolved = self.resolve(verb, cache_status, reason, &code.to_string());
                &resolved
            }
        };
        count.inc();
        seconds.observe(duration.as_secs_f64());
    }

    /// Counts a watch as open until the guard is dropped.
    pub fn watcher(&self) -> GaugeGuard {
        GaugeGuard::new(self.watch().watchers.clone())
    }

    /// Counts events and bytes that were sent to a watch.
    pub fn delivered(&self, events: usize, bytes: usize) {
        self.watch().events.inc_by(events as u64);
        self.watch().bytes.inc_by(bytes as u64);
    }

    /// Counts a list that broke off because its client was too slow.
    pub fn list_outrun(&self) {
        self.metrics.inner.lists_outrun.inc();
    }

    /// Counts the end of a watch.
    pub fn watcher_ended(&self, cause: &'static str) {
        let [group, version, resource] = &self.labels;
        let ended = &self.metrics.inner.watchers_ended;
        ended.with_label_values(&[group, version, resource, cause]).inc();
    }

    fn resolve(
        &self,
        verb: &str,
        cache_status: CacheStatus,
        reason: &str,
        code: &str,
    ) -> (IntCounter, Histogram) {
        let [group, version, resource] = &self.labels;
        let labels = [verb, group, version, resource, cache_status.as_str(), reason, code];
        (
            self.metrics.inner.requests.with_label_values(&labels),
            self.metrics.inner.duration.with_label_values(&[verb, cache_status.as_str()]),
        )
    }

    fn watch(&self) -> &WatchHandles {
        self.watch.get_or_init(|| {
            let labels = self.labels.each_ref().map(|label| &**label);
            WatchHandles {
                watchers: self.metrics.inner.watchers.with_label_values(&labels),
                events: self.metrics.inner.watch_events.with_label_values(&labels),
                bytes: self.metrics.inner.watch_bytes.with_label_values(&labels),
            }
        })
    }
}

const RESOURCE_LABELS: &[&str] = &["group", "version", "resource"];

/// CRDs that come and go must not fill the registry of metrics for good; what comes later counts as
/// `other`.
const RESOURCES_MAX: usize = 4096;

/// From a cached GET (some tens of microseconds) to the upstream's request deadline of 60 s.
const DURATION_BUCKETS_SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

#[cfg(test)]
mod tests;
