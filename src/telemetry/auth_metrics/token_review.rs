//! Metrics of token reviews and of what is remembered of them.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use crate::telemetry::metrics::{
    GaugeGuard, counter_vec, gauge, gauge_vec, histogram, saturating_i64,
};

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TokenReviewMetrics {
    reviews: [IntCounter; 4],
    duration: Histogram,
    in_flight: IntGauge,
    lookups: [IntCounter; 4],
    limited: [IntCounter; 4],
    entries: [IntGauge; 2],
    bytes: IntGauge,
}

/// What became of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewResult {
    /// The token is somebody's.
    Authenticated,
    /// It is nobody's.
    Refused,
    /// The upstream did not say, or could not be asked.
    Unavailable,
    /// An expired answer was used, since the upstream is away.
    Stale,
}

/// What was known of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// That it is good.
    Authenticated,
    /// That it is not.
    Refused,
    /// That the upstream was asked in vain a moment ago.
    Unavailable,
    /// Nothing.
    Miss,
}

/// Which bound kept a token from being reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewLimit {
    /// The token is too long.
    Size,
    /// Too many of one address run and wait.
    Address,
    /// Too many in all do.
    Waiting,
    /// Its turn did not come in time.
    Wait,
}

impl TokenReviewMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters =
            |name: &str, help: &str, label: &str| counter_vec(registry, name, help, &[label]);
        let gauge = |name: &str, help: &str| gauge(registry, name, help);
        let reviews = counters(
            "weir_token_reviews_total",
            "Token reviews by what came of them; stale counts requests for which an expired answer was used.",
            "result",
        )?;
        let lookups = counters(
            "weir_token_review_cache_lookups_total",
            "Requests with a token by what was known of it.",
            "result",
        )?;
        let limited = counters(
            "weir_token_reviews_limited_total",
            "Requests whose token was not reviewed since a bound was reached; they were forwarded.",
            "limit",
        )?;
        let duration = histogram(
            registry,
            "weir_token_review_duration_seconds",
            "Time that the upstream took for a token review.",
            &DURATION_BUCKETS,
        )?;
        let entries = gauge_vec(
            registry,
            "weir_token_review_cache_entries",
            "Tokens of which something is remembered, as of the last review.",
            &["result"],
        )?;
        let of = |counters: &IntCounterVec, words: [&str; 4]| {
            words.map(|word| counters.with_label_values(&[word]))
        };
        Ok(Self {
            reviews: of(&reviews, ["authenticated", "refused", "unavailable", "stale"]),
            duration,
            in_flight: gauge("weir_token_reviews_in_flight", "Token reviews under way.")?,
            lookups: of(&lookups, ["authenticated", "refused", "unavailable", "miss"]),
            limited: of(&limited, ["size", "address", "waiting", "wait"]),
            entries: ["authenticated", "failed"].map(|word| entries.with_label_values(&[word])),
            bytes: gauge(
                "weir_token_review_cache_bytes",
                "Weight of the users of remembered tokens, as of the last review.",
            )?,
        })
    }

    /// Counts a review.
    pub fn reviewed(&self, result: ReviewResult) {
        match result {
            ReviewResult::Authenticated => self.reviews[0].inc(),
            ReviewResult::Refused => self.reviews[1].inc(),
            ReviewResult::Unavailable => self.reviews[2].inc(),
            ReviewResult::Stale => self.reviews[3].inc(),
        }
    }

    /// Counts a look at what is remembered.
    pub fn looked_up(&self, lookup: LookupResult) {
        match lookup {
            LookupResult::Authenticated => self.lookups[0].inc(),
            LookupResult::Refused => self.lookups[1].inc(),
            LookupResult::Unavailable => self.lookups[2].inc(),
            LookupResult::Miss => self.lookups[3].inc(),
        }
    }

    /// Counts a bound reached.
    pub fn limited(&self, limit: ReviewLimit) {
        match limit {
            ReviewLimit::Size => self.limited[0].inc(),
            ReviewLimit::Address => self.limited[1].inc(),
            ReviewLimit::Waiting => self.limited[2].inc(),
            ReviewLimit::Wait => self.limited[3].inc(),
        }
    }

    /// Counts a review as under way for as long as the guard lives.
    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(self.in_flight.clone())
    }

    /// A review took so long.
    pub fn took(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }

    /// How many good tokens and failures are remembered, and what the good ones weigh.
    pub fn set_cached(&self, (good, failed, bytes): (u64, u64, u64)) {
        let set = |gauge: &IntGauge, count| gauge.set(saturating_i64(count));
        set(&self.entries[0], good);
        set(&self.entries[1], failed);
        set(&self.bytes, bytes);
    }
}

/// In seconds: service accounts' tokens take about a millisecond, webhooks and identity providers up to the time-out of 10 s.
const DURATION_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 3.0, 10.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown_by_its_word() {
        let registry = Registry::new();
        let metrics = TokenReviewMetrics::register(&registry).unwrap();
        metrics.reviewed(ReviewResult::Stale);
        metrics.looked_up(LookupResult::Miss);
        metrics.limited(ReviewLimit::Wait);
        metrics.set_cached((3, 4, 5));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "weir_token_reviews_total{result=\"stale\"} 1",
            "weir_token_review_cache_lookups_total{result=\"miss\"} 1",
            "weir_token_reviews_limited_total{limit=\"wait\"} 1",
            "weir_token_review_cache_entries{result=\"failed\"} 4",
            "weir_token_review_cache_bytes 5",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
