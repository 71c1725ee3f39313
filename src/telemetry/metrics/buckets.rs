//! The cumulative counts of histograms, and their quantiles.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

/// The cumulative counts of a histogram, with the upper bounds of its buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    /// Returns the buckets of the histograms with this label, added up.
    pub(crate) fn collect(family: &impl Collector, (label, value): (&str, &str)) -> Self {
        let mut sum = Self::default();
        for metric in family.collect().iter().flat_map(MetricFamily::get_metric) {
            let mut pairs = metric.get_label().iter();
            if !pairs.any(|pair| pair.name() == label && pair.value() == value) {
                continue;
            }
            let histogram = metric.get_histogram();
            let buckets = histogram.get_bucket().iter();
            let buckets = buckets
                .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count() as f64))
                .chain([(f64::INFINITY, histogram.get_sample_count() as f64)]);
            if sum.0.is_empty() {
                sum.0 = buckets.collect();
            } else {
                sum.0.iter_mut().zip(buckets).for_each(|(total, (_, count))| total.1 += count);
            }
        }
        sum
    }

    /// Returns what was counted after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let count = |place: usize| before.0.get(place).map_or(0.0, |(_, count)| *count);
        let buckets = self.0.iter().enumerate();
        Self(
            buckets
                .map(|(place, (bound, total))| (*bound, (total - count(place)).max(0.0)))
                .collect(),
        )
    }

    /// Returns the quantile as Prometheus' `histogram_quantile` does: within its bucket all values
    /// count as evenly spread, and above the last bound the bound counts. `None` without values.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let total = self.0.last().filter(|(_, total)| *total > 0.0)?.1;
        let rank = quantile * total;
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            if *count >= rank {
                if bound.is_infinite() {
                    return Some(lower);
                }
                let part = (rank - below) / (count - below).max(f64::MIN_POSITIVE);
                return Some(lower + (bound - lower) * part);
            }
            (lower, below) = (*bound, *count);
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use proptest::prelude::*;

    use super::*;
    use crate::telemetry::metrics::histogram_vec;

    proptest! {
        #[test]
        fn a_quantile_lies_in_the_bucket_of_the_exact_one(
            values in proptest::collection::vec(0.0..12.0_f64, 1..200),
            quantile in 0.01..1.0_f64,
        ) {
            let registry = Registry::new();
            let bounds = [0.5, 1.0, 2.0, 5.0, 10.0];
            let name = "weir_test_seconds";
            let seconds = histogram_vec(&registry, name, "Tests.", &["a"], &bounds).unwrap();
            values.iter().for_each(|value| seconds.with_label_values(&["x"]).observe(*value));
            let buckets = Buckets::collect(&seconds, ("a", "x"));
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            let rank = ((quantile * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            let upper = bounds.into_iter().find(|bound| exact <= *bound).unwrap_or(10.0);
            let lower = bounds.into_iter().rev().find(|bound| exact > *bound).unwrap_or(0.0);
            let estimate = buckets.quantile(quantile).unwrap();
            prop_assert!(estimate <= upper + 1e-9, "{estimate} {upper}");
            prop_assert!(estimate >= lower.min(10.0) - 1e-9, "{estimate} {lower}");
            prop_assert_eq!(buckets.since(&buckets).quantile(quantile), None);
        }
    }
}
