//! Metrics of the permissions of Weir's own identity.

use prometheus::{IntGaugeVec, Registry};

use crate::telemetry::events::{EventKind, Events};
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

    /// Notes that a permission is missing, which `line` logs.
    pub(crate) fn note_missing(
        &self,
        permission: &'static str,
        text: &str,
        line: impl FnOnce(Option<u64>),
    ) {
        self.events.notable_begin(EventKind::Rights, permission, text, line);
    }

    /// Notes that a permission was granted that was missing, which `line` logs.
    pub(crate) fn note_granted(
        &self,
        permission: &'static str,
        text: &str,
        line: impl FnOnce(Option<u64>),
    ) {
        self.events.notable_end(EventKind::Rights, permission, text, line);
    }

    /// Sets whether a permission is missing. `permission` is one of a fixed set of label values.
    pub(crate) fn set_missing(&self, permission: &'static str, is_missing: bool) {
        self.missing.with_label_values(&[permission]).set(i64::from(is_missing));
    }
}
