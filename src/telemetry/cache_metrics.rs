//! Metrics of the caches: reflectors, states, budgets, watchers, probes. All names begin with `weir_`.
//!
//! Label values are bounded: a resource gets a series only once discovery knows it, and a namespace only while a cache of its own lives,
//! which are limited in number. The series of a stopped cache are removed. Handles are resolved when a cache begins; nothing is looked
//! up when an event passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{
    Gauge, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use crate::telemetry::metrics::{
    counter, counter_vec, float_gauge_vec, gauge, gauge_vec, histogram_vec, saturating_i64,
};

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    caches: IntGauge,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    bytes_limit: IntGauge,
    total_bytes: IntGauge,
    total_bytes_limit: IntGauge,
    budget_refusals: IntCounterVec,
    stops: IntCounterVec,
    watchers: IntGaugeVec,
    state: IntGaugeVec,
    resource_version: IntGaugeVec,
    last_progress: GaugeVec,
    relists: IntCounterVec,
    watches: IntCounterVec,
    probes: IntCounterVec,
    proofs: IntCounterVec,
    proof_duration: HistogramVec,
    forward_exhausted: IntCounterVec,
    rewound: IntCounter,
}

impl CacheMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges =
            |name: &str, help: &str, labels: &[&str]| gauge_vec(registry, name, help, labels);
        let counters =
            |name: &str, help: &str, labels: &[&str]| counter_vec(registry, name, help, labels);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let families = Families {
            caches: gauge("weir_caches", "Caches alive.")?,
            objects: gauges("weir_cache_objects", "Objects in a cache.", &CACHE)?,
            bytes: gauges(
                "weir_cache_bytes",
                "What a cache's objects and history weigh, in bytes.",
                &CACHE,
            )?,
            bytes_limit: gauge(
                "weir_cache_bytes_limit",
                "The most that one cache may weigh, in bytes.",
            )?,
            total_bytes: gauge(
                "weir_cache_total_bytes",
                "What all caches and the lists under way weigh, in bytes.",
            )?,
            total_bytes_limit: gauge(
                "weir_cache_total_bytes_limit",
                "The most that all caches may weigh, in bytes.",
            )?,
            budget_refusals: counters(
                "weir_cache_budget_refusals_total",
                "Caches stopped or not begun because a budget was spent, by budget.",
                &["budget"],
            )?,
            stops: counters("weir_cache_stops_total", "Caches stopped, by cause.", &["cause"])?,
            watchers: gauges("weir_cache_watchers", "Watchers served by a cache.", &CACHE)?,
            state: gauges(
                "weir_reflector_state",
                "1 for the state that a reflector is in.",
                &with(CACHE, "state"),
            )?,
            resource_version: gauges(
                "weir_reflector_resource_version",
                "The resourceVersion up to which a cache is complete.",
                &CACHE,
            )?,
            last_progress: float_gauge_vec(
                registry,
                "weir_reflector_last_progress_timestamp_seconds",
                "When the upstream last told a reflector something, in seconds since the epoch.",
                &CACHE,
            )?,
            relists: counters(
                "weir_reflector_relists_total",
                "Lists begun by a reflector, by cause; start is the first one.",
                &with(CACHE, "cause"),
            )?,
            watches: counters(
                "weir_reflector_watches_total",
                "Upstream watches of a reflector that ended, by result.",
                &with(CACHE, "result"),
            )?,
            probes: counters(
                "weir_probes_total",
                "Probes of the upstream's resourceVersion for consistent reads, by outcome.",
                &["outcome"],
            )?,
            proofs: counters(
                "weir_freshness_proofs_total",
                "Watches that had to begin with a fresh state, by the step that proved it fresh; forwarded are those without proof.",
                &with(CACHE, "step"),
            )?,
            proof_duration: histogram_vec(
                registry,
                "weir_freshness_proof_duration_seconds",
                "How long the proof of freshness took, by the step that brought it, in seconds.",
                &["step"],
                &PROOF_SECONDS,
            )?,
            forward_exhausted: counters(
                "weir_forward_budget_exhausted_total",
                "Requests refused because the forward budget of a resource was spent.",
                &["group", "version", "resource"],
            )?,
            rewound: counter(
                registry,
                "weir_history_rewound_total",
                "Times that the upstream's history was found to be older than what it had told before (etcd restored, or another cluster).",
            )?,
        };
        Ok(Self { families: Arc::new(families) })
    }

    /// Opens the series of one cache; the labels are group, version, resource, namespace (empty for the cluster) and representation.
    pub fn series(&self, labels: [&str; 5]) -> CacheSeries {
        let families = &self.families;
        CacheSeries {
            objects: families.objects.with_label_values(&labels),
            bytes: families.bytes.with_label_values(&labels),
            watchers: families.watchers.with_label_values(&labels),
            resource_version: families.resource_version.with_label_values(&labels),
            last_progress: families.last_progress.with_label_values(&labels),
            states: STATES.map(|state| families.state.with_label_values(&with(labels, state))),
            labels: labels.map(Box::from),
            families: Arc::clone(families),
            retired: AtomicBool::new(false),
        }
    }

    /// Sets the limits of the byte budgets.
    pub fn limits(&self, resource_bytes_max: usize, total_bytes_max: usize) {
        self.families.bytes_limit.set(saturating_i64(resource_bytes_max));
        self.families.total_bytes_limit.set(saturating_i64(total_bytes_max));
    }

    /// Sets how many caches there are, and what they weigh together in bytes.
    pub fn totals(&self, caches: usize, bytes: usize) {
        self.families.caches.set(saturating_i64(caches));
        self.families.total_bytes.set(saturating_i64(bytes));
    }

    /// Counts a cache refused or stopped for a budget: `resource`, `total` or `caches`.
    pub fn budget_refusal(&self, budget: &'static str) {
        self.families.budget_refusals.with_label_values(&[budget]).inc();
    }

    /// Counts a cache that stopped.
    pub fn stopped(&self, cause: &'static str) {
        self.families.stops.with_label_values(&[cause]).inc();
    }

    /// Counts a probe.
    pub fn probe(&self, outcome: &'static str) {
        self.families.probes.with_label_values(&[outcome]).inc();
    }

    /// Counts a request that found the forward budget spent; the labels are empty for a resource that discovery does not know.
    pub fn forward_exhausted(&self, group: &str, version: &str, resource: &str) {
        self.families.forward_exhausted.with_label_values(&[group, version, resource]).inc();
    }

    /// Counts a rewound history: the alarm of the operator.
    pub fn rewound(&self) {
        self.families.rewound.inc();
    }
}

