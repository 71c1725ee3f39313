//! Metrics of decisions by the cluster's roles and bindings.

use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use crate::telemetry::metrics::{Labelled, families, saturating_i64};

families! {
    /// Handles of the metrics. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct RbacMetrics {
        /// Requests evaluated by Weir's copy of the cluster's roles and bindings, by result.
        /// Requests that are not allowed, or unknown because the copy is not current, go to an
        /// access review.
        decisions: Labelled<Decided, IntCounter> =
            counters_by("weir_rbac_decisions_total", "result"),
        /// Roles and bindings in Weir's copy, by resource.
        objects: IntGaugeVec = gauge_vec("weir_rbac_objects", &["resource"]),
        /// Roles and bindings that Weir cannot read and that therefore grant nothing, by resource.
        unreadable: IntGaugeVec = gauge_vec("weir_rbac_unreadable_objects", &["resource"]),
        /// 1 if Weir's copy of the roles or bindings is known to be current, by resource.
        current: IntGaugeVec = gauge_vec("weir_rbac_current", &["resource"]),
        /// Decisions by roles and bindings that were checked by an access review.
        checks: IntCounter = counter("weir_rbac_checks_total"),
        /// Access reviews that denied what roles and bindings allow.
        differences: IntCounter = counter("weir_rbac_differences_total"),
        /// 1 if Weir no longer decides by roles and bindings, because an access review denied what
        /// they allow.
        disabled: IntGauge = gauge("weir_rbac_disabled"),
    }
}

crate::api::labels! {
    /// The result of an evaluation.
    enum Decided {
        Allowed = "allowed",
        NotAllowed = "not-allowed",
        Unknown = "unknown",
    }
}

impl RbacMetrics {
    /// Counts a decision; `None` if there was none because the copy is not current.
    pub(super) fn decided(&self, allowed: Option<bool>) {
        let decided = match allowed {
            Some(true) => Decided::Allowed,
            Some(false) => Decided::NotAllowed,
            None => Decided::Unknown,
        };
        self.decisions.get(decided).inc();
    }

    /// Sets the number of objects of a resource, and how many of them are unreadable.
    pub(super) fn set_objects(&self, resource: &'static str, total: usize, unreadable: usize) {
        let set = |gauges: &IntGaugeVec, value| {
            gauges.with_label_values(&[resource]).set(saturating_i64(value));
        };
        set(&self.objects, total);
        set(&self.unreadable, unreadable);
    }

    /// Sets whether the copy of a resource is current.
    pub(super) fn set_current(&self, resource: &'static str, is_current: bool) {
        self.current.with_label_values(&[resource]).set(is_current.into());
    }

    /// Counts a check of an allowed request.
    pub(super) fn checked(&self, agreed: bool) {
        self.checks.inc();
        if !agreed {
            self.differences.inc();
        }
    }

    /// Sets the alarm that Weir no longer decides by roles and bindings.
    pub(super) fn set_disabled(&self) {
        self.disabled.set(1);
    }
}
