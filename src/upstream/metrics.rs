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

use crate::telemetry::metrics::{GaugeGuard, counter_vec, gauge_vec, histogram_vec};

/// The word for Weir's own identity.
const OWN: &str = "own";
/// The words for [`crate::upstream::Purpose`], in its order.
const PURPOSES: [&str; 3] = ["request", "stream", "upgrade"];
/// The words for the protocol of a connection.
const PROTOCOLS: [&str; 2] = ["http1", "http2"];
/// Buckets of the time to a response's head, in seconds: a cached read upstream takes under a millisecond, a freshness wait up
/// to 3 s, a slow list or admission webhook up to the upstream's own limit of 60 s.
const DURATION_BUCKETS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 3.0, 10.0, 30.0, 60.0];
/// Status codes are below this; anything else counts as the last.
const CODES: usize = 600;

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    series: Series,
    identity: &'static str,
    by_code: [Vec<OnceLock<IntCounter>>; 3],
    durations: [Histogram; 3],
    streams: [IntGauge; 3],
    connections: [IntGauge; 2],
    opened: [IntCounter; 2],
}

/// What is registered, for all identities.
#[derive(Clone, Debug)]
struct Series {
    requests: IntCounterVec,
    durations: HistogramVec,
    streams: IntGaugeVec,
    errors: IntCounterVec,
    connections: IntGaugeVec,
    opened: IntCounterVec,
    retired: IntCounterVec,
}

/// What a request is for; the server's and the pools' word for it is [`crate::upstream::Purpose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurposeLabel {
    /// `request`
    Request,
    /// `stream`
    Stream,
    /// `upgrade`
    Upgrade,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolLabel {
    /// `http1`
    Http1,
    /// `http2`
    Http2,
}

impl UpstreamMetrics {
    /// Registers them once; what is returned counts for Weir's own identity.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let series = Series {
            requests: counter_vec(
                registry,
                "weir_upstream_requests_total",
                "Requests that the upstream answered.",
                &["identity", "purpose", "code"],
            )?,
            durations: histogram_vec(
                registry,
                "weir_upstream_request_duration_seconds",
                "Time from sending a request to the head of its response.",
                &["identity", "purpose"],
                &DURATION_BUCKETS,
            )?,
            streams: gauge_vec(
                registry,
                "weir_upstream_streams",
                "Exchanges under way with the upstream.",
                &["identity", "purpose"],
            )?,
            errors: counter_vec(
                registry,
                "weir_upstream_request_errors_total",
                "Requests without an answer.",
                &["identity", "cause"],
            )?,
            connections: gauge_vec(
                registry,
                "weir_upstream_connections",
                "Open connections to the upstream.",
                &["identity", "protocol"],
            )?,
            opened: counter_vec(
                registry,
                "weir_upstream_connections_opened_total",
                "Connections made.",
                &["identity", "protocol"],
            )?,
            retired: counter_vec(
                registry,
                "weir_upstream_connections_retired_total",
                "Connections that take no new requests and end with their last exchange.",
                &["identity", "cause"],
            )?,
        };
        Ok(Self::new(series, OWN))
    }

    /// The same series, for connections with another identity. `identity` is a fixed word.
    pub fn of_identity(&self, identity: &'static str) -> Self {
        if identity == self.inner.identity {
            return self.clone();
        }
        Self::new(self.inner.series.clone(), identity)
    }

    fn new(series: Series, identity: &'static str) -> Self {
        let codes = || (0..=CODES).map(|_| OnceLock::new()).collect();
        let inner = Inner {
            by_code: [codes(), codes(), codes()],
            durations: PURPOSES.map(|label| series.durations.with_label_values(&[identity, label])),
            streams: PURPOSES.map(|label| series.streams.with_label_values(&[identity, label])),
            connections: PROTOCOLS
                .map(|label| series.connections.with_label_values(&[identity, label])),
            opened: PROTOCOLS.map(|label| series.opened.with_label_values(&[identity, label])),
            series,
            identity,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Counts a response's head.
    pub fn answered(&self, purpose: PurposeLabel, code: u16, after: Duration) {
        let (counters, durations, label) = match purpose {
            PurposeLabel::Request => {
                (&self.inner.by_code[0], &self.inner.durations[0], PURPOSES[0])
            }
            PurposeLabel::Stream => (&self.inner.by_code[1], &self.inner.durations[1], PURPOSES[1]),
            PurposeLabel::Upgrade => {
                (&self.inner.by_code[2], &self.inner.durations[2], PURPOSES[2])
            }
        };
        let at = usize::from(code).min(CODES);
        if let Some(cell) = counters.get(at) {
            let resolve = || {
                let code = if at == CODES { "other".to_owned() } else { at.to_string() };
                let labels = [self.inner.identity, label, &code];
                self.inner.series.requests.with_label_values(&labels)
            };
            cell.get_or_init(resolve).inc();
        }
        durations.observe(after.as_secs_f64());
    }

    /// Counts a request that got no answer. `cause` is one of the words of `UpstreamError::cause`.
    pub fn failed(&self, cause: &'static str) {
        self.inner.series.errors.with_label_values(&[self.inner.identity, cause]).inc();
    }

    /// Counts a connection that takes no new requests. `cause` is a fixed word.
    pub fn retired(&self, cause: &'static str) {
        self.inner.series.retired.with_label_values(&[self.inner.identity, cause]).inc();
    }

    /// Counts a connection for as long as the guard lives.
    pub fn connection(&self, protocol: ProtocolLabel) -> GaugeGuard {
        let (gauge, opened) = match protocol {
            ProtocolLabel::Http1 => (&self.inner.connections[0], &self.inner.opened[0]),
            ProtocolLabel::Http2 => (&self.inner.connections[1], &self.inner.opened[1]),
        };
        opened.inc();
        GaugeGuard::new(gauge.clone())
    }

    /// Connections with this identity that are open now, of both protocols.
    pub fn open_connections(&self) -> i64 {
        self.inner.connections.iter().map(IntGauge::get).sum()
    }

    /// Counts an exchange for as long as the guard lives.
    pub fn stream(&self, purpose: PurposeLabel) -> GaugeGuard {
        let gauge = match purpose {
            PurposeLabel::Request => &self.inner.streams[0],
            PurposeLabel::Stream => &self.inner.streams[1],
            PurposeLabel::Upgrade => &self.inner.streams[2],
        };
        GaugeGuard::new(gauge.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_codes_share_one_label() {
        let registry = Registry::new();
        let metrics = UpstreamMetrics::register(&registry).unwrap();
        metrics.answered(PurposeLabel::Request, 200, Duration::from_millis(2));
        metrics.answered(PurposeLabel::Request, 999, Duration::from_millis(2));
        metrics.answered(PurposeLabel::Request, 601, Duration::from_millis(2));
        let count = |code: &str| {
            metrics.inner.series.requests.with_label_values(&["own", "request", code]).get()
        };
        assert_eq!((count("200"), count("other")), (1, 2));
    }

    #[test]
    fn guards_count_up_and_down() {
        let metrics = UpstreamMetrics::register(&Registry::new()).unwrap();
        let guard = metrics.connection(ProtocolLabel::Http2);
        assert_eq!(metrics.inner.connections[1].get(), 1);
        drop(guard);
        assert_eq!(metrics.inner.connections[1].get(), 0);
        assert_eq!(metrics.inner.opened[1].get(), 1);
    }
}
