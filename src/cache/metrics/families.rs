//! The metric families of the caches.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Registry,
};

use crate::telemetry::metrics::{
    counter, counter_vec, counters_of, float_gauge, float_gauge_vec, gauge, gauge_vec,
    histogram_vec,
};

/// The metric families of the caches.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) caches: IntGauge,
    pub(super) objects: IntGaugeVec,
    pub(super) bytes: IntGaugeVec,
    pub(super) bytes_limit: IntGauge,
    pub(super) total_bytes: IntGauge,
    pub(super) total_bytes_limit: IntGauge,
    pub(super) budget_refusals: IntCounterVec,
    pub(super) stops: IntCounterVec,
    pub(super) watchers: IntGaugeVec,
    pub(super) watchers_behind: IntGaugeVec,
    pub(super) history: HistoryFamilies,
    pub(super) events: IntCounterVec,
    pub(super) event_bytes: IntCounterVec,
    pub(super) applied: Histogram,
    pub(super) written: Histogram,
    pub(super) delay_peak: GaugeVec,
    pub(super) fills: HistogramVec,
    pub(super) state: IntGaugeVec,
    pub(super) resource_version: IntGaugeVec,
    pub(super) last_progress: GaugeVec,
    pub(super) relists: IntCounterVec,
    pub(super) watches: IntCounterVec,
    pub(super) backfills: IntCounterVec,
    pub(super) probes: IntCounterVec,
    pub(super) proofs: IntCounterVec,
    pub(super) proof_duration: HistogramVec,
    pub(super) forwards: IntGaugeVec,
    pub(super) forward_exhausted: IntCounterVec,
    pub(super) checks: IntCounterVec,
    pub(super) checked: GaugeVec,
    pub(super) quarantined: IntGaugeVec,
    pub(super) cluster_identified: IntGauge,
    pub(super) over_budget: IntGaugeVec,
    pub(super) rewinds: IntCounter,
    pub(super) last_rewind: Gauge,
}

