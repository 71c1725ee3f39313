//! The results of the health checks that were asked for, at `/metrics/slis`, as Kubernetes'
//! components show them (KEP-3466; `component-base/metrics/prometheus/slis`).

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use crate::telemetry::metrics::families;

families! {
    #[derive(Debug)]
    struct CheckFamilies {
        /// This metric records the result of a single healthcheck.
        last: IntGaugeVec = gauge_vec("kubernetes_healthcheck", &["name", "type"]),
        /// This metric records the results of all healthcheck.
        total: IntCounterVec =
            counter_vec("kubernetes_healthchecks_total", &["name", "status", "type"]),
    }
}

/// The results of the checks that were asked for.
#[derive(Debug)]
pub(super) struct ObservedChecks {
    registry: Registry,
    families: Option<CheckFamilies>,
}

impl ObservedChecks {
    pub(super) fn new() -> Self {
        let registry = Registry::new();
        // They cannot collide with others in a registry of their own.
        let families = CheckFamilies::register(&registry).ok();
        Self { registry, families }
    }

    /// Counts a result.
    pub(super) fn observe(&self, endpoint: &str, check: &str, passed: bool) {
        let Some(CheckFamilies { last, total }) = &self.families else { return };
        last.with_label_values(&[check, endpoint]).set(i64::from(passed));
        let status = if passed { "success" } else { "error" };
        total.with_label_values(&[check, status, endpoint]).inc();
    }

    /// Returns the registry of `/metrics/slis`.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}
