//! Helpers with which a component creates and registers its metrics.
//!
//! Each component has its metrics in a struct of handles beside the code that they measure. It
//! registers them once, and looks up no label on a hot path.

pub(crate) mod buckets;
#[cfg(test)]
pub(crate) mod catalogue;

use std::marker::PhantomData;
use std::sync::Arc;

use prometheus::core::{
    Atomic, Collector, Desc, GenericCounter, GenericCounterVec, GenericGauge, GenericGaugeVec,
    MetricVec, MetricVecBuilder,
};
use prometheus::proto::{Metric, MetricFamily};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::api::labels::Label;

/// Defines a struct of metrics and its `register`. Each is stated once: the comment above it is its
/// help, and the function that registers it gets the rest, without the registry and the help. Other
/// fields come last, and have their defaults.
macro_rules! families {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field_visibility:vis $field:ident: $kind:ty =
                    $register:ident($metric:literal $(, $argument:expr)* $(,)?),
            )+
            $(..default {
                $($(#[$default_attribute:meta])* $default:ident: $default_kind:ty,)+
            })?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[doc = $help])+ $field_visibility $field: $kind,)+
            $($($(#[$default_attribute])* $default: $default_kind,)+)?
        }

        impl $name {
            /// Registers the metrics. May be called once per registry.
            $visibility fn register(
                registry: &prometheus::Registry,
            ) -> Result<Self, prometheus::Error> {
                $(
                    let help = concat!($($help),+).trim_start();
                    let $field = $crate::telemetry::metrics::$register(
                        registry, $metric, help $(, $argument)*
                    )?;
                )+
                Ok(Self { $($field,)+ $($($default: Default::default(),)+)? })
            }
        }
    };
}

pub(crate) use families;

/// Registers a counter without labels.
pub fn counter<P: Atomic + 'static>(
    registry: &Registry,
    name: &str,
    help: &str,
) -> Result<GenericCounter<P>, prometheus::Error> {
    registered(registry, GenericCounter::new(name, help)?)
}

/// Registers a family of counters.
pub fn counter_vec<P: Atomic + 'static>(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<GenericCounterVec<P>, prometheus::Error> {
    registered(registry, GenericCounterVec::new(Opts::new(name, help), labels)?)
}

/// Registers a family of counters with one label of these values. All are shown from the start, so
/// that Prometheus sees the first event as an increase.
pub fn counters_of(
    registry: &Registry,
    name: &str,
    help: &str,
    (label, values): (&str, &[&str]),
) -> Result<IntCounterVec, prometheus::Error> {
    let family = counter_vec(registry, name, help, &[label])?;
    for value in values {
        let _at_zero = family.get_metric_with_label_values(&[value])?;
    }
    Ok(family)
}

/// The series of a family with one label, whose values are those of an enum. Each is looked up
/// once, so that counting costs one atomic operation. Cheap to clone: clones share the series.
#[derive(Debug)]
pub(crate) struct Labelled<L, M> {
    series: Arc<[M]>,
    label: PhantomData<L>,
}

impl<L: Label, M> Labelled<L, M> {
    /// Looks up the series of all values, so that all are shown from the start.
    pub(crate) fn new<B: MetricVecBuilder<M = M>>(family: &MetricVec<B>) -> Self {
        Self::of_each(|value| family.with_label_values(&[value.text()]))
    }

    /// Returns what `series` returns for all values.
    pub(crate) fn of_each(series: impl FnMut(L) -> M) -> Self {
        Self { series: L::VALUES.iter().copied().map(series).collect(), label: PhantomData }
    }

    /// Returns the series of a value.
    #[expect(clippy::indexing_slicing, reason = "there is one for each value")]
    pub(crate) fn get(&self, value: L) -> &M {
        &self.series[value.index()]
    }
}

impl<L: Label, N: Label, M> Labelled<L, Labelled<N, M>> {
    fn by_two<B: MetricVecBuilder<M = M>>(family: &MetricVec<B>) -> Self {
        Self::of_each(|first| {
            Labelled::of_each(|second: N| family.with_label_values(&[first.text(), second.text()]))
        })
    }
}

impl<L, M> Clone for Labelled<L, M> {
    fn clone(&self) -> Self {
        Self { series: Arc::clone(&self.series), label: PhantomData }
    }
}

/// Registers a gauge without labels.
pub fn gauge<P: Atomic + 'static>(
    registry: &Registry,
    name: &str,
    help: &str,
) -> Result<GenericGauge<P>, prometheus::Error> {
    registered(registry, GenericGauge::new(name, help)?)
}

/// Registers a family of gauges.
pub fn gauge_vec<P: Atomic + 'static>(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<GenericGaugeVec<P>, prometheus::Error> {
    registered(registry, GenericGaugeVec::new(Opts::new(name, help), labels)?)
}

/// Registers a histogram without labels. `buckets` are upper bounds, ascending.
pub fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
) -> Result<Histogram, prometheus::Error> {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(registry, Histogram::with_opts(options)?)
}

/// Registers a family of histograms. `buckets` are upper bounds, ascending.
pub fn histogram_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(options, labels)?)
}

/// Registers a histogram for each value of an enum. `buckets` are upper bounds, ascending.
pub(crate) fn histograms_of<L: Label>(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
    buckets: &[f64],
) -> Result<Labelled<L, Histogram>, prometheus::Error> {
    Ok(Labelled::new(&histogram_vec(registry, name, help, &[label], buckets)?))
}

