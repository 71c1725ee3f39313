//! The results of the health checks that were asked for, at `/metrics/slis`, as Kubernetes'
//! components show them (KEP-3466; `component-base/metrics/prometheus/slis`).

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use crate::telemetry::metrics::{counter_vec, gauge_vec};

/// The results of the checks that were asked for.
#[derive(Debug)]
pub(super) struct ObservedChecks {
    registry: Registry,
    families: Option<(IntGaugeVec, IntCounterVec)>,
}

impl ObservedChecks {
    pub(super) fn new() -> Self {
        let registry = Registry::new();
        // They cannot collide with others in a registry of their own.
        let families = Self::register(&registry).ok();
        Self { registry, families }
    }

    fn register(registry: &Registry) -> Result<(IntGaugeVec, IntCounterVec), prometheus::Error> {
        Ok((
            gauge_vec(
                registry,
                "kubernetes_healthcheck",
                "This metric records the result of a single healthcheck.",
                &["name", "type"],
            )?,
            counter_vec(
                registry,
                "kubernetes_healthchecks_total",
                "This metric records the results of all healthcheck.",
                &["name", "status", "type"],
            )?,
        ))
    }

    /// Counts a result.
    pub(super) fn observe(&self, endpoint: &str, check: &str, passed: bool) {
        let Some((last, total)) = &self.families else { return };
        last.with_label_values(&[check, endpoint]).set(i64::from(passed));
        let status = if passed { "success" } else { "error" };
        total.with_label_values(&[check, status, endpoint]).inc();
    }

    /// Returns the registry of `/metrics/slis`.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}