impl Families {
    /// Creates the families and registers them.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges =
            |name: &str, help: &str, labels: &[&str]| gauge_vec(registry, name, help, labels);
        let counters =
            |name: &str, help: &str, labels: &[&str]| counter_vec(registry, name, help, labels);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let delays = histogram_vec(
            registry,
            "weir_watch_delivery_delay_seconds",
            "Time from the moment at which Weir read an event of the upstream until it was applied to its cache (stage applied), and until the connection of a watch took it to be written (stage written; one of 64 deliveries). A client that does not read takes it late.",
            &["stage"],
            &DELAY_SECONDS,
        )?;
        Ok(Self {
            caches: gauge("weir_caches", "Running caches.")?,
            objects: gauges("weir_cache_objects", "Objects in a cache.", &CACHE)?,
            bytes: gauges(
                "weir_cache_bytes",
                "Memory of the objects and the history of a cache, in bytes.",
                &CACHE,
            )?,
            bytes_limit: gauge(
                "weir_cache_bytes_limit",
                "Configured memory limit of one cache, in bytes.",
            )?,
            total_bytes: gauge(
                "weir_cache_total_bytes",
                "Memory of all caches and of the lists in progress, in bytes.",
            )?,
            total_bytes_limit: gauge(
                "weir_cache_total_bytes_limit",
                "Configured memory limit of all caches, in bytes.",
            )?,
            budget_refusals: counters_of(
                registry,
                "weir_cache_budget_refusals_total",
                "Caches stopped or not started because a limit was reached, by limit: resource (bytes of one cache), total (bytes of all caches) or caches (number of caches).",
                ("budget", &["resource", "total", "caches"]),
            )?,
            stops: counters("weir_cache_stops_total", "Stopped caches, by cause.", &["cause"])?,
            watchers: gauges("weir_cache_watchers", "Watches served by a cache.", &CACHE)?,
            watchers_behind: gauges(
                "weir_watchers_behind",
                "Watches that have more than half of the history of their cache to read. Those that fall out of it end.",
                &CACHE,
            )?,
            history: HistoryFamilies::register(registry)?,
            events: counters(
                "weir_reflector_events_total",
                "Events of the upstream watch of a reflector: upsert, delete, bookmark or error. A type has a series from its first event on.",
                &with(CACHE, "type"),
            )?,
            event_bytes: counters(
                "weir_reflector_bytes_total",
                "Bytes of the objects in those events.",
                &with(CACHE, "type"),
            )?,
            applied: delays.with_label_values(&["applied"]),
            written: delays.with_label_values(&["written"]),
            delay_peak: float_gauge_vec(
                registry,
                "weir_cache_delivery_delay_max_seconds",
                "The longest time, of the last one to two minutes, from the moment at which Weir read an event of the upstream until it was applied to this cache, or taken to be written to a watch (one of 64 deliveries).",
                &CACHE,
            )?,
            fills: histogram_vec(
                registry,
                "weir_cache_fill_duration_seconds",
                "Duration of the lists that filled a cache, by their cause; start is a cold cache.",
                &["cause"],
                &FILL_SECONDS,
            )?,
            state: gauges(
                "weir_reflector_state",
                "State of a reflector: 1 for the present state. watching has a 0 in the other states, which have a series only while they are present.",
                &with(CACHE, "state"),
            )?,
            resource_version: gauges(
                "weir_reflector_resource_version",
                "The last 15 digits of the resourceVersion up to which a cache is complete: more are not exact in a floating-point number.",
                &CACHE,
            )?,
            last_progress: float_gauge_vec(
                registry,
                "weir_reflector_last_progress_timestamp_seconds",
                "Time of the last list, event or bookmark from the upstream, in seconds since the epoch.",
                &CACHE,
            )?,
            relists: counters(
                "weir_reflector_relists_total",
                "Lists started by a reflector, by cause. The cause of the first list is start.",
                &with(CACHE, "cause"),
            )?,
            watches: counters(
                "weir_reflector_watches_total",
                "Ended upstream watches of a reflector, by result.",
                &with(CACHE, "result"),
            )?,
            backfills: counters(
                "weir_history_backfills_total",
                "Attempts to extend the history of a cache for watches from older resourceVersions, by outcome: extended, expired (the upstream no longer has the events), contradicted (they do not fit the cached state) or failed.",
                &["outcome"],
            )?,
            probes: counters(
                "weir_probes_total",
                "Requests for the upstream's present resourceVersion, for consistent reads, by outcome.",
                &["outcome"],
            )?,
            proofs: counters(
                "weir_freshness_proofs_total",
                "Watches and lists that had to show a fresh state, by the step that proved it fresh. The step forwarded counts those that found no proof in time.",
                &with(CACHE, "step"),
            )?,
            proof_duration: histogram_vec(
                registry,
                "weir_freshness_proof_duration_seconds",
                "Duration of the proof of freshness of a watch or list, in seconds, by the step that proved it.",
                &["step"],
                &PROOF_SECONDS,
            )?,
            forwards: gauges(
                "weir_forward_budget_requests",
                "Requests that hold a permit of a forward budget, by budget: forward (the cache is cold or fails) or over-budget (it exceeds a byte budget).",
                &["budget"],
            )?,
            forward_exhausted: counters(
                "weir_forward_budget_exhausted_total",
                "Requests rejected with 429 because a forward budget of the resource was exhausted, by budget: forward (the cache is cold or fails) or over-budget (it exceeds a byte budget).",
                &["group", "version", "resource", "budget"],
            )?,
            over_budget: gauges(
                "weir_cache_over_budget",
                "1 while a cache exceeds a byte budget, so that its requests are forwarded.",
                &CACHE,
            )?,
            checks: counters(
                "weir_cache_checks_total",
                "Comparisons of a cache with the upstream at one resourceVersion, by check: count (the number of objects with the number that a probe brings), order (an event of the upstream came after a newer one, and was ignored; always different), page (keys, resourceVersions and uids) or bytes (whole objects); and by outcome: equal, different (a page: etcd contradicts the cache), upstream (etcd contradicts an API server's watch cache), malformed (the API server's page is damaged), refused, inconclusive, or skipped (the history does not reach back).",
                &[
                    "group",
                    "version",
                    "resource",
                    "namespace",
                    "representation",
                    "check",
                    "outcome",
                ],
            )?,
            checked: float_gauge_vec(
                registry,
                "weir_cache_checked_timestamp_seconds",
                "Time of the last comparison of a page of a cache with the upstream that proved something, in seconds since the epoch. 0 before the first.",
                &CACHE,
            )?,
            quarantined: gauges(
                "weir_cache_quarantined",
                "1 while a cache that etcd has proved wrong answers nothing, so that its requests are forwarded.",
                &CACHE,
            )?,
            cluster_identified: gauge(
                "weir_upstream_cluster_identified",
                "1 if Weir knows the uid of the namespace kube-system, so that it notices another cluster at the address; 0 if it may not read the namespace.",
            )?,
            rewinds: counter(
                registry,
                "weir_history_rewinds_total",
                "Detected rewinds of the upstream's history (etcd restored, or another cluster at the address).",
            )?,
            last_rewind: float_gauge(
                registry,
                "weir_history_last_rewind_timestamp_seconds",
                "Time of the last detected rewind of the upstream's history, in seconds since the epoch. 0 without one.",
            )?,
        })
    }
}

/// The families of the histories of caches.
#[derive(Debug)]
pub(super) struct HistoryFamilies {
    pub(super) events: IntGaugeVec,
    pub(super) bytes: IntGaugeVec,
    pub(super) oldest: GaugeVec,
}

impl HistoryFamilies {
    fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            events: gauge_vec(
                registry,
                "weir_cache_history_events",
                "Events in the history of a cache.",
                &CACHE,
            )?,
            bytes: gauge_vec(
                registry,
                "weir_cache_history_bytes",
                "Memory that only the history of a cache needs, in bytes.",
                &CACHE,
            )?,
            oldest: float_gauge_vec(
                registry,
                "weir_cache_history_oldest_timestamp_seconds",
                "How far back a watch may resume: the time of the oldest event in the history, or of the last list if no event has left the history since. 0 before the first list.",
                &CACHE,
            )?,
        })
    }
}

/// Appends the value of one more label to the labels of a cache.
pub(super) fn with<'a>(labels: [&'a str; 5], last: &'a str) -> [&'a str; 6] {
    let [group, version, resource, namespace, representation] = labels;
    [group, version, resource, namespace, representation, last]
}

/// The labels of one cache. The namespace is empty for a cache of the whole cluster.
const CACHE: [&str; 5] = ["group", "version", "resource", "namespace", "representation"];

/// An event is applied within some tens of microseconds. Clients notice seconds.
const DELAY_SECONDS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 10.0, 60.0,
];

/// From a collection of a few objects to one of hundreds of megabytes, page by page.
const FILL_SECONDS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

/// A probe and a list take some milliseconds, a short watch takes up to 2.3 s, and no request waits
/// longer than the upstream's own 3 s.
const PROOF_SECONDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
