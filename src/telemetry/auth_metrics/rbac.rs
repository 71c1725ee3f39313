//! Metrics of the RBAC that is decided here.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Registry};

use crate::telemetry::metrics::{counter, counter_vec, gauge, gauge_vec, saturating_i64};

/// See the module. Cheap to clone.
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
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| gauge_vec(registry, name, help, &["resource"]);
        let counter = |name: &str, help: &str| counter(registry, name, help);
        let decisions = counter_vec(
            registry,
            "weir_rbac_decisions_total",
            "Questions put to the cluster's roles and bindings as known here, by result; all but allowed are asked by access review.",
            &["result"],
        )?;
        let disabled = gauge(
            registry,
            "weir_rbac_disabled",
            "1 if RBAC is no longer decided here, since an access review denied what it allowed.",
        )?;
        let decided = |result| decisions.with_label_values(&[result]);
        let families = Families {
            allowed: decided("allowed"),
            not_allowed: decided("not-allowed"),
            unknown: decided("unknown"),
            objects: gauges("weir_rbac_objects", "Roles and bindings known here.")?,
            unreadable: gauges(
                "weir_rbac_unreadable_objects",
                "Roles and bindings that cannot be read here, and grant nothing.",
            )?,
            current: gauges(
                "weir_rbac_current",
                "1 if what is known here of a resource is what the upstream has.",
            )?,
            checks: counter(
                "weir_rbac_checks_total",
                "Allowed questions that were put to an access review as well.",
            )?,
            differences: counter(
                "weir_rbac_differences_total",
                "Access reviews that denied what was allowed here.",
            )?,
            disabled,
        };
        Ok(Self { families: Arc::new(families) })
    }

    /// Counts a decision; `None` for one that could not be made.
    pub fn decided(&self, allowed: Option<bool>) {
        match allowed {
            Some(true) => self.families.allowed.inc(),
            Some(false) => self.families.not_allowed.inc(),
            None => self.families.unknown.inc(),
        }
    }

    /// Sets how many objects of a resource there are, and how many of them cannot be read.
    pub fn objects(&self, resource: &'static str, all: usize, unreadable: usize) {
        let set = |gauges: &IntGaugeVec, value| {
            gauges.with_label_values(&[resource]).set(saturating_i64(value));
        };
        set(&self.families.objects, all);
        set(&self.families.unreadable, unreadable);
    }

    /// Sets whether what is known of a resource is what the upstream has.
    pub fn current(&self, resource: &'static str, current: bool) {
        self.families.current.with_label_values(&[resource]).set(current.into());
    }

    /// Counts a check of an allow.
    pub fn checked(&self, agreed: bool) {
        self.families.checks.inc();
        if !agreed {
            self.families.differences.inc();
        }
    }

    /// Raises the alarm: RBAC is no longer decided here.
    pub fn disabled(&self) {
        self.families.disabled.set(1);
    }
}
