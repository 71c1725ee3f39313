//! Metrics of shadow mode.

use prometheus::{IntCounterVec, Registry};

use crate::server::shadow::outcome::Outcome;
use crate::telemetry::metrics::counter_vec;

/// Metrics of shadow mode. Cheap to clone: clones share the metrics.
#[derive(Clone, Debug)]
pub struct ShadowMetrics {
    total: IntCounterVec,
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
        })
    }

    pub(crate) fn count(&self, verb: &str, outcome: Outcome) {
        self.total.with_label_values(&[verb, outcome.as_str(), outcome.reason()]).inc();
    }
}
