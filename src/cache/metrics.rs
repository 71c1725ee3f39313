//! Metrics of the caches: reflectors, states, budgets, watchers and probes.
//!
//! The label values are bounded. A resource gets a series only once discovery knows it. A namespace
//! gets one only while it has a cache of its own, and the number of these is limited. The series of
//! a stopped cache are removed. Handles are looked up when a cache starts, so no event needs a
//! look-up.

mod delay_peak;
mod families;
mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prometheus::{IntGaugeVec, Registry};

use crate::cache::metrics::families::{DeliveryStage, Families};
pub use crate::cache::metrics::series::{
    CHECK_OUTCOMES, CHECKS, CacheFigures, CacheSeries, EventLabel, PROOF_STEPS, RELIST_CAUSES,
    STATES, WATCH_RESULTS, WATCHING,
};
use crate::cache::metrics::series::{seconds_now, system_time};
use crate::telemetry::events::Events;
use crate::telemetry::metrics::buckets::Buckets;
use crate::telemetry::metrics::{GaugeGuard, saturating_i64, sum};
use crate::telemetry::trace::Tracer;

/// The metrics of the caches. Cheap to clone: all clones share the metrics.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    families: Arc<Families>,
    events: Events,
    tracer: Tracer,
}

/// The figures of all caches together.
#[derive(Clone, Debug, Default)]
pub struct CacheTotals {
    /// The bytes of all caches and of the lists in progress, and their limit.
    pub bytes: f64,
    /// The limit of these bytes.
    pub bytes_max: f64,
    /// The limit of the bytes of one cache.
    pub resource_bytes_max: f64,
    /// Caches that the limit of all bytes, and that of one cache, stopped or refused.
    pub refusals: [f64; 2],
    /// Requests that hold a permit of a forward budget; `None` if none ever did.
    pub forwards: Option<f64>,
    /// Requests that exceeded a forward budget.
    pub forwards_exhausted: f64,
    /// Events of the watches of reflectors, and the bytes of their objects.
    pub events: f64,
    /// The bytes of the objects in these events.
    pub event_bytes: f64,
    /// How late events were written to watches.
    pub(crate) delays: Buckets,
    /// When the upstream's history was last rewound.
    pub last_rewind: Option<SystemTime>,
}