/// Registers a counter for each value of an enum.
pub(crate) fn counters_by<L: Label>(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
) -> Result<Labelled<L, IntCounter>, prometheus::Error> {
    Ok(Labelled::new(&counter_vec(registry, name, help, &[label])?))
}

/// Registers a counter for each value of each of two enums.
pub(crate) fn counters_by_two<L: Label, M: Label>(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: [&str; 2],
) -> Result<Labelled<L, Labelled<M, IntCounter>>, prometheus::Error> {
    Ok(Labelled::by_two(&counter_vec(registry, name, help, &labels)?))
}

/// Registers a gauge for each value of each of two enums.
pub(crate) fn gauges_by_two<L: Label, M: Label>(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: [&str; 2],
) -> Result<Labelled<L, Labelled<M, IntGauge>>, prometheus::Error> {
    Ok(Labelled::by_two(&gauge_vec(registry, name, help, &labels)?))
}

/// Registers a gauge for each of these values of a label.
pub(crate) fn gauges_of<const N: usize>(
    registry: &Registry,
    name: &str,
    help: &str,
    (label, values): (&str, [&str; N]),
) -> Result<[IntGauge; N], prometheus::Error> {
    let family: IntGaugeVec = gauge_vec(registry, name, help, &[label])?;
    Ok(values.map(|value| family.with_label_values(&[value])))
}

/// Registers a collector, such as one that reads its values at each scrape.
pub fn register(
    registry: &Registry,
    collector: impl Collector + 'static,
) -> Result<(), prometheus::Error> {
    #[cfg(test)]
    catalogue::note(&collector);
    registry.register(Box::new(collector))
}

/// Gauges that each scrape sets.
pub(crate) struct OnScrape<F> {
    pub(crate) family: IntGaugeVec,
    pub(crate) fill: F,
}

impl<F: Fn(&IntGaugeVec) + Send + Sync> Collector for OnScrape<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.family.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.fill)(&self.family);
        self.family.collect()
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    register(registry, collector.clone())?;
    Ok(collector)
}

/// Returns the series of a counter or gauge with the values of some of its labels. The other labels
/// are left out, so that several series may have the same values.
pub(crate) fn labelled<const N: usize>(
    family: &impl Collector,
    labels: [&str; N],
) -> Vec<([Box<str>; N], f64)> {
    let metrics = family.collect().into_iter().flat_map(|mut family| family.take_metric());
    let read = |metric: Metric| {
        let pairs = metric.get_label();
        let value = |name: &str| pairs.iter().find(|pair| pair.name() == name);
        let values = labels.map(|name| value(name).map_or("", |pair| pair.value()).into());
        // Each series is either of the two; the other value is 0.
        (values, metric.get_counter().get_value() + metric.get_gauge().get_value())
    };
    metrics.map(read).collect()
}

/// Returns the sum of the series of a counter or gauge; `None` if there is none.
pub(crate) fn sum(family: &impl Collector) -> Option<f64> {
    labelled(family, []).into_iter().map(|([], value)| value).reduce(|sum, value| sum + value)
}

/// Returns the sum of the series of a counter or gauge with this label; `None` if there is none.
pub(crate) fn sum_with(family: &impl Collector, (label, value): (&str, &str)) -> Option<f64> {
    let mut series = labelled(family, [label]);
    series.retain(|([label], _)| &**label == value);
    series.into_iter().map(|(_, value)| value).reduce(|sum, value| sum + value)
}

/// Converts a value for a gauge; a value above the range of `i64` becomes `i64::MAX`.
pub fn saturating_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Adds one to a gauge until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard {
    gauge: IntGauge,
}

impl GaugeGuard {
    /// Adds one to `gauge`.
    pub fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self { gauge }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_adds_one_until_it_is_dropped() {
        let gauge = gauge(&Registry::new(), "weir_test", "Guards.").unwrap();
        let guard = GaugeGuard::new(gauge.clone());
        assert_eq!(gauge.get(), 1);
        drop(guard);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn counters_of_fixed_values_begin_at_zero() {
        let registry = Registry::new();
        counters_of(&registry, "weir_test_total", "Tests.", ("of", &["a", "b"])).unwrap();
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [r#"weir_test_total{of="a"} 0"#, r#"weir_test_total{of="b"} 0"#] {
            assert!(text.lines().any(|candidate| candidate == line), "{text}");
        }
    }

    #[test]
    fn the_series_of_a_family_are_read_by_their_labels() {
        let registry = Registry::new();
        let counts: IntCounterVec =
            counter_vec(&registry, "weir_test_total", "Tests.", &["a", "b"]).unwrap();
        assert_eq!(sum(&counts), None);
        counts.with_label_values(&["x", "1"]).inc_by(2);
        counts.with_label_values(&["x", "2"]).inc_by(3);
        counts.with_label_values(&["y", "2"]).inc_by(5);
        assert_eq!(sum(&counts), Some(10.0));
        assert_eq!(sum_with(&counts, ("a", "x")), Some(5.0));
        assert_eq!(sum_with(&counts, ("a", "z")), None);
        let mut series = labelled(&counts, ["b", "a"]);
        series.sort_by(|one, other| one.1.total_cmp(&other.1));
        let expected = [(["1", "x"], 2.0), (["2", "x"], 3.0), (["2", "y"], 5.0)];
        assert_eq!(series, expected.map(|(labels, count)| (labels.map(Box::from), count)));
    }

    #[test]
    fn large_values_saturate() {
        assert_eq!(saturating_i64(7_usize), 7);
        assert_eq!(saturating_i64(u64::MAX), i64::MAX);
    }
}
