//! Metrics of the requests, exchanges and connections to the upstream.
//!
//! Label values are fixed words and HTTP status codes, so that their number is bounded whatever a
//! peer sends. Each series has the `identity` of its connections (`own`, `bare`, `front-proxy`), so
//! that the pools can be compared and summed. Each child of a family is looked up once and kept: a
//! request touches only atomics.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use crate::telemetry::events::Events;
use crate::telemetry::metrics::buckets::Buckets;
use crate::telemetry::metrics::{GaugeGuard, families, sum, sum_with};
use crate::upstream::availability::AvailabilityMetrics;
use crate::upstream::endpoints::EndpointsMetrics;
use crate::upstream::send_options::{RequestPurpose, TrafficClass};

/// The `identity` of Weir's own pool.
const OWN: &str = "own";
/// Buckets of the time to a response's head, in seconds. A cached read upstream takes less than a
/// millisecond, a freshness wait up to 3 s, a slow list or admission webhook up to the upstream's
/// own limit of 60 s.
const DURATION_BUCKETS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 3.0, 10.0, 30.0, 60.0];
/// One above the highest status code that has a label value of its own; the others count as
/// `other`.
const CODES: usize = 600;
/// More than any version of Kubernetes and its distributions has.
const VERSION_CHARS_MAX: usize = 64;

/// The metrics of the pool with one identity. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    families: Families,
    identity: &'static str,
    request: ClassMetrics,
    stream: ClassMetrics,
    upgrade: ClassMetrics,
    http1: ProtocolMetrics,
    http2: ProtocolMetrics,
    bytes: [ByteCounters; RequestPurpose::ALL.len()],
}

/// The bytes of one purpose.
#[derive(Debug)]
pub(super) struct ByteCounters {
    purpose: RequestPurpose,
    /// The bytes of responses.
    pub(super) received: IntCounter,
    /// The bytes of requests.
    pub(super) sent: IntCounter,
}

/// The registered families, for all identities.
#[derive(Clone, Debug)]
struct Families {
    exchanges: ExchangeFamilies,
    availability: AvailabilityMetrics,
    endpoints: EndpointsMetrics,
}

families! {
    /// The families of connections, requests and responses.
    #[derive(Clone, Debug)]
    struct ExchangeFamilies {
        /// Requests that got a response from the upstream, by status code.
        requests: IntCounterVec =
            counter_vec("weir_upstream_requests_total", &["identity", "traffic_class", "code"]),
        /// Time from sending a request to the head of its response.
        durations: HistogramVec = histogram_vec(
            "weir_upstream_request_duration_seconds",
            &["identity", "traffic_class"],
            &DURATION_BUCKETS,
        ),
        /// Exchanges with the upstream in progress, until the end of the response body.
        streams: IntGaugeVec = gauge_vec("weir_upstream_streams", &["identity", "traffic_class"]),
        /// Requests to the upstream that failed without a response, by cause.
        errors: IntCounterVec =
            counter_vec("weir_upstream_request_errors_total", &["identity", "cause"]),
        /// Open connections to the upstream.
        connections: IntGaugeVec =
            gauge_vec("weir_upstream_connections", &["identity", "protocol"]),
        /// Connections to the upstream that were opened.
        opened: IntCounterVec =
            counter_vec("weir_upstream_connections_opened_total", &["identity", "protocol"]),
        /// Connections to the upstream that were retired, by cause: they accept no new requests and
        /// close after their last exchange, or at once if they are dead.
        retired: IntCounterVec =
            counter_vec("weir_upstream_connections_retired_total", &["identity", "cause"]),
        /// Bytes of the bodies of responses from the upstream, before decompression, by purpose:
        /// forward (clients' requests), cache (lists, watches and probes of caches), review, or
        /// other. Connections after an upgrade are not counted.
        received_bytes: IntCounterVec =
            counter_vec("weir_upstream_received_bytes_total", &["identity", "purpose"]),
        /// Bytes of the bodies of requests to the upstream, by purpose.
        sent_bytes: IntCounterVec =
            counter_vec("weir_upstream_sent_bytes_total", &["identity", "purpose"]),
        /// The versions that the API servers have shown lately; always 1.
        info: IntGaugeVec = gauge_vec("weir_upstream_info", &["version"]),
        /// How far the clock of this host is ahead of an API server's, by the Date of its last
        /// answer for its version, in whole seconds; 0 before the first one.
        clock_skew: IntGauge = gauge("weir_upstream_clock_skew_seconds"),
    }
}

