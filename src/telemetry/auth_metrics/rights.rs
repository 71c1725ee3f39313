//! Metrics of Weir's own rights upstream.

use prometheus::{IntGaugeVec, Registry};

use crate::telemetry::metrics::gauge_vec;

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RightsMetrics {
    missing: IntGaugeVec,
}

impl RightsMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let missing = gauge_vec(
            registry,
            "weir_missing_rights",
            "Whether Weir's own identity lacks a right upstream that its configuration needs.",
            &["right"],
        )?;
        Ok(Self { missing })
    }

    /// Tells of one; `right` is a fixed word.
    pub fn set(&self, right: &'static str, missing: bool) {
        self.missing.with_label_values(&[right]).set(i64::from(missing));
    }
}
