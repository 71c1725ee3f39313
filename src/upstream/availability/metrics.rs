//! Metrics of the upstream's absence.

use std::time::Duration;

use prometheus::{Counter, IntCounterVec, IntGauge};

use crate::telemetry::events::Events;
use crate::telemetry::metrics::{GaugeGuard, families};

families! {
    /// The metrics of the upstream's absence. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct AvailabilityMetrics {
        /// Whether the upstream is away: no API server was usable for a second.
        away: IntGauge = gauge("weir_upstream_away"),
        /// Seconds for which the upstream was away.
        away_seconds: Counter = counter("weir_upstream_away_seconds_total"),
        /// Responses while no API server was usable, by their origin: hit is memory, error a 503.
        responses: IntCounterVec =
            counter_vec("weir_upstream_away_responses_total", &["cache_status"]),
        ..default {
            events: Events,
        }
    }
}

impl AvailabilityMetrics {
    /// Notes the begin and the end of an absence among these events.
    pub(crate) fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Returns the notable events.
    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Counts a response while no API server is usable. `cache_status` is a fixed word.
    pub(crate) fn response(&self, cache_status: &'static str) {
        self.responses.with_label_values(&[cache_status]).inc();
    }

    /// Shows the upstream as away until the guard is dropped.
    pub(super) fn away(&self) -> GaugeGuard {
        GaugeGuard::new(self.away.clone())
    }

    /// Adds a time for which the upstream was away.
    pub(super) fn away_for(&self, duration: Duration) {
        self.away_seconds.inc_by(duration.as_secs_f64());
    }
}
