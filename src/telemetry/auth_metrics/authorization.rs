//! Metrics of authorization by access reviews.
//!
//! Each child is looked up once and kept: a decision touches one atomic.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{
    GaugeGuard, counter, counter_vec, gauge, gauge_vec, histogram, saturating_i64,
};

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuthorizationMetrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By [`DecidedBy`], denied and allowed.
    decisions: [[IntCounter; 2]; 4],
    unavailable: IntCounter,
    /// By [`ReviewOutcome`].
    reviews: [IntCounter; 9],
    duration: Histogram,
    in_flight: IntGauge,
    /// Denied and allowed.
    cached_bytes: [IntGauge; 2],
}

/// Who made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// `review`: an access review that was just asked for.
    Review,
    /// `cached`: one that was asked for before.
    Cached,
    /// `rbac`: the cluster's roles and bindings, here.
    Rbac,
    /// `stale`: an expired review, with the upstream away.
    Stale,
}

/// How an access review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewOutcome {
    /// `allowed`
    Allowed,
    /// `denied`
    Denied,
    /// `undecided`: the upstream's authorizers failed and allowed nothing.
    Undecided,
    /// `unreachable`: no connection, or lost.
    Unreachable,
    /// `timeout`
    Timeout,
    /// `refused`: Weir's identity may not ask (401, 403).
    Refused,
    /// `throttled`: 429.
    Throttled,
    /// `failed`: any other failure status, or an answer that cannot be read.
    Failed,
    /// `crowded`: not asked, since too many were under way.
    Crowded,
}

const DECIDED_BY: [&str; 4] = ["review", "cached", "rbac", "stale"];
const OUTCOMES: [&str; 9] = [
    "allowed",
    "denied",
    "undecided",
    "unreachable",
    "timeout",
    "refused",
    "throttled",
    "failed",
    "crowded",
];
const DECISIONS: [&str; 2] = ["deny", "allow"];
/// In seconds: RBAC upstream takes a millisecond, a webhook behind it tens, and 10 s is the end.
const DURATION_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];

impl AuthorizationMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let decisions = counter_vec(
            registry,
            "weir_authorization_decisions_total",
            "Decisions whether a user may, by who made them.",
            &["source", "decision"],
        )?;
        let unavailable = counter(
            registry,
            "weir_authorization_unavailable_total",
            "Questions that could not be decided; their requests were left to the upstream.",
        )?;
        let reviews = counter_vec(
            registry,
            "weir_access_reviews_total",
            "Access reviews, by how they ended.",
            &["outcome"],
        )?;
        let duration = histogram(
            registry,
            "weir_access_review_duration_seconds",
            "Time that access reviews took, those without an answer included.",
            &DURATION_BUCKETS,
        )?;
        let in_flight =
            gauge(registry, "weir_access_reviews_in_flight", "Access reviews under way.")?;
        let cached_bytes = gauge_vec(
            registry,
            "weir_authorization_cache_bytes",
            "Room that remembered decisions take, about.",
            &["decision"],
        )?;
        let inner = Inner {
            decisions: DECIDED_BY.map(|source| {
                DECISIONS.map(|decision| decisions.with_label_values(&[source, decision]))
            }),
            unavailable,
            reviews: OUTCOMES.map(|outcome| reviews.with_label_values(&[outcome])),
            duration,
            in_flight,
            cached_bytes: DECISIONS.map(|decision| cached_bytes.with_label_values(&[decision])),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Counts a decision.
    pub fn decided(&self, by: DecidedBy, allowed: bool) {
        let [denied, granted] = match by {
            DecidedBy::Review => &self.inner.decisions[0],
            DecidedBy::Cached => &self.inner.decisions[1],
            DecidedBy::Rbac => &self.inner.decisions[2],
            DecidedBy::Stale => &self.inner.decisions[3],
        };
        if allowed { granted.inc() } else { denied.inc() }
    }

    /// Counts a question without an answer.
    pub fn unavailable(&self) {
        self.inner.unavailable.inc();
    }

    /// Counts a review as under way for as long as the guard lives.
    pub fn asking(&self) -> GaugeGuard {
        GaugeGuard::new(self.inner.in_flight.clone())
    }

    /// Counts a review that ended.
    pub fn reviewed(&self, outcome: ReviewOutcome) {
        let [allowed, denied, undecided, unreachable, timeout, refused, throttled, failed, crowded] =
            &self.inner.reviews;
        let counter = match outcome {
            ReviewOutcome::Allowed => allowed,
            ReviewOutcome::Denied => denied,
            ReviewOutcome::Undecided => undecided,
            ReviewOutcome::Unreachable => unreachable,
            ReviewOutcome::Timeout => timeout,
            ReviewOutcome::Refused => refused,
            ReviewOutcome::Throttled => throttled,
            ReviewOutcome::Failed => failed,
            ReviewOutcome::Crowded => crowded,
        };
        counter.inc();
    }

    /// Tells how long a review took.
    pub fn took(&self, time: Duration) {
        self.inner.duration.observe(time.as_secs_f64());
    }

    /// Tells how much room remembered decisions take.
    pub fn cached(&self, allowed: bool, bytes: u64) {
        let [denied, granted] = &self.inner.cached_bytes;
        let gauge = if allowed { granted } else { denied };
        gauge.set(saturating_i64(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_words() {
        let registry = Registry::new();
        let metrics = AuthorizationMetrics::register(&registry).unwrap();
        metrics.decided(DecidedBy::Stale, true);
        metrics.reviewed(ReviewOutcome::Crowded);
        drop(metrics.asking());
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"weir_authorization_decisions_total{decision="allow",source="stale"} 1"#,
            r#"weir_authorization_decisions_total{decision="deny",source="stale"} 0"#,
            r#"weir_access_reviews_total{outcome="crowded"} 1"#,
            "weir_access_reviews_in_flight 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
