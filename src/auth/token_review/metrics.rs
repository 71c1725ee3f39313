//! Metrics of token reviews and of the token cache.

use prometheus::{Histogram, IntCounter, IntGauge};

use crate::telemetry::metrics::{Labelled, families, saturating_i64};

families! {
    /// Handles of the metrics of token reviews. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct TokenReviewMetrics {
        /// Token reviews, by result. `stale` counts requests that used an expired result.
        reviews: Labelled<ReviewResult, IntCounter> =
            counters_by("weir_token_reviews_total", "result"),
        /// Latency of token reviews, failed ones included.
        pub(super) duration: Histogram =
            histogram("weir_token_review_duration_seconds", &DURATION_BUCKETS),
        /// Token reviews in flight.
        pub(super) in_flight: IntGauge = gauge("weir_token_reviews_in_flight"),
        /// Lookups in the token cache, by result.
        lookups: Labelled<LookupResult, IntCounter> =
            counters_by("weir_token_review_cache_lookups_total", "result"),
        /// Requests whose token was not reviewed because of a limit, by limit. Those over the limit
        /// of their address get status 429, the others are forwarded.
        limited: Labelled<ReviewLimit, IntCounter> =
            counters_by("weir_token_reviews_limited_total", "limit"),
        /// Tokens in the cache, by result, as of the last review. A good one is kept for an hour
        /// after its review.
        cached_tokens: [IntGauge; 2] =
            gauges_of("weir_token_review_cache_tokens", ("result", ["authenticated", "failed"])),
        /// Approximate size of the good tokens in the cache, as of the last review.
        pub(in crate::auth) cached_bytes: IntGauge = gauge("weir_token_review_cache_bytes"),
    }
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
    use prometheus::Registry;

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
