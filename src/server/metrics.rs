//! Metrics of the server. All names begin with `weir_`.
//!
//! The number of label values that clients can cause is bounded. Group, version and resource are
//! those of resources that discovery knows; the caller passes `None` for all others. All other
//! label values are constants of Weir. The counters of a request that a cache answered are resolved
//! once per resource, so that this path looks up no label.

mod families;
mod resource;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use prometheus::{IntCounter, PullingGauge, Registry};

use crate::api::keyed_hash::BuildHashOfHash;
use crate::api::resource::GroupVersionResource;
use crate::codec::held_bytes::HeldBytes;
use crate::server::appointments::HerdAppointments;
pub(crate) use crate::server::metrics::families::WaitCause;
use crate::server::metrics::families::{ResourceFamilies, ServerFamilies};
pub(crate) use crate::server::metrics::resource::ResourceMetrics;
pub(crate) use crate::server::metrics::resource::{AnsweredRequest, CacheStatus, WatchOutcome};
use crate::telemetry::metrics::{GaugeGuard, labelled, register, saturating_i64, sum};

/// The metrics of the server. Cheap to clone: clones share the metrics.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    families: ServerFamilies,
    resource_families: Arc<ResourceFamilies>,
    appointments: HerdAppointments,
    held: Arc<OnceLock<HeldBytes>>,
    /// Replaced as a whole at the first request for a resource, so that no request waits for
    /// another.
    resources: ArcSwap<HashMap<GroupVersionResource, Arc<ResourceMetrics>, BuildHashOfHash>>,
    /// The metrics of all requests without a known resource.
    other: OnceLock<Arc<ResourceMetrics>>,
}

/// The counts of the server.
#[derive(Clone, Debug, Default)]
pub struct ServerFigures {
    /// Requests.
    pub requests: Vec<RequestCount>,
    /// Events that were sent to watches, by group, version and resource.
    pub watch_events: Vec<([Box<str>; 3], f64)>,
    /// Bytes of responses, by verb and cache status.
    pub response_bytes: Vec<([Box<str>; 2], f64)>,
    /// Open watches that caches serve.
    pub watches: f64,
    /// Open connections of clients; `None` before the first one.
    pub connections: Option<f64>,
    /// Connections that were refused or closed because of a limit.
    pub connections_refused: f64,
    /// Responses that were dropped because their clients did not read them.
    pub responses_stalled: f64,
    /// Bytes that wait for clients, and their limit.
    pub held: [f64; 2],
    /// Bytes of discovery and OpenAPI documents in memory.
    pub documents: f64,
}

/// The number of requests that were alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestCount {
    /// The verb.
    pub verb: Box<str>,
    /// The group, version and name of the resource.
    pub resource: [Box<str>; 3],
    /// The cache status.
    pub cache_status: Box<str>,
    /// Why it has this cache status; empty for a hit.
    pub reason: Box<str>,
    /// The status code.
    pub code: Box<str>,
    /// The number of these requests.
    pub count: f64,
}

impl ServerMetrics {
    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let inner = Inner {
            families: ServerFamilies::register(registry)?,
            resource_families: Arc::new(ResourceFamilies::register(registry)?),
            appointments: HerdAppointments::register(registry)?,
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
        let resources = self.inner.resources.load();
        match resources.get(gvr) {
            Some(metrics) => return Arc::clone(metrics),
            None if resources.len() >= RESOURCES_MAX => return self.other(),
            None => {}
        }
        let labels = [&*gvr.group, &*gvr.version, &*gvr.resource];
        let new = Arc::new(ResourceMetrics::new(&self.inner.resource_families, labels));
        self.inner.resources.rcu(|resources| {
            let mut more = HashMap::clone(resources);
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
        GaugeGuard::new(self.inner.families.in_flight.clone())
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection(&self, listener: &'static str) -> GaugeGuard {
        GaugeGuard::new(self.inner.families.connections.with_label_values(&[listener]))
    }

    /// Counts a connection that was refused or closed because of a limit.
    pub fn connection_refused(&self, cause: &'static str) {
        self.inner.families.connections_refused.with_label_values(&[cause]).inc();
    }

    /// Counts a TLS handshake: `completed`, `failed` or `refused`.
    pub(crate) fn handshake(&self, result: &'static str) {
        self.inner.families.handshakes.with_label_values(&[result]).inc();
    }

    /// Counts a TLS handshake as waiting until the guard is dropped.
    pub fn handshake_waiting(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.families.handshakes_waiting.clone())
    }

    pub(crate) fn watches_refused(&self) -> &IntCounter {
        &self.inner.families.watches_refused
    }

    /// Counts a response that was dropped because its client did not read it.
    pub fn response_stalled(&self) {
        self.inner.families.responses_stalled.inc();
    }

    /// Counts a spliced connection until the guard is dropped.
    pub fn upgraded(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.families.upgrades.clone())
    }

    /// Sets the size of the documents in memory.
    pub fn documents(&self, bytes: u64) {
        self.inner.families.documents_bytes.set(saturating_i64(bytes));
    }

    pub(crate) fn appointments(&self) -> &HerdAppointments {
        &self.inner.appointments
    }

    /// Sets the account of the bytes that responses hold. Only the first call counts.
    pub fn set_held(&self, held: HeldBytes) {
        self.inner.held.get_or_init(|| held);
    }

    /// Returns what was counted.
    pub fn figures(&self) -> ServerFigures {
        let inner = &*self.inner;
        let families = &inner.resource_families;
        let labels = ["verb", "group", "version", "resource", "cache_status", "reason", "code"];
        let request = |(labels, count): ([Box<str>; 7], f64)| {
            let [verb, group, version, resource, cache_status, reason, code] = labels;
            let resource = [group, version, resource];
            RequestCount { verb, resource, cache_status, reason, code, count }
        };
        let held = |value: fn(&HeldBytes) -> usize| inner.held.get().map_or(0, value) as f64;
        ServerFigures {
            requests: labelled(&families.requests, labels).into_iter().map(request).collect(),
            watch_events: labelled(&families.watch_events, ["group", "version", "resource"]),
            response_bytes: labelled(&families.response_bytes, ["verb", "cache_status"]),
            watches: sum(&families.watchers).unwrap_or(0.0),
            connections: sum(&inner.families.connections),
            connections_refused: sum(&inner.families.connections_refused).unwrap_or(0.0),
            responses_stalled: inner.families.responses_stalled.get() as f64,
            held: [held(HeldBytes::bytes), held(HeldBytes::bytes_max)],
            documents: inner.families.documents_bytes.get() as f64,
        }
    }

    fn other(&self) -> Arc<ResourceMetrics> {
        let make =
            || Arc::new(ResourceMetrics::new(&self.inner.resource_families, ["", "", "other"]));
        Arc::clone(self.inner.other.get_or_init(make))
    }
}

/// CRDs that come and go must not fill the registry of metrics for good; what comes later counts as
/// `other`.
const RESOURCES_MAX: usize = 4096;

/// Registers the gauges of the bytes that responses hold, which are read at each scrape.
fn held_gauges(registry: &Registry) -> Result<Arc<OnceLock<HeldBytes>>, prometheus::Error> {
    let held = Arc::<OnceLock<HeldBytes>>::default();
    let gauge = |name: &str, help: &str, value: fn(&HeldBytes) -> usize| {
        let held = Arc::clone(&held);
        // Exact up to nine petabytes.
        let read = move || held.get().map_or(0.0, |held| value(held) as f64);
        register(registry, PullingGauge::new(name, help, Box::new(read))?)
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

#[cfg(test)]
mod tests;
