//! The judgement of what Weirs have counted themselves: B1 and VC.

use weir::app::metrics::Metrics;

use super::Weirs;

impl Weirs {
    /// B1: when all clients are gone, no Weir holds anything for them.
    pub(in crate::world) fn check_bounds(&self) {
        // Where one Weir reads from another, that one has a client left.
        let first = usize::from(self.plan.in_a_row);
        for running in self.running.iter().skip(first).flatten() {
            self.checker.checked("B1");
            for family in running.metrics.registry.gather() {
                if !HELD_FOR_CLIENTS.contains(&family.name()) {
                    continue;
                }
                let held: f64 =
                    family.get_metric().iter().map(|metric| metric.get_gauge().get_value()).sum();
                // Weir itself watches its caches of FlowSchemas and priority levels.
                let plan_watchers = match (&self.plan.crowd, family.name()) {
                    (Some(crowd), "weir_cache_watchers") if crowd.has_plan => 2.0,
                    _ => 0.0,
                };
                if held != plan_watchers {
                    let what = format!("{} is {held} without a client", family.name());
                    self.checker.violated("B1", &what);
                }
            }
        }
    }

    /// VC, before a Weir is asked to stop: a cache takes what it has counted with it. No cache was
    /// found wrong, and no API server: none is, whatever else happened.
    pub(super) fn check_alarms(&self, metrics: &Metrics) {
        for family in metrics.registry.gather() {
            let is_checks = family.name() == "weir_cache_checks_total";
            let is_events = family.name() == "weir_notable_events_total";
            for metric in family.get_metric().iter().filter(|_| is_checks || is_events) {
                let has = |name: &str, value: &str| {
                    metric
                        .get_label()
                        .iter()
                        .any(|label| label.name() == name && label.value() == value)
                };
                let count = metric.get_counter().get_value();
                if is_checks && !has("check", "count") && has("outcome", "equal") {
                    (0..count as u64).for_each(|_| self.checker.checked("VC"));
                }
                let is_alarm = has("kind", "quarantine")
                    || (!has("check", "count")
                        && (has("outcome", "different") || has("outcome", "upstream")));
                if is_alarm && count > 0.0 {
                    self.checker.violated("VC", &format!("{count} false alarms: {metric:?}"));
                }
            }
        }
    }
}

/// The gauges of what Weir holds for clients.
const HELD_FOR_CLIENTS: [&str; 9] = [
    "weir_requests_in_flight",
    "weir_connections",
    "weir_upgraded_connections",
    "weir_watchers",
    "weir_cache_watchers",
    "weir_response_memory_bytes",
    "weir_forward_budget_requests",
    "weir_flowcontrol_seats",
    "weir_flowcontrol_waiting_requests",
];
