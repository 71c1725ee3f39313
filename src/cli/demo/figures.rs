//! The live line of the demo: the requests of clients, and how few of them reached the upstream.
//! The figures come from the metrics that Prometheus scrapes, so every Weir has them.

use std::fmt;

use prometheus::Registry;
use prometheus::proto::{Metric, MetricFamily};

/// The totals since the start, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    requests: u64,
    hits: u64,
    watches: u64,
    events: u64,
    upstream: u64,
}

impl Figures {
    /// Sums over all resources; `upstream` is the simulator's own count of requests.
    pub(super) fn gather(registry: &Registry, upstream: u64) -> Self {
        let families = registry.gather();
        let sum = |name: &str, label| sum(&families, name, label);
        Self {
            requests: sum("weir_requests_total", None),
            hits: sum("weir_requests_total", Some(("cache_status", "hit"))),
            watches: sum("weir_watchers", None),
            events: sum("weir_watch_events_total", None),
            upstream,
        }
    }
}

/// Returns the sum of a counter or gauge over the series with this label.
pub(super) fn sum(families: &[MetricFamily], name: &str, label: Option<(&str, &str)>) -> u64 {
    let family = families.iter().find(|family| family.name() == name);
    let metrics = family.map(MetricFamily::get_metric).unwrap_or_default();
    let wanted = |metric: &&Metric| {
        label.is_none_or(|(name, value)| {
            metric.get_label().iter().any(|label| label.name() == name && label.value() == value)
        })
    };
    // Each is either of the two; the other is 0.
    let value = |metric: &Metric| metric.get_counter().get_value() + metric.get_gauge().get_value();
    metrics.iter().filter(wanted).map(|metric| value(metric) as u64).sum()
}

/// The line, which fits in 80 columns while the figures have at most six digits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, hits, watches, events, upstream } = self;
        write!(
            f,
            "clients: {requests} requests, {hits} cached; {watches} watches, {events} events | upstream: {upstream}"
        )
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, IntGauge, Opts};

    use super::*;

    #[test]
    fn metrics_are_summed() {
        let registry = Registry::new();
        let requests =
            IntCounterVec::new(Opts::new("weir_requests_total", "x"), &["cache_status", "code"])
                .unwrap();
        registry.register(Box::new(requests.clone())).unwrap();
        requests.with_label_values(&["hit", "200"]).inc_by(3);
        requests.with_label_values(&["hit", "304"]).inc_by(2);
        requests.with_label_values(&["forward", "200"]).inc_by(1);
        let watchers = IntGauge::new("weir_watchers", "x").unwrap();
        registry.register(Box::new(watchers.clone())).unwrap();
        watchers.set(7);
        let figures = Figures::gather(&registry, 4);
        assert_eq!(figures, Figures { requests: 6, hits: 5, watches: 7, events: 0, upstream: 4 });
        assert!(figures.to_string().len() < 80, "{figures}");
    }
}
