//! Metrics of client connections, and of the limits on what one client holds.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::telemetry::metrics::{counter, counters_of, gauge, gauge_vec};

/// The metrics of client connections.
#[derive(Debug)]
pub(super) struct ConnectionMetrics {
    pub(super) open: IntGaugeVec,
    pub(super) refused: IntCounterVec,
    pub(super) handshakes_waiting: IntGauge,
    pub(super) handshakes: IntCounterVec,
}

/// The metrics of limits on one client.
#[derive(Debug)]
pub(crate) struct LimitMetrics {
    /// Watches of users who have as many as they may.
    pub(crate) watches_refused: IntCounter,
}

impl ConnectionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            open: gauge_vec(
                registry,
                "weir_connections",
                "Open client connections, by kind of listener.",
                &["listener"],
            )?,
            refused: counters_of(
                registry,
                "weir_connections_refused_total",
                "Client connections that were refused or closed because of a limit, by cause.",
                ("cause", &REFUSAL_CAUSES),
            )?,
            handshakes: counters_of(
                registry,
                "weir_tls_handshakes_total",
                "TLS handshakes of clients, by result: completed, failed (also for taking too long) or refused (too many waited).",
                ("result", &["completed", "failed", "refused"]),
            )?,
            handshakes_waiting: gauge(
                registry,
                "weir_tls_handshakes_waiting",
                "TLS handshakes of clients that wait until others are computed.",
            )?,
        })
    }
}

impl LimitMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            watches_refused: counter(
                registry,
                "weir_user_watches_refused_total",
                "Watches that were refused because their user has as many open as 32 times server.connectionsPerAddressMax allows.",
            )?,
        })
    }
}

/// Why connections are refused (`docs/how-to/load-balancer.md`).
const REFUSAL_CAUSES: [&str; 6] =
    ["address", "user-limit", "evicted", "handshakes", "proxy-header", "user"];
