//! Metrics of the permissions of Weir's own identity.

use prometheus::{IntGaugeVec, Registry};

use crate::telemetry::events::Events;
use crate::telemetry::metrics::gauge_vec;

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PermissionMetrics {
    missing: IntGaugeVec,
    events: Events,
}

impl PermissionMetrics {
    /// Registers the metrics. To be called once for a registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let missing = gauge_vec(
            registry,
            "weir_missing_permissions",
            "1 if Weir's own identity lacks an upstream permission that its configuration requires; 0 if it has it, or if the permission is optional.",
            &["permission"],
        )?;
        Ok(Self { missing, events: Events::default() })
    }

    /// Notes changes of permissions among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Returns the events.
    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Sets whether a permission is missing. `permission` is one of a fixed set of label values.
    pub(crate) fn set_missing(&self, permission: &'static str, is_missing: bool) {
        self.missing.with_label_values(&[permission]).set(i64::from(is_missing));
    }
}