impl CacheMetrics {
    /// Creates the metrics and registers them. Must be called once for each registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Arc::new(Families::register(registry)?);
        Ok(Self { families, events: Events::default(), tracer: Tracer::default() })
    }

    /// Notes what happens to caches among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Has the lists of reflectors recorded as spans.
    pub fn with_tracer(self, tracer: &Tracer) -> Self {
        Self { tracer: tracer.clone(), ..self }
    }

    /// Returns what takes the spans of reflectors.
    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Returns the notable events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the figures of all caches together.
    pub fn figures(&self) -> CacheTotals {
        let families = &self.families;
        let refusals = |budget| families.budget_refusals.with_label_values(&[budget]).get() as f64;
        CacheTotals {
            bytes: families.total_bytes.get() as f64,
            bytes_max: families.total_bytes_limit.get() as f64,
            resource_bytes_max: families.bytes_limit.get() as f64,
            refusals: ["total", "resource"].map(refusals),
            forwards: sum(&families.forwards),
            forwards_exhausted: sum(&families.forward_exhausted).unwrap_or(0.0),
            events: sum(&families.events).unwrap_or(0.0),
            event_bytes: sum(&families.event_bytes).unwrap_or(0.0),
            delays: Buckets::collect(
                families.delays.get(DeliveryStage::Written),
                ("stage", "written"),
            ),
            last_rewind: system_time(families.last_rewind.get()),
        }
    }

    /// Creates the series of one cache. The labels are group, version, resource, namespace (empty
    /// for the cluster) and representation.
    pub fn series(&self, labels: [&str; 5]) -> CacheSeries {
        CacheSeries::new(&self.families, labels)
    }

    /// Sets the configured byte limits.
    pub fn limits(&self, resource_bytes_max: usize, total_bytes_max: usize) {
        self.families.bytes_limit.set(saturating_i64(resource_bytes_max));
        self.families.total_bytes_limit.set(saturating_i64(total_bytes_max));
    }

    /// Sets the number of caches, and their total weight in bytes.
    pub fn totals(&self, caches: usize, bytes: usize) {
        self.families.caches.set(saturating_i64(caches));
        self.families.total_bytes.set(saturating_i64(bytes));
    }

    /// Counts a cache that a budget stopped or refused: `resource`, `total` or `caches`.
    pub fn budget_refusal(&self, budget: &'static str) {
        self.families.budget_refusals.with_label_values(&[budget]).inc();
    }

    /// Observes how long after it was read an event was applied.
    pub(crate) fn applied(&self, delay: Duration) {
        self.families.delays.get(DeliveryStage::Applied).observe(delay.as_secs_f64());
    }

    /// Observes how long after it was read an event was taken to be written to a watch.
    pub(crate) fn written(&self, delay: Duration) {
        self.families.delays.get(DeliveryStage::Written).observe(delay.as_secs_f64());
    }

    /// Observes the duration of a list that filled a cache. The cause is one of [`RELIST_CAUSES`].
    pub(crate) fn filled(&self, cause: &'static str, duration: Duration) {
        self.families.fills.with_label_values(&[cause]).observe(duration.as_secs_f64());
    }

    /// Counts a stopped cache.
    pub fn stopped(&self, cause: &'static str) {
        self.families.stops.with_label_values(&[cause]).inc();
    }

    /// Counts an attempt to extend a history to an older resourceVersion.
    pub fn backfill(&self, outcome: &'static str) {
        self.families.backfills.with_label_values(&[outcome]).inc();
    }

    /// Counts a probe.
    pub fn probe(&self, outcome: &'static str) {
        self.families.probes.with_label_values(&[outcome]).inc();
    }

    /// Counts a request that holds a permit of a forward budget, until the guard is dropped.
    pub fn forwarding(&self, budget: &str) -> GaugeGuard {
        GaugeGuard::new(self.families.forwards.with_label_values(&[budget]))
    }

    /// Counts a request that exceeded a forward budget. The labels of the group, version and
    /// resource are empty for a resource that discovery does not know.
    pub fn forward_exhausted(&self, [group, version, resource]: [&str; 3], budget: &str) {
        let labels = [group, version, resource, budget];
        self.families.forward_exhausted.with_label_values(&labels).inc();
    }

    /// Sets whether a cache exceeds a byte budget. Operators should be alerted. The labels are
    /// those of [`Self::series`].
    pub fn over_budget(&self, labels: [&str; 5], is_over: bool) {
        flag(&self.families.over_budget, labels, is_over);
    }

    /// Sets whether a cache is quarantined. Operators should be alerted. The labels are those of
    /// [`Self::series`].
    pub fn quarantined(&self, labels: [&str; 5], is_quarantined: bool) {
        flag(&self.families.quarantined, labels, is_quarantined);
    }

    /// Sets whether the cluster is known by the uid of its namespace kube-system.
    pub fn cluster_identified(&self, is_identified: bool) {
        self.families.cluster_identified.set(i64::from(is_identified));
    }

    /// Counts a detected rewind of the upstream's history. Operators should be alerted.
    pub fn rewound(&self) {
        self.families.rewinds.inc();
        self.families.last_rewind.set(seconds_now());
    }
}

/// Sets whether a cache has a property. Only those that have it have a series.
fn flag(family: &IntGaugeVec, labels: [&str; 5], is_set: bool) {
    if is_set {
        family.with_label_values(&labels).set(1);
    } else {
        let _removed = family.remove_label_values(&labels);
    }
}
