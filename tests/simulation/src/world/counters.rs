//! The counters of a Weir.

use std::collections::BTreeMap;

use weir::app::metrics::Metrics;

/// One series of a counter: its labels, and the count.
pub(super) type Counter = (BTreeMap<String, String>, f64);

/// Returns the series of a counter with these values of labels.
pub(super) fn counters(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> Vec<Counter> {
    let families = metrics.registry.gather().into_iter();
    let mut series = Vec::new();
    for family in families.filter(|family| family.name() == name) {
        for metric in family.get_metric() {
            let of = metric.get_label().iter();
            let of: BTreeMap<_, _> =
                of.map(|it| (it.name().to_owned(), it.value().to_owned())).collect();
            let has = |(name, value): &(&str, &str)| of.get(*name).is_some_and(|it| it == value);
            if labels.iter().all(has) {
                series.push((of, metric.get_counter().get_value()));
            }
        }
    }
    series
}
