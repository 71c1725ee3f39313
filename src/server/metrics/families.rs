//! The families of metrics of the server: those with a label for the resource, and the others.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::telemetry::metrics::{Labelled, families};

crate::api::labels! {
    /// The cause of a wait. A request that finds what it needs waits for nothing, and reads no
    /// clock.
    pub(crate) enum WaitCause {
        /// Until a cache has its first state.
        Warmup = "warmup",
        /// Until a cache is proved to be as fresh as the request requires.
        Freshness = "freshness",
        /// Until a review of its credential or its permission is answered.
        Review = "review",
    }
}

families! {
    /// The families with a label for the resource, and those that all resources share.
    #[derive(Debug)]
    pub(super) struct ResourceFamilies {
        /// Client requests, by verb, resource, cache status, reason and status code.
        pub(super) requests: IntCounterVec = counter_vec(
            "weir_requests_total",
            &["verb", "group", "version", "resource", "cache_status", "reason", "code"],
        ),
        /// Time from the head of a request to the head of its response. The scope is resource (one
        /// object), namespace or cluster, as in the metrics of the API server, and empty without a
        /// resource.
        pub(super) duration: HistogramVec = histogram_vec(
            "weir_request_duration_seconds",
            &["verb", "scope", "cache_status"],
            DURATION_BUCKETS_SECONDS,
        ),
        /// Bytes of the bodies of responses to clients, after compression and before HTTP's
        /// framing. Connections after an upgrade are not counted, but for watches from a cache.
        pub(super) response_bytes: IntCounterVec = counter_vec(
            "weir_response_bytes_total",
            &["verb", "group", "version", "resource", "cache_status"],
        ),
        /// What Weir adds to a forwarded request: the time from its head to the head of the
        /// response, without the time for which the API server had it. Waits for reviews, proofs
        /// and seats are part of it.
        pub(super) forward_overhead: Histogram = histogram(
            "weir_forward_overhead_seconds",
            OVERHEAD_BUCKETS_SECONDS,
        ),
        /// How long requests waited that had to, by cause: warmup (the cache has no state yet),
        /// freshness (it is not proved fresh enough) or review (of a token or a permission).
        pub(super) waits: Labelled<WaitCause, Histogram> =
            histograms_of("weir_request_wait_seconds", "cause", WAIT_BUCKETS_SECONDS),
        /// Open watches served from a cache.
        pub(super) watchers: IntGaugeVec = gauge_vec("weir_watchers", RESOURCE_LABELS),
        /// Watches that a cache was to serve, by where they start and by outcome: served, expired
        /// (410: the history no longer reaches back) or forwarded.
        pub(super) watch_starts: IntCounterVec = counter_vec(
            "weir_watch_starts_total",
            &["group", "version", "resource", "start", "outcome"],
        ),
        /// Events sent to watches served from a cache.
        pub(super) watch_events: IntCounterVec = counter_vec(
            "weir_watch_events_total",
            RESOURCE_LABELS,
        ),
        /// Ended watches served from a cache, by cause.
        pub(super) watchers_ended: IntCounterVec = counter_vec(
            "weir_watchers_ended_total",
            &["group", "version", "resource", "cause"],
        ),
        /// Lists that broke off because their clients read much more slowly than the objects
        /// changed.
        pub(super) lists_outrun: IntCounter = counter("weir_lists_outrun_total"),
        /// Bytes of metadata.managedFields that were left out of responses from a cache, before
        /// compression and indentation.
        pub(super) dropped_bytes: IntCounterVec = counter_vec(
            "weir_managed_fields_dropped_bytes_total",
            RESOURCE_LABELS,
        ),
        /// Objects of a cache that were read for lists, by what narrowed the scan: name, field,
        /// namespace or none.
        pub(super) list_scanned: IntCounterVec = counter_vec(
            "weir_list_objects_scanned_total",
            LIST_LABELS,
        ),
        /// Objects in lists from a cache, by what narrowed the scan.
        pub(super) list_returned: IntCounterVec = counter_vec(
            "weir_list_objects_returned_total",
            LIST_LABELS,
        ),
    }
}

families! {
    /// The families of connections, and of the limits on what one client holds.
    #[derive(Debug)]
    pub(super) struct ServerFamilies {
        /// Client requests whose response head has not been sent yet.
        pub(super) in_flight: IntGauge = gauge("weir_requests_in_flight"),
        /// Open client connections, by kind of listener.
        pub(super) connections: IntGaugeVec = gauge_vec("weir_connections", &["listener"]),
        /// Client connections that were refused or closed because of a limit, by cause.
        pub(super) connections_refused: IntCounterVec = counters_of(
            "weir_connections_refused_total",
            ("cause", &REFUSAL_CAUSES),
        ),
        /// TLS handshakes of clients, by result: completed, failed (also for taking too long) or
        /// refused (too many waited).
        pub(super) handshakes: IntCounterVec = counters_of(
            "weir_tls_handshakes_total",
            ("result", &["completed", "failed", "refused"]),
        ),
        /// TLS handshakes of clients that wait until others are computed.
        pub(super) handshakes_waiting: IntGauge = gauge("weir_tls_handshakes_waiting"),
        /// Watches that were refused because their user has as many open as 32 times
        /// server.connectionsPerAddressMax allows.
        pub(super) watches_refused: IntCounter = counter("weir_user_watches_refused_total"),
        /// HTTP/2 responses dropped because the client read nothing of them within the stall
        /// time-out.
        pub(super) responses_stalled: IntCounter = counter("weir_responses_stalled_total"),
        /// Client connections spliced to the upstream after an upgrade.
        pub(super) upgrades: IntGauge = gauge("weir_upgraded_connections"),
        /// Bytes of discovery and OpenAPI documents kept in memory.
        pub(super) documents_bytes: IntGauge = gauge("weir_documents_bytes"),
    }
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
/// From a review or a probe (a millisecond) to the longest wait for a cold cache.
const WAIT_BUCKETS_SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Why connections are refused (`docs/how-to/load-balancer.md`).
const REFUSAL_CAUSES: [&str; 6] =
    ["address", "user-limit", "evicted", "handshakes", "proxy-header", "user"];