#[derive(Debug)]
struct ClassMetrics {
    label: &'static str,
    /// Requests by status code; the last one counts as `other`.
    by_code: Vec<OnceLock<IntCounter>>,
    duration: Histogram,
    streams: IntGauge,
}

#[derive(Debug)]
struct ProtocolMetrics {
    connections: IntGauge,
    opened: IntCounter,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolLabel {
    /// `http1`
    Http1,
    /// `http2`
    Http2,
}

/// The figures of the upstream, of all identities together.
#[derive(Clone, Debug, Default)]
pub struct UpstreamFigures {
    /// Requests that were answered.
    pub requests: f64,
    /// Bytes of the responses.
    pub received: f64,
    /// Those of them that caches asked for.
    pub received_by_caches: f64,
    /// Open connections.
    pub connections: f64,
    /// How long the upstream took to answer requests that are no watches.
    pub(crate) latencies: Buckets,
}

impl UpstreamMetrics {
    /// Returns the figures of all identities together.
    pub fn figures(&self) -> UpstreamFigures {
        let ExchangeFamilies { requests, received_bytes, connections, durations, .. } =
            &self.inner.families.exchanges;
        let purpose = ("purpose", RequestPurpose::Cache.as_str());
        UpstreamFigures {
            requests: sum(requests).unwrap_or(0.0),
            received: sum(received_bytes).unwrap_or(0.0),
            received_by_caches: sum_with(received_bytes, purpose).unwrap_or(0.0),
            connections: sum(connections).unwrap_or(0.0),
            latencies: Buckets::collect(durations, ("traffic_class", "request")),
        }
    }

