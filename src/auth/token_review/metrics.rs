//! Metrics of token reviews and of the token cache.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{
    GaugeGuard, Labelled, counter_vec, gauge, gauge_vec, histogram, saturating_i64,
};

/// Handles of the metrics of token reviews. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TokenReviewMetrics {
    reviews: Labelled<ReviewResult, IntCounter>,
    duration: Histogram,
    in_flight: IntGauge,
    lookups: Labelled<LookupResult, IntCounter>,
    limited: Labelled<ReviewLimit, IntCounter>,
    cached_tokens: [IntGauge; 2],
    cached_bytes: IntGauge,
}

crate::api::labels! {
    /// The result of a review.
    pub enum ReviewResult {
        /// The token belongs to a user.
        Authenticated = "authenticated",
        /// The token is invalid.
        Refused = "refused",
        /// The review failed or was not sent.
        Unavailable = "unavailable",
        /// An expired result was used because the upstream is down.
        Stale = "stale",
    }
}

crate::api::labels! {
    /// The result of a cache lookup.
    pub enum LookupResult {
        /// The token is good.
        Authenticated = "authenticated",
        /// The token was refused.
        Refused = "refused",
        /// A review of the token failed a moment ago.
        Unavailable = "unavailable",
        /// The cache holds nothing for the token.
        Miss = "miss",
    }
}

crate::api::labels! {
    /// A limit that prevented a review.
    pub enum ReviewLimit {
        /// The token is too long.
        TokenSize = "token-size",
        /// Too many reviews of the client address run and wait.
        Address = "address",
        /// Too many reviews run and wait in total.
        Total = "total",
        /// The review waited too long for its permit.
        WaitTime = "wait-time",
    }
}

impl TokenReviewMetrics {
    /// Registers the metrics. Fails if called twice with the same registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters =
            |name: &str, help: &str, label: &str| counter_vec(registry, name, help, &[label]);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let reviews = counters(
            "weir_token_reviews_total",
            "Token reviews, by result. `stale` counts requests that used an expired result.",
            "result",
        )?;
        let lookups = counters(
            "weir_token_review_cache_lookups_total",
            "Lookups in the token cache, by result.",
            "result",
        )?;
        let limited = counters(
            "weir_token_reviews_limited_total",
            "Requests whose token was not reviewed because of a limit, by limit. Those over the limit of their address get status 429, the others are forwarded.",
            "limit",
        )?;
        let duration = histogram(
            registry,
            "weir_token_review_duration_seconds",
            "Latency of token reviews, failed ones included.",
            &DURATION_BUCKETS,
        )?;
        let cached_tokens = gauge_vec(
            registry,
            "weir_token_review_cache_tokens",
            "Tokens in the cache, by result, as of the last review. A good one is kept for an hour after its review.",
            &["result"],
        )?;
        Ok(Self {
            reviews: Labelled::new(&reviews),
            duration,
            in_flight: gauge("weir_token_reviews_in_flight", "Token reviews in flight.")?,
            lookups: Labelled::new(&lookups),
            limited: Labelled::new(&limited),
            cached_tokens: ["authenticated", "failed"]
                .map(|value| cached_tokens.with_label_values(&[value])),
            cached_bytes: gauge(
                "weir_token_review_cache_bytes",
                "Approximate size of the good tokens in the cache, as of the last review.",
            )?,
        })
    }

    /// Counts a review.
    pub fn reviewed(&self, result: ReviewResult) {
        self.reviews.get(result).inc();
    }

    /// Counts a cache lookup.
    pub fn looked_up(&self, lookup: LookupResult) {
        self.lookups.get(lookup).inc();
    }

    /// Counts a request whose token was not reviewed because of a limit.
    pub fn limited(&self, limit: ReviewLimit) {
        self.limited.get(limit).inc();
    }

    /// Counts a review as in flight while the guard lives.
    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(self.in_flight.clone())
    }

    /// Records the latency of a review.
    pub fn took(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }

    /// Returns the weight of the good tokens in the cache.
    pub(in crate::auth) fn cached_bytes(&self) -> i64 {
        self.cached_bytes.get()
    }

    /// Sets the numbers of good and of failed tokens in the cache, and the weight of the good ones.
    pub fn set_cached(&self, (good, failed, bytes): (u64, u64, u64)) {
        let set = |gauge: &IntGauge, count| gauge.set(saturating_i64(count));
        set(&self.cached_tokens[0], good);
        set(&self.cached_tokens[1], failed);
        set(&self.cached_bytes, bytes);
    }
}

/// The buckets of a review's duration, in seconds. Service account tokens take about a millisecond,
/// webhooks and identity providers up to the time-out of 10 s.
const DURATION_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 3.0, 10.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_label() {
        let registry = Registry::new();
        let metrics = TokenReviewMetrics::register(&registry).unwrap();
        metrics.reviewed(ReviewResult::Stale);
        metrics.looked_up(LookupResult::Miss);
        metrics.limited(ReviewLimit::WaitTime);
        metrics.set_cached((3, 4, 5));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "weir_token_reviews_total{result=\"stale\"} 1",
            "weir_token_review_cache_lookups_total{result=\"miss\"} 1",
            "weir_token_reviews_limited_total{limit=\"wait-time\"} 1",
            "weir_token_review_cache_tokens{result=\"failed\"} 4",
            "weir_token_review_cache_bytes 5",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
