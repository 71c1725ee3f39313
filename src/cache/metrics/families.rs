//! The metric families of the caches.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
};

use crate::api::labels;
use crate::telemetry::metrics::{Labelled, families};

families! {
    /// The metric families of the caches.
    #[derive(Debug)]
    pub(super) struct Families {
        /// Running caches.
        pub(super) caches: IntGauge = gauge("weir_caches"),
        /// Objects in a cache.
        pub(super) objects: IntGaugeVec = gauge_vec("weir_cache_objects", &CACHE),
        /// Memory of the objects and the history of a cache, in bytes.
        pub(super) bytes: IntGaugeVec = gauge_vec("weir_cache_bytes", &CACHE),
        /// Configured memory limit of one cache, in bytes.
        pub(super) bytes_limit: IntGauge = gauge("weir_cache_bytes_limit"),
        /// Memory of all caches and of the lists in progress, in bytes.
        pub(super) total_bytes: IntGauge = gauge("weir_cache_total_bytes"),
        /// Configured memory limit of all caches, in bytes.
        pub(super) total_bytes_limit: IntGauge = gauge("weir_cache_total_bytes_limit"),
        /// Caches stopped or not started because a limit was reached, by limit: resource (bytes of
        /// one cache), total (bytes of all caches) or caches (number of caches).
        pub(super) budget_refusals: IntCounterVec = counters_of(
            "weir_cache_budget_refusals_total",
            ("budget", &["resource", "total", "caches"]),
        ),
        /// Stopped caches, by cause.
        pub(super) stops: IntCounterVec = counter_vec("weir_cache_stops_total", &["cause"]),
        /// Watches served by a cache.
        pub(super) watchers: IntGaugeVec = gauge_vec("weir_cache_watchers", &CACHE),
        /// Watches that have more than half of the history of their cache to read. Those that fall
        /// out of it end.
        pub(super) watchers_behind: IntGaugeVec = gauge_vec("weir_watchers_behind", &CACHE),
        /// Events in the history of a cache.
        pub(super) history_events: IntGaugeVec = gauge_vec("weir_cache_history_events", &CACHE),
        /// Memory that only the history of a cache needs, in bytes.
        pub(super) history_bytes: IntGaugeVec = gauge_vec("weir_cache_history_bytes", &CACHE),
        /// How far back a watch may resume: the time of the oldest event in the history, or of the
        /// last list if no event has left the history since. 0 before the first list.
        pub(super) history_oldest: GaugeVec =
            gauge_vec("weir_cache_history_oldest_timestamp_seconds", &CACHE),
        /// Events of the upstream watch of a reflector: upsert, delete, bookmark or error. A type
        /// has a series from its first event on.
        pub(super) events: IntCounterVec =
            counter_vec("weir_reflector_events_total", &with(CACHE, "type")),
        /// Bytes of the objects in those events.
        pub(super) event_bytes: IntCounterVec =
            counter_vec("weir_reflector_bytes_total", &with(CACHE, "type")),
        /// Time from the moment at which Weir read an event of the upstream until it was applied to
        /// its cache (stage applied), and until the connection of a watch took it to be written
        /// (stage written; one of 64 deliveries). A client that does not read takes it late.
        pub(super) delays: Labelled<DeliveryStage, Histogram> =
            histograms_of("weir_watch_delivery_delay_seconds", "stage", &DELAY_SECONDS),
        /// The longest time, of the last one to two minutes, from the moment at which Weir read an
        /// event of the upstream until it was applied to this cache, or taken to be written to a
        /// watch (one of 64 deliveries).
        pub(super) delay_peak: GaugeVec =
            gauge_vec("weir_cache_delivery_delay_max_seconds", &CACHE),
        /// Duration of the lists that filled a cache, by their cause; start is a cold cache.
        pub(super) fills: HistogramVec =
            histogram_vec("weir_cache_fill_duration_seconds", &["cause"], &FILL_SECONDS),
        /// State of a reflector: 1 for the present state. watching has a 0 in the other states,
        /// which have a series only while they are present.
        pub(super) state: IntGaugeVec = gauge_vec("weir_reflector_state", &with(CACHE, "state")),
        /// The last 15 digits of the resourceVersion up to which a cache is complete: more are not
        /// exact in a floating-point number.
        pub(super) resource_version: IntGaugeVec =
            gauge_vec("weir_reflector_resource_version", &CACHE),
        /// Time of the last list, event or bookmark from the upstream, in seconds since the epoch.
        pub(super) last_progress: GaugeVec =
            gauge_vec("weir_reflector_last_progress_timestamp_seconds", &CACHE),
        /// Lists started by a reflector, by cause. The cause of the first list is start.
        pub(super) relists: IntCounterVec =
            counter_vec("weir_reflector_relists_total", &with(CACHE, "cause")),
        /// Ended upstream watches of a reflector, by result.
        pub(super) watches: IntCounterVec =
            counter_vec("weir_reflector_watches_total", &with(CACHE, "result")),
        /// Attempts to extend the history of a cache for watches from older resourceVersions, by
        /// outcome: extended, expired (the upstream no longer has the events), contradicted (they
        /// do not fit the cached state) or failed.
        pub(super) backfills: IntCounterVec =
            counter_vec("weir_history_backfills_total", &["outcome"]),
        /// Requests for the upstream's present resourceVersion, for consistent reads, by outcome.
        pub(super) probes: IntCounterVec = counter_vec("weir_probes_total", &["outcome"]),
        /// Watches and lists that had to show a fresh state, by the step that proved it fresh. The
        /// step forwarded counts those that found no proof in time.
        pub(super) proofs: IntCounterVec =
            counter_vec("weir_freshness_proofs_total", &with(CACHE, "step")),
        /// Duration of the proof of freshness of a watch or list, in seconds, by the step that
        /// proved it.
        pub(super) proof_duration: HistogramVec =
            histogram_vec("weir_freshness_proof_duration_seconds", &["step"], &PROOF_SECONDS),
        /// Requests that hold a permit of a forward budget, by budget: forward (the cache is cold
        /// or fails) or over-budget (it exceeds a byte budget).
        pub(super) forwards: IntGaugeVec = gauge_vec("weir_forward_budget_requests", &["budget"]),
        /// Requests rejected with 429 because a forward budget of the resource was exhausted, by
        /// budget: forward (the cache is cold or fails) or over-budget (it exceeds a byte budget).
        pub(super) forward_exhausted: IntCounterVec = counter_vec(
            "weir_forward_budget_exhausted_total",
            &["group", "version", "resource", "budget"],
        ),
        /// Comparisons of a cache with the upstream at one resourceVersion, by check: count (the
        /// number of objects with the number that a probe brings), order (an event of the upstream
        /// came after a newer one, and was ignored; always different), page (keys, resourceVersions
        /// and uids) or bytes (whole objects); and by outcome: equal, different (a page: etcd
        /// contradicts the cache), upstream (etcd contradicts an API server's watch cache),
        /// malformed (the API server's page is damaged), refused, inconclusive, or skipped (the
        /// history does not reach back).
        pub(super) checks: IntCounterVec = counter_vec(
            "weir_cache_checks_total",
            &[ "group", "version", "resource", "namespace", "representation", "check", "outcome", ],
        ),
        /// Time of the last comparison of a page of a cache with the upstream that proved
        /// something, in seconds since the epoch. 0 before the first.
        pub(super) checked: GaugeVec =
            gauge_vec("weir_cache_checked_timestamp_seconds", &CACHE),
        /// 1 while a cache that etcd has proved wrong answers nothing, so that its requests are
        /// forwarded.
        pub(super) quarantined: IntGaugeVec = gauge_vec("weir_cache_quarantined", &CACHE),
        /// 1 if Weir knows the uid of the namespace kube-system, so that it notices another cluster
        /// at the address; 0 if it may not read the namespace.
        pub(super) cluster_identified: IntGauge = gauge("weir_upstream_cluster_identified"),
        /// 1 while a cache exceeds a byte budget, so that its requests are forwarded.
        pub(super) over_budget: IntGaugeVec = gauge_vec("weir_cache_over_budget", &CACHE),
        /// Detected rewinds of the upstream's history (etcd restored, or another cluster at the
        /// address).
        pub(super) rewinds: IntCounter = counter("weir_history_rewinds_total"),
        /// Time of the last detected rewind of the upstream's history, in seconds since the epoch.
        /// 0 without one.
        pub(super) last_rewind: Gauge = gauge("weir_history_last_rewind_timestamp_seconds"),
    }
}

labels! {
    /// How far an event is on its way.
    pub(super) enum DeliveryStage {
        /// It changed the cache.
        Applied = "applied",
        /// The connection of a watch took it.
        Written = "written",
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