/// The metrics of one cache.
#[derive(Debug)]
pub struct CacheSeries {
    families: Arc<Families>,
    labels: [Box<str>; 5],
    objects: IntGauge,
    bytes: IntGauge,
    watchers: IntGauge,
    resource_version: IntGauge,
    last_progress: Gauge,
    states: [IntGauge; STATES.len()],
    retired: AtomicBool,
}

impl CacheSeries {
    /// Sets what the state holds: objects, bytes, and the resourceVersion.
    pub fn contents(&self, objects: usize, bytes: usize, resource_version: u64) {
        self.objects.set(saturating_i64(objects));
        self.bytes.set(saturating_i64(bytes));
        self.resource_version.set(saturating_i64(resource_version));
    }

    /// Sets how many watchers there are.
    pub fn watchers(&self, watchers: usize) {
        self.watchers.set(saturating_i64(watchers));
    }

    /// Marks the present as the time of the last progress.
    pub fn progress(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_progress.set(now.as_secs_f64());
    }

    /// Sets the reflector's state, one of [`STATES`].
    pub fn state(&self, present: &str) {
        for (state, gauge) in STATES.iter().zip(&self.states) {
            gauge.set(i64::from(*state == present));
        }
    }

    /// Counts a list that begins.
    pub fn relist(&self, cause: &str) {
        self.count(&self.families.relists, cause);
    }

