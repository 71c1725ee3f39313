//! Metrics of authorization. The counter of each label value is looked up once, so that counting
//! costs one atomic operation.

use prometheus::{IntCounter, Registry};

use crate::auth::DecisionSource;
use crate::auth::access_review::metrics::AccessReviewMetrics;
use crate::telemetry::metrics::{Labelled, counter, counter_vec};

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthorizationMetrics {
    /// Each denied and allowed.
    decisions: Labelled<DecisionSource, [IntCounter; 2]>,
    unavailable: IntCounter,
    pub(crate) access_reviews: AccessReviewMetrics,
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
        let decisions = Labelled::of_each(|source: DecisionSource| {
            ["deny", "allow"].map(|label| decisions.with_label_values(&[source.as_str(), label]))
        });
        let unavailable = counter(
            registry,
            "weir_authorization_unavailable_total",
            "Requests that Weir could not authorize, and forwarded.",
        )?;
        let access_reviews = AccessReviewMetrics::register(registry)?;
        Ok(Self { decisions, unavailable, access_reviews })
    }

    /// Counts a decision.
    pub(crate) fn decided(&self, source: DecisionSource, allowed: bool) {
        let [denied, granted] = self.decisions.get(source);
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
