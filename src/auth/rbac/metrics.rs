//! Metrics of decisions by the cluster's roles and bindings.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Registry};

use crate::telemetry::metrics::{counter, counter_vec, gauge, gauge_vec, saturating_i64};

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RbacMetrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    allowed: IntCounter,
    not_allowed: IntCounter,
    unknown: IntCounter,
    objects: IntGaugeVec,
    unreadable: IntGaugeVec,
    current: IntGaugeVec,
    checks: IntCounter,
    differences: IntCounter,
    disabled: IntGauge,
}

impl RbacMetrics {
    /// Registers the metrics. To be called once for a registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| gauge_vec(registry, name, help, &["resource"]);
        let counter = |name: &str, help: &str| counter(registry, name, help);
        let decisions = counter_vec(
            registry,
            "weir_rbac_decisions_total",
            "Requests evaluated by Weir's copy of the cluster's roles and bindings, by result. Requests that are not allowed, or unknown because the copy is not current, go to an access review.",
            &["result"],
        )?;
        let disabled = gauge(
            registry,
            "weir_rbac_disabled",
            "1 if Weir no longer decides by roles and bindings, because an access review denied what they allow.",
        )?;
        let decided = |result| decisions.with_label_values(&[result]);
        let families = Families {
            allowed: decided("allowed"),
            not_allowed: decided("not-allowed"),
            unknown: decided("unknown"),
            objects: gauges(
                "weir_rbac_objects",
                "Roles and bindings in Weir's copy, by resource.",
            )?,
            unreadable: gauges(
                "weir_rbac_unreadable_objects",
                "Roles and bindings that Weir cannot read and that therefore grant nothing, by resource.",
            )?,
            current: gauges(
                "weir_rbac_current",
                "1 if Weir's copy of the roles or bindings is known to be current, by resource.",
            )?,
            checks: counter(
                "weir_rbac_checks_total",
                "Decisions by roles and bindings that were checked by an access review.",
            )?,
            differences: counter(
                "weir_rbac_differences_total",
                "Access reviews that denied what roles and bindings allow.",
            )?,
            disabled,
        };
        Ok(Self { families: Arc::new(families) })
    }

    /// Counts a decision; `None` if there was none because the copy is not current.
    pub(super) fn decided(&self, allowed: Option<bool>) {
        match allowed {
            Some(true) => self.families.allowed.inc(),
            Some(false) => self.families.not_allowed.inc(),
            None => self.families.unknown.inc(),
        }
    }

    /// Sets the number of objects of a resource, and how many of them are unreadable.
    pub(super) fn set_objects(&self, resource: &'static str, total: usize, unreadable: usize) {
        let set = |gauges: &IntGaugeVec, value| {
            gauges.with_label_values(&[resource]).set(saturating_i64(value));
        };
        set(&self.families.objects, total);
        set(&self.families.unreadable, unreadable);
    }

    /// Sets whether the copy of a resource is current.
    pub(super) fn set_current(&self, resource: &'static str, is_current: bool) {
        self.families.current.with_label_values(&[resource]).set(is_current.into());
    }

    /// Counts a check of an allowed request.
    pub(super) fn checked(&self, agreed: bool) {
        self.families.checks.inc();
        if !agreed {
            self.families.differences.inc();
        }
    }

    /// Sets the alarm that Weir no longer decides by roles and bindings.
    pub(super) fn set_disabled(&self) {
        self.families.disabled.set(1);
    }
}
