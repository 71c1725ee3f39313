//! Metrics of access reviews. The counter of each label value is looked up once, so that counting
//! costs one atomic operation.

use prometheus::{Histogram, IntCounter, IntGauge};

use crate::telemetry::metrics::{Labelled, families, saturating_i64};

families! {
    /// Handles of the metrics. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct AccessReviewMetrics {
        /// Access reviews, by outcome.
        reviews: Labelled<ReviewOutcome, IntCounter> =
            counters_by("weir_access_reviews_total", "outcome"),
        /// Duration of access reviews, failed ones included.
        pub(super) duration: Histogram =
            histogram("weir_access_review_duration_seconds", &DURATION_BUCKETS),
        /// Access reviews in flight.
        pub(super) in_flight: IntGauge = gauge("weir_access_reviews_in_flight"),
        /// Approximate memory of cached authorization decisions.
        cached_bytes: [IntGauge; 2] =
            gauges_of("weir_authorization_cache_bytes", ("decision", ["deny", "allow"])),
    }
}

crate::api::labels! {
    /// How an access review ended.
    pub enum ReviewOutcome {
        /// The user may do it.
        Allowed = "allowed",
        /// The user may not do it.
        Denied = "denied",
        /// An authorizer of the upstream failed, and none allowed the request.
        Undecided = "undecided",
        /// There was no connection, or it was lost.
        Unreachable = "unreachable",
        /// No answer came in time.
        Timeout = "timeout",
        /// Weir's identity may not create access reviews (401, 403).
        Refused = "refused",
        /// 429.
        Throttled = "throttled",
        /// Another status, or an unreadable response.
        Failed = "failed",
        /// It was not sent, because too many reviews were in flight.
        Limited = "limited",
    }
}

/// Upper bounds in seconds. RBAC in the upstream takes a millisecond, a webhook behind it tens of
/// them. Reviews time out after 10 s.
const DURATION_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];

impl AccessReviewMetrics {
    /// Counts a review that ended.
    pub fn reviewed(&self, outcome: ReviewOutcome) {
        self.reviews.get(outcome).inc();
    }

    /// Returns the memory of cached decisions.
    pub(in crate::auth) fn cached_bytes(&self) -> i64 {
        self.cached_bytes.iter().map(IntGauge::get).sum()
    }

    /// Sets the memory of cached decisions.
    pub fn set_cached_bytes(&self, allowed: bool, bytes: u64) {
        let [denied, granted] = &self.cached_bytes;
        let gauge = if allowed { granted } else { denied };
        gauge.set(saturating_i64(bytes));
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;
    use crate::telemetry::metrics::GaugeGuard;

    #[test]
    fn every_outcome_has_its_label_value() {
        let registry = Registry::new();
        let metrics = AccessReviewMetrics::register(&registry).unwrap();
        metrics.reviewed(ReviewOutcome::Limited);
        drop(GaugeGuard::new(metrics.in_flight));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"weir_access_reviews_total{outcome="limited"} 1"#,
            r#"weir_access_reviews_total{outcome="allowed"} 0"#,
            "weir_access_reviews_in_flight 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