    /// Registers the metrics and returns those of Weir's own identity.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = Families {
            exchanges: ExchangeFamilies::register(registry)?,
            availability: AvailabilityMetrics::register(registry)?,
            endpoints: EndpointsMetrics::register(registry)?,
        };
        Ok(Self::new(families, OWN))
    }

    /// Notes what happens to the upstream among these events. Call this before other metrics are
    /// made of these.
    pub fn with_events(self, events: &Events) -> Self {
        let mut families = self.inner.families.clone();
        families.availability = families.availability.with_events(events);
        Self::new(families, self.inner.identity)
    }

    /// Returns the metrics of the pool with another identity, a fixed word.
    pub fn for_identity(&self, identity: &'static str) -> Self {
        if identity == self.inner.identity {
            return self.clone();
        }
        Self::new(self.inner.families.clone(), identity)
    }

    fn new(families: Families, identity: &'static str) -> Self {
        let inner = Inner {
            request: ClassMetrics::new(&families, identity, "request"),
            stream: ClassMetrics::new(&families, identity, "stream"),
            upgrade: ClassMetrics::new(&families, identity, "upgrade"),
            http1: ProtocolMetrics::new(&families, identity, "http1"),
            http2: ProtocolMetrics::new(&families, identity, "http2"),
            bytes: RequestPurpose::ALL
                .map(|purpose| ByteCounters::new(&families, identity, purpose)),
            families,
            identity,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the metrics of the API servers.
    pub(crate) fn endpoints(&self) -> &EndpointsMetrics {
        &self.inner.families.endpoints
    }

    /// Counts a response and observes `duration`, the time to its head.
    pub fn response(&self, class: TrafficClass, code: u16, duration: Duration) {
        let metrics = self.class(class);
        let index = usize::from(code).min(CODES);
        if let Some(counter) = metrics.by_code.get(index) {
            let resolve = || {
                let code = if index == CODES { "other".to_owned() } else { index.to_string() };
                let labels = [self.inner.identity, metrics.label, &code];
                self.inner.families.exchanges.requests.with_label_values(&labels)
            };
            counter.get_or_init(resolve).inc();
        }
        metrics.duration.observe(duration.as_secs_f64());
    }

    /// Counts a request that failed without a response. `cause` is a result of
    /// [`UpstreamError::cause`](crate::upstream::error::UpstreamError::cause).
    pub fn error(&self, cause: &'static str) {
        self.inner.families.exchanges.errors.with_label_values(&[self.inner.identity, cause]).inc();
    }

    /// Shows the versions of the API servers.
    pub(super) fn versions<'a>(&self, versions: impl Iterator<Item = &'a str>) {
        let info = &self.inner.families.exchanges.info;
        info.reset();
        for version in versions {
            let label: String = version.chars().take(VERSION_CHARS_MAX).collect();
            info.with_label_values(&[&label]).set(1);
        }
    }

    /// Shows how far the clock of this host is ahead of an API server's.
    pub(super) fn clock_skew(&self, seconds: i64) {
        self.inner.families.exchanges.clock_skew.set(seconds);
    }

    pub(super) fn bytes(&self, purpose: RequestPurpose) -> &ByteCounters {
        let [forward, ..] = &self.inner.bytes;
        self.inner.bytes.iter().find(|counters| counters.purpose == purpose).unwrap_or(forward)
    }

    /// Counts a connection that was retired. `cause` is a fixed word.
    pub fn retired(&self, cause: &'static str) {
        self.inner
            .families
            .exchanges
            .retired
            .with_label_values(&[self.inner.identity, cause])
            .inc();
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection(&self, protocol: ProtocolLabel) -> GaugeGuard {
        let metrics = match protocol {
            ProtocolLabel::Http1 => &self.inner.http1,
            ProtocolLabel::Http2 => &self.inner.http2,
        };
        metrics.opened.inc();
        GaugeGuard::new(metrics.connections.clone())
    }

    /// Returns the metrics of the upstream's absence, which all identities share.
    pub(super) fn availability(&self) -> &AvailabilityMetrics {
        &self.inner.families.availability
    }

    /// Returns the number of open connections with this identity, over both protocols.
    pub fn open_connections(&self) -> i64 {
        self.inner.http1.connections.get() + self.inner.http2.connections.get()
    }

    /// Counts an exchange as in progress until the guard is dropped.
    pub fn stream(&self, class: TrafficClass) -> GaugeGuard {
        GaugeGuard::new(self.class(class).streams.clone())
    }

    fn class(&self, class: TrafficClass) -> &ClassMetrics {
        match class {
            TrafficClass::Request | TrafficClass::List => &self.inner.request,
            TrafficClass::Stream => &self.inner.stream,
            TrafficClass::Upgrade => &self.inner.upgrade,
        }
    }
}

impl ClassMetrics {
    fn new(families: &Families, identity: &str, label: &'static str) -> Self {
        Self {
            label,
            by_code: (0..=CODES).map(|_| OnceLock::new()).collect(),
            duration: families.exchanges.durations.with_label_values(&[identity, label]),
            streams: families.exchanges.streams.with_label_values(&[identity, label]),
        }
    }
}

impl ByteCounters {
    fn new(families: &Families, identity: &str, purpose: RequestPurpose) -> Self {
        let labels = [identity, purpose.as_str()];
        let received = families.exchanges.received_bytes.with_label_values(&labels);
        Self { purpose, received, sent: families.exchanges.sent_bytes.with_label_values(&labels) }
    }
}

impl ProtocolMetrics {
    fn new(families: &Families, identity: &str, label: &str) -> Self {
        Self {
            connections: families.exchanges.connections.with_label_values(&[identity, label]),
            opened: families.exchanges.opened.with_label_values(&[identity, label]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_share_one_label() {
        let registry = Registry::new();
        let metrics = UpstreamMetrics::register(&registry).unwrap();
        metrics.response(TrafficClass::Request, 200, Duration::from_millis(2));
        metrics.response(TrafficClass::Request, 999, Duration::from_millis(2));
        metrics.response(TrafficClass::Request, 601, Duration::from_millis(2));
        let count = |code: &str| {
            metrics
                .inner
                .families
                .exchanges
                .requests
                .with_label_values(&["own", "request", code])
                .get()
        };
        assert_eq!((count("200"), count("other")), (1, 2));
    }

    #[test]
    fn the_present_versions_are_shown() {
        let registry = Registry::new();
        let metrics = UpstreamMetrics::register(&registry).unwrap();
        metrics.versions(["v1.35.1", "v1.36.0"].into_iter());
        metrics.versions(["v1.36.0", &"x".repeat(70)].into_iter());
        let families = registry.gather();
        let info = families.iter().find(|family| family.name() == "weir_upstream_info").unwrap();
        let mut labels: Vec<_> =
            info.get_metric().iter().map(|metric| metric.get_label()[0].value()).collect();
        labels.sort_unstable();
        assert_eq!(labels, ["v1.36.0", &"x".repeat(64)]);
    }

    #[test]
    fn a_connection_is_open_until_its_guard_is_dropped() {
        let metrics = UpstreamMetrics::register(&Registry::new()).unwrap();
        let guard = metrics.connection(ProtocolLabel::Http2);
        assert_eq!(metrics.open_connections(), 1);
        drop(guard);
        assert_eq!(metrics.open_connections(), 0);
        assert_eq!(metrics.inner.http2.opened.get(), 1);
    }
}
