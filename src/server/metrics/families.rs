//! The families of metrics that have a label for the resource, and those that all resources share.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};

use crate::server::metrics::waits::Waits;
use crate::telemetry::metrics::{counter, counter_vec, gauge_vec, histogram, histogram_vec};

/// The registered families.
#[derive(Debug)]
pub(super) struct ResourceFamilies {
    pub(super) requests: IntCounterVec,
    pub(super) duration: HistogramVec,
    pub(super) response_bytes: IntCounterVec,
    pub(super) forward_overhead: Histogram,
    pub(super) waits: Waits,
    pub(super) watchers: IntGaugeVec,
    pub(super) watch_starts: IntCounterVec,
    pub(super) watch_events: IntCounterVec,
    pub(super) watchers_ended: IntCounterVec,
    pub(super) lists_outrun: IntCounter,
    pub(super) dropped_bytes: IntCounterVec,
    pub(super) list_scanned: IntCounterVec,
    pub(super) list_returned: IntCounterVec,
}

impl ResourceFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            requests: counter_vec(
                registry,
                "weir_requests_total",
                "Client requests, by verb, resource, cache status, reason and status code.",
                &["verb", "group", "version", "resource", "cache_status", "reason", "code"],
            )?,
            duration: histogram_vec(
                registry,
                "weir_request_duration_seconds",
                "Time from the head of a request to the head of its response. The scope is resource (one object), namespace or cluster, as in the metrics of the API server, and empty without a resource.",
                &["verb", "scope", "cache_status"],
                DURATION_BUCKETS_SECONDS,
            )?,
            response_bytes: counter_vec(
                registry,
                "weir_response_bytes_total",
                "Bytes of the bodies of responses to clients, after compression and before HTTP's framing. Connections after an upgrade are not counted, but for watches from a cache.",
                &["verb", "group", "version", "resource", "cache_status"],
            )?,
            forward_overhead: histogram(
                registry,
                "weir_forward_overhead_seconds",
                "What Weir adds to a forwarded request: the time from its head to the head of the response, without the time for which the API server had it. Waits for reviews, proofs and seats are part of it.",
                OVERHEAD_BUCKETS_SECONDS,
            )?,
            waits: Waits::register(registry)?,
            watchers: gauge_vec(
                registry,
                "weir_watchers",
                "Open watches served from a cache.",
                RESOURCE_LABELS,
            )?,
            watch_starts: counter_vec(
                registry,
                "weir_watch_starts_total",
                "Watches that a cache was to serve, by where they start and by outcome: served, expired (410: the history no longer reaches back) or forwarded.",
                &["group", "version", "resource", "start", "outcome"],
            )?,
            watch_events: counter_vec(
                registry,
                "weir_watch_events_total",
                "Events sent to watches served from a cache.",
                RESOURCE_LABELS,
            )?,
            watchers_ended: counter_vec(
                registry,
                "weir_watchers_ended_total",
                "Ended watches served from a cache, by cause.",
                &["group", "version", "resource", "cause"],
            )?,
            lists_outrun: counter(
                registry,
                "weir_lists_outrun_total",
                "Lists that broke off because their clients read much more slowly than the objects changed.",
            )?,
            dropped_bytes: dropped_bytes(registry)?,
            list_scanned: counter_vec(
                registry,
                "weir_list_objects_scanned_total",
                "Objects of a cache that were read for lists, by what narrowed the scan: name, field, namespace or none.",
                LIST_LABELS,
            )?,
            list_returned: counter_vec(
                registry,
                "weir_list_objects_returned_total",
                "Objects in lists from a cache, by what narrowed the scan.",
                LIST_LABELS,
            )?,
        })
    }
}

fn dropped_bytes(registry: &Registry) -> Result<IntCounterVec, prometheus::Error> {
    counter_vec(
        registry,
        "weir_managed_fields_dropped_bytes_total",
        "Bytes of metadata.managedFields that were left out of responses from a cache, before compression and indentation.",
        RESOURCE_LABELS,
    )
}

const RESOURCE_LABELS: &[&str] = &["group", "version", "resource"];
const LIST_LABELS: &[&str] = &["group", "version", "resource", "index"];

/// From a cached GET (some tens of microseconds) to the upstream's request deadline of 60 s.
const DURATION_BUCKETS_SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// They reach from the time of the relaying itself to the longest wait for seats.
const OVERHEAD_BUCKETS_SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0,
    30.0,
];
