//! Metrics of authorization. The counter of each label value is looked up once, so that counting
//! costs one atomic operation.

use std::sync::Arc;

use prometheus::{IntCounter, Registry};

use crate::auth::DecisionSource;
use crate::auth::access_review::metrics::AccessReviewMetrics;
use crate::telemetry::metrics::{counter, counter_vec};

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthorizationMetrics {
    decisions: Arc<Decisions>,
    unavailable: IntCounter,
    pub(crate) access_reviews: AccessReviewMetrics,
}

/// Counters of decisions, by source; each denied and allowed.
#[derive(Debug)]
struct Decisions {
    review: [IntCounter; 2],
    cached: [IntCounter; 2],
    rbac: [IntCounter; 2],
    stale: [IntCounter; 2],
}

impl AuthorizationMetrics {
    /// Registers the metrics, those of access reviews included. To be called once for a registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let decisions = counter_vec(
            registry,
            "weir_authorization_decisions_total",
            "Authorization decisions, by source.",
            &["source", "decision"],
        )?;
        let both =
            |source| ["deny", "allow"].map(|label| decisions.with_label_values(&[source, label]));
        let decisions = Decisions {
            review: both("review"),
            cached: both("cached"),
            rbac: both("rbac"),
            stale: both("stale"),
        };
        let unavailable = counter(
            registry,
            "weir_authorization_unavailable_total",
            "Requests that Weir could not authorize, and forwarded.",
        )?;
        let access_reviews = AccessReviewMetrics::register(registry)?;
        Ok(Self { decisions: Arc::new(decisions), unavailable, access_reviews })
    }

    /// Counts a decision.
    pub(crate) fn decided(&self, source: DecisionSource, allowed: bool) {
        let [denied, granted] = match source {
            DecisionSource::Review => &self.decisions.review,
            DecisionSource::Cached => &self.decisions.cached,
            DecisionSource::Rbac => &self.decisions.rbac,
            DecisionSource::Stale => &self.decisions.stale,
        };
        if allowed { granted.inc() } else { denied.inc() }
    }

    /// Counts a request that could not be authorized.
    pub(crate) fn unavailable(&self) {
        self.unavailable.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_its_label_value() {
        let registry = Registry::new();
        let metrics = AuthorizationMetrics::register(&registry).unwrap();
        metrics.decided(DecisionSource::Stale, true);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"weir_authorization_decisions_total{decision="allow",source="stale"} 1"#,
            r#"weir_authorization_decisions_total{decision="deny",source="stale"} 0"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
