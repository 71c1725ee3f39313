//! Metrics of flow control. Labels are the names of FlowSchemas and priority levels, which the
//! cluster's administrators choose, and never those of users, agents or namespaces.

use std::sync::Arc;

use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use prometheus::{CounterVec, Opts};

use crate::flow::cost::Cost;
use crate::telemetry::metrics::{counter_vec, gauge, gauge_vec, saturating_i64};

/// The metrics of flow control. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FlowMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: IntCounterVec,
    bytes: IntCounterVec,
    seat_seconds: CounterVec,
    source: IntGaugeVec,
    invalid: IntGaugeVec,
    replaced: IntGauge,
}

/// The metrics of one FlowSchema.
#[derive(Debug)]
pub(super) struct ClassMetrics {
    cached: IntCounter,
    forwarded: IntCounter,
    refused: IntCounter,
    bytes: IntCounter,
    seat_seconds: Counter,
}

impl FlowMetrics {
    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let class = ["flow_schema", "priority_level"];
        let seat_seconds = CounterVec::new(
            Opts::new(
                "weir_flowcontrol_seat_seconds_total",
                "Estimated seats of the API server, times the seconds for which forwarded requests took them.",
            ),
            &class,
        )?;
        registry.register(Box::new(seat_seconds.clone()))?;
        let inner = Inner {
            requests: counter_vec(
                registry,
                "weir_flowcontrol_requests_total",
                "Client requests, by FlowSchema, priority level and cache status.",
                &["flow_schema", "priority_level", "cache_status"],
            )?,
            bytes: counter_vec(
                registry,
                "weir_flowcontrol_response_bytes_total",
                "Bytes of response bodies, by FlowSchema and priority level.",
                &class,
            )?,
            seat_seconds,
            source: gauge_vec(
                registry,
                "weir_flowcontrol_config_source",
                "Where the FlowSchemas in use come from: 1 for the cluster, or for those built in.",
                &["source"],
            )?,
            invalid: gauge_vec(
                registry,
                "weir_flowcontrol_invalid_objects",
                "FlowSchemas and PriorityLevelConfigurations whose last version is not used.",
                &["resource"],
            )?,
            replaced: gauge(
                registry,
                "weir_flowcontrol_clients_replaced",
                "How often a client took the place of a lighter one among the heaviest.",
            )?,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the metrics of a FlowSchema.
    pub(super) fn class(&self, schema: &str, level: &str) -> ClassMetrics {
        let Inner { requests, bytes, seat_seconds, .. } = &*self.inner;
        let requests = |status| requests.with_label_values(&[schema, level, status]);
        ClassMetrics {
            cached: requests(CACHED),
            forwarded: requests(FORWARDED),
            refused: requests(REFUSED),
            bytes: bytes.with_label_values(&[schema, level]),
            seat_seconds: seat_seconds.with_label_values(&[schema, level]),
        }
    }

    /// Removes the metrics of a FlowSchema.
    pub(super) fn remove(&self, schema: &str, level: &str) {
        let Inner { requests, bytes, seat_seconds, .. } = &*self.inner;
        for status in [CACHED, FORWARDED, REFUSED] {
            // One that is missing already is as well.
            drop(requests.remove_label_values(&[schema, level, status]));
        }
        drop(bytes.remove_label_values(&[schema, level]));
        drop(seat_seconds.remove_label_values(&[schema, level]));
    }

    /// Shows where the plan comes from.
    pub(super) fn set_source(&self, is_cluster: bool) {
        for (source, is_used) in [("cluster", is_cluster), ("builtin", !is_cluster)] {
            self.inner.source.with_label_values(&[source]).set(i64::from(is_used));
        }
    }

    /// Shows how many objects of a resource are invalid.
    pub(super) fn set_invalid(&self, resource: &str, count: usize) {
        let count = saturating_i64(count as u64);
        self.inner.invalid.with_label_values(&[resource]).set(count);
    }

    /// Shows how often a client took the place of another.
    pub(super) fn set_replaced(&self, count: u64) {
        self.inner.replaced.set(saturating_i64(count));
    }
}

impl ClassMetrics {
    /// Adds a cost, which has at most one request.
    pub(super) fn add(&self, cost: &Cost) {
        let Cost { requests, forwarded, refused, bytes, seat_seconds, .. } = *cost;
        if requests > 0.0 {
            match (forwarded > 0.0, refused > 0.0) {
                (true, _) => &self.forwarded,
                (false, true) => &self.refused,
                (false, false) => &self.cached,
            }
            .inc();
        }
        if bytes > 0.0 {
            self.bytes.inc_by(bytes as u64);
        }
        if seat_seconds > 0.0 {
            self.seat_seconds.inc_by(seat_seconds);
        }
    }
}

const CACHED: &str = "hit";
const FORWARDED: &str = "forward";
const REFUSED: &str = "error";
