//! Metrics of shadow mode.

use std::time::Duration;

use prometheus::{Counter, IntCounterVec, IntGauge, Registry};

use crate::server::shadow::outcome::Outcome;
use crate::telemetry::metrics::{counter_vec, float_counter, gauge};

/// Metrics of shadow mode. Cheap to clone: clones share the metrics.
#[derive(Clone, Debug)]
pub struct ShadowMetrics {
    total: IntCounterVec,
    events: IntCounterVec,
    busy: Counter,
    pub(crate) bytes: IntGauge,
}

impl ShadowMetrics {
    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            total: counter_vec(
                registry,
                "weir_shadow_total",
                "Reads in shadow mode, by the outcome of the comparison with the cache.",
                &["verb", "outcome", "reason"],
            )?,
            events: counter_vec(
                registry,
                "weir_shadow_events_total",
                "Events of watches in shadow mode that were compared with the cache.",
                &["outcome"],
            )?,
            busy: float_counter(
                registry,
                "weir_shadow_cpu_seconds_total",
                "Seconds for which comparisons of shadow mode ran.",
            )?,
            bytes: gauge(
                registry,
                "weir_shadow_copy_bytes",
                "Bytes of copied answers that wait to be compared.",
            )?,
        })
    }

    pub(crate) fn count(&self, verb: &str, outcome: Outcome) {
        self.total.with_label_values(&[verb, outcome.as_str(), outcome.reason()]).inc();
    }

    pub(crate) fn count_events(&self, equal: u64) {
        self.events.with_label_values(&["equal"]).inc_by(equal);
    }

    pub(crate) fn count_event_difference(&self) {
        self.events.with_label_values(&["different"]).inc();
    }

    pub(crate) fn spend(&self, busy: Duration) {
        self.busy.inc_by(busy.as_secs_f64());
    }
}