    /// Counts a proof of freshness by its step, one of [`PROOF_STEPS`], or the want of one.
    pub fn proof(&self, step: &str, took: Duration) {
        self.count(&self.families.proofs, step);
        self.families.proof_duration.with_label_values(&[step]).observe(took.as_secs_f64());
    }

    /// Counts an upstream watch that ended.
    pub fn watch_ended(&self, result: &str) {
        self.count(&self.families.watches, result);
    }

    /// Removes the series, once. The handles count on into nothing.
    pub fn retire(&self) {
        if self.retired.swap(true, Ordering::Relaxed) {
            return;
        }
        let labels = self.labels.each_ref().map(|label| &**label);
        let families = &self.families;
        for gauges in
            [&families.objects, &families.bytes, &families.watchers, &families.resource_version]
        {
            gauges.remove_label_values(&labels).ok();
        }
        families.last_progress.remove_label_values(&labels).ok();
        for state in STATES {
            families.state.remove_label_values(&with(labels, state)).ok();
        }
        for cause in RELIST_CAUSES {
            families.relists.remove_label_values(&with(labels, cause)).ok();
        }
        for step in PROOF_STEPS {
            families.proofs.remove_label_values(&with(labels, step)).ok();
        }
        for result in WATCH_RESULTS {
            families.watches.remove_label_values(&with(labels, result)).ok();
        }
    }

    fn count(&self, counters: &IntCounterVec, value: &str) {
        if !self.retired.load(Ordering::Relaxed) {
            let labels = self.labels.each_ref().map(|label| &**label);
            counters.with_label_values(&with(labels, value)).inc();
        }
    }
}

/// The states that a reflector can be in, for the `state` label.
pub const STATES: [&str; 5] = ["listing", "backing-off", "resuming", "verifying", "watching"];
/// Why a list begins, for the `cause` label.
pub const RELIST_CAUSES: [&str; 5] = ["start", "expired", "rewound", "changed", "retry"];
/// How a cache was proved fresh, for the `step` label (design, section 5).
pub const PROOF_STEPS: [&str; 5] = ["held", "event", "list", "short-watch", "forwarded"];
/// How an upstream watch ends, for the `result` label.
pub const WATCH_RESULTS: [&str; 12] = [
    "clean",
    "short",
    "overdue",
    "changed",
    "rewound",
    "expired",
    "invalid",
    "malformed",
    "error",
    "silent",
    "refused",
    "too-large",
];

/// The labels of one cache. The namespace is empty for a cache of the whole cluster.
const CACHE: [&str; 5] = ["group", "version", "resource", "namespace", "representation"];

/// A probe and a list take some milliseconds, a short watch up to 2.3 s, and nothing waits for longer than the upstream's own 3 s.
const PROOF_SECONDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

fn with<'a>(labels: [&'a str; 5], last: &'a str) -> [&'a str; 6] {
    let [group, version, resource, namespace, representation] = labels;
    [group, version, resource, namespace, representation, last]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(registry: &Registry) -> String {
        prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn a_retired_cache_leaves_no_series() {
        let registry = Registry::new();
        let metrics = CacheMetrics::register(&registry).unwrap();
        let series = metrics.series(["", "v1", "pods", "", "json"]);
        series.contents(3, 300, 17);
        series.state("watching");
        series.progress();
        for cause in RELIST_CAUSES {
            series.relist(cause);
        }
        for step in PROOF_STEPS {
            series.proof(step, Duration::from_millis(7));
        }
        for result in WATCH_RESULTS {
            series.watch_ended(result);
        }
        let text = lines(&registry);
        assert!(text.contains(
            r#"weir_reflector_state{group="",namespace="",representation="json",resource="pods",state="watching",version="v1"} 1"#
        ));
        series.retire();
        series.retire();
        series.relist("start");
        assert!(!lines(&registry).contains("pods"), "{}", lines(&registry));
    }
}
