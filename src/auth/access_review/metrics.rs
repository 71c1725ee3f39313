//! Metrics of access reviews. The counter of each label value is looked up once, so that counting
//! costs one atomic operation.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{
    GaugeGuard, Labelled, counter_vec, gauge, gauge_vec, histogram, saturating_i64,
};

/// Handles of the metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessReviewMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    reviews: Labelled<ReviewOutcome, IntCounter>,
    duration: Histogram,
    in_flight: IntGauge,
    /// The memory of denied and of allowed decisions.
    cached_bytes: [IntGauge; 2],
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

const DECISIONS: [&str; 2] = ["deny", "allow"];
/// Upper bounds in seconds. RBAC in the upstream takes a millisecond, a webhook behind it tens of
/// them. Reviews time out after 10 s.
const DURATION_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];

impl AccessReviewMetrics {
    /// Registers the metrics. To be called once for a registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let reviews = counter_vec(
            registry,
            "weir_access_reviews_total",
            "Access reviews, by outcome.",
            &["outcome"],
        )?;
        let duration = histogram(
            registry,
            "weir_access_review_duration_seconds",
            "Duration of access reviews, failed ones included.",
            &DURATION_BUCKETS,
        )?;
        let in_flight =
            gauge(registry, "weir_access_reviews_in_flight", "Access reviews in flight.")?;
        let cached_bytes = gauge_vec(
            registry,
            "weir_authorization_cache_bytes",
            "Approximate memory of cached authorization decisions.",
            &["decision"],
        )?;
        let inner = Inner {
            reviews: Labelled::new(&reviews),
            duration,
            in_flight,
            cached_bytes: DECISIONS.map(|decision| cached_bytes.with_label_values(&[decision])),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Counts a review as in flight until the guard is dropped.
    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.in_flight.clone())
    }

    /// Counts a review that ended.
    pub fn reviewed(&self, outcome: ReviewOutcome) {
        self.inner.reviews.get(outcome).inc();
    }

    /// Observes the duration of a review.
    pub fn observe_duration(&self, duration: Duration) {
        self.inner.duration.observe(duration.as_secs_f64());
    }

    /// Returns the memory of cached decisions.
    pub(in crate::auth) fn cached_bytes(&self) -> i64 {
        self.inner.cached_bytes.iter().map(IntGauge::get).sum()
    }

    /// Sets the memory of cached decisions.
    pub fn set_cached_bytes(&self, allowed: bool, bytes: u64) {
        let [denied, granted] = &self.inner.cached_bytes;
        let gauge = if allowed { granted } else { denied };
        gauge.set(saturating_i64(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_label_value() {
        let registry = Registry::new();
        let metrics = AccessReviewMetrics::register(&registry).unwrap();
        metrics.reviewed(ReviewOutcome::Limited);
        drop(metrics.in_flight());
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
