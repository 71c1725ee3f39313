//! The metrics of one moment, to look numbers up in: what operators see on the page is what
//! Prometheus scrapes.

use std::collections::{BTreeMap, HashMap};

use prometheus::Registry;
use prometheus::proto::{Metric, MetricFamily, MetricType};

/// All metrics of a moment.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    families: HashMap<String, MetricFamily>,
}

/// The labels of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels<'a>(&'a Metric);

/// The cumulative counts of a histogram, with the upper bounds of its buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Buckets(pub(super) Vec<(f64, f64)>);

impl Numbers {
    /// Reads all metrics.
    pub(super) fn gather(registry: &Registry) -> Self {
        let families = registry.gather().into_iter();
        Self { families: families.map(|family| (family.name().to_owned(), family)).collect() }
    }

    /// Returns the series of a counter or gauge; none if there is no such metric.
    pub(super) fn each<'a>(&'a self, name: &str) -> impl Iterator<Item = (Labels<'a>, f64)> {
        self.metrics(name).iter().map(|metric| (Labels(metric), value(metric)))
    }

    /// Returns the sum of the series with these labels; `None` if there is none.
    pub(super) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted = self.each(name).filter(|(series, _)| series.have(labels));
        wanted.map(|(_, value)| value).reduce(|sum, value| sum + value)
    }

    /// Returns the sum of the series with these labels; 0 if there is none.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or(0.0)
    }

    /// Returns the counters and gauges that have these labels, by their names with the others.
    pub(super) fn with_labels(&self, labels: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let is_number = |family: &&MetricFamily| family.get_field_type() != MetricType::HISTOGRAM;
        let mut values = BTreeMap::new();
        for family in self.families.values().filter(is_number) {
            let with = family.get_metric().iter().filter(|metric| Labels(metric).have(labels));
            values.extend(with.map(|metric| {
                let other_labels = Labels(metric).others(labels);
                (format!("{}{other_labels}", family.name()), value(metric))
            }));
        }
        values
    }

    /// Returns the largest value of a metric.
    pub(super) fn largest(&self, name: &str) -> Option<f64> {
        self.each(name).map(|(_, value)| value).reduce(f64::max)
    }

    /// Returns the buckets of the histograms with these labels, added up.
    pub(super) fn buckets(&self, name: &str, labels: &[(&str, &str)]) -> Buckets {
        let mut sum = Buckets::default();
        for metric in self.metrics(name).iter().filter(|metric| Labels(metric).have(labels)) {
            let buckets = metric.get_histogram().get_bucket().iter();
            let buckets = buckets
                .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count() as f64))
                .chain([(f64::INFINITY, metric.get_histogram().get_sample_count() as f64)]);
            if sum.0.is_empty() {
                sum.0 = buckets.collect();
            } else {
                sum.0.iter_mut().zip(buckets).for_each(|(all, (_, count))| all.1 += count);
            }
        }
        sum
    }

    fn metrics(&self, name: &str) -> &[Metric] {
        self.families.get(name).map(MetricFamily::get_metric).unwrap_or_default()
    }
}

impl<'a> Labels<'a> {
    /// Returns the value of a label; empty if there is none.
    pub(super) fn get(self, name: &str) -> &'a str {
        let labels = self.0.get_label().iter();
        labels.filter(|label| label.name() == name).map(|label| label.value()).next().unwrap_or("")
    }

    /// Returns the labels that are not among these, as in the text format.
    fn others(self, labels: &[(&str, &str)]) -> String {
        let pairs = self.0.get_label().iter();
        let other_labels =
            pairs.filter(|label| labels.iter().all(|(name, _)| *name != label.name()));
        let other_labels: Vec<_> =
            other_labels.map(|label| format!("{}={:?}", label.name(), label.value())).collect();
        if other_labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", other_labels.join(","))
        }
    }

    /// Whether the series has all of these labels.
    pub(super) fn have(self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.get(name) == *value)
    }
}

impl Buckets {
    /// Returns what was counted after `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
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
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
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

/// Each series is either of the two; the other value is 0.
fn value(metric: &Metric) -> f64 {
    metric.get_counter().get_value() + metric.get_gauge().get_value()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::telemetry::metrics::{counter_vec, histogram_vec};

    #[test]
    fn series_are_found_by_their_labels() {
        let registry = Registry::new();
        let counts = counter_vec(&registry, "weir_test_total", "Tests.", &["a", "b"]).unwrap();
        counts.with_label_values(&["x", "1"]).inc_by(2);
        counts.with_label_values(&["x", "2"]).inc_by(3);
        counts.with_label_values(&["y", "2"]).inc_by(5);
        let numbers = Numbers::gather(&registry);
        assert_eq!(numbers.sum("weir_test_total", &[]), 10.0);
        assert_eq!(numbers.sum("weir_test_total", &[("a", "x")]), 5.0);
        assert_eq!(numbers.sum("weir_test_total", &[("a", "x"), ("b", "2")]), 3.0);
        assert_eq!(numbers.find("weir_test_total", &[("a", "z")]), None);
        assert_eq!(numbers.sum("weir_other", &[]), 0.0);
        assert_eq!(numbers.largest("weir_test_total"), Some(5.0));
        let with = numbers.with_labels(&[("b", "2")]);
        let expected = [("weir_test_total{a=\"x\"}", 3.0), ("weir_test_total{a=\"y\"}", 5.0)];
        assert_eq!(with, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

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
            let buckets = Numbers::gather(&registry).buckets(name, &[("a", "x")]);
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
