//! The metrics of Weir's own overload.

use std::sync::Arc;

use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::flow::overload::{Signals, Stage};
use crate::telemetry::events::Events;
use crate::telemetry::metrics::{families, sum_with};

/// The metrics of overload. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OverloadMetrics {
    families: Arc<OverloadFamilies>,
    /// Of [`USED`].
    used: [Gauge; 3],
    events: Events,
}

families! {
    #[derive(Debug)]
    struct OverloadFamilies {
        /// The stage of Weir's own overload, 0 to 4: as measured, and as acted upon.
        stage: IntGaugeVec = gauge_vec("weir_overload_stage", &["by"]),
        /// How late timers of this process fire: the 90th percentile of the last second.
        lateness: Gauge = gauge("weir_runtime_lag_seconds"),
        /// The memory limit of this process's control group, in bytes; +Inf without one.
        memory_limit: Gauge = gauge("weir_memory_limit_bytes"),
        /// The used part of the limits of CPU, memory and file descriptors.
        used: GaugeVec = gauge_vec("weir_overload_used_ratio", &["resource"]),
        /// Requests that a stage of Weir's own overload refused, or would have refused.
        refused: IntCounterVec = counter_vec(
            "weir_overload_refused_requests_total",
            &["kind", "enforced"],
        ),
        /// Large responses from caches that wait for others to be sent.
        waiting: IntGauge = gauge("weir_overload_waiting_responses"),
    }
}

/// The figures of Weir's own overload.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverloadFigures {
    /// The stage that is acted upon; `None` before it is measured.
    pub stage: Option<f64>,
    /// The memory limit of this process in bytes.
    pub memory_max: Option<f64>,
    /// The used part of it.
    pub memory_ratio: f64,
    /// Requests that were refused.
    pub refused: f64,
}

impl OverloadMetrics {
    /// Registers the metrics. May be called once per registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let families = OverloadFamilies::register(registry)?;
        families.memory_limit.set(f64::INFINITY);
        let used = USED.map(|resource| families.used.with_label_values(&[resource]));
        let events = Events::default();
        Ok(Self { families: Arc::new(families), used, events })
    }

    /// Notes changes of the stage among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Returns the figures.
    pub fn figures(&self) -> OverloadFigures {
        let OverloadFamilies { stage, memory_limit, refused, .. } = &*self.families;
        let [_, memory, _] = &self.used;
        OverloadFigures {
            stage: sum_with(stage, ("by", ACTED_ON)),
            memory_max: Some(memory_limit.get()).filter(|limit| limit.is_finite()),
            memory_ratio: memory.get(),
            refused: sum_with(refused, ("enforced", "true")).unwrap_or(0.0),
        }
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    pub(super) fn show(&self, measured: Stage, acted_on: Stage, signals: &Signals) {
        let Signals { lateness, cpu, memory, descriptors } = *signals;
        for (by, stage) in [("measured", measured), (ACTED_ON, acted_on)] {
            self.families.stage.with_label_values(&[by]).set(i64::from(stage as u8));
        }
        self.families.lateness.set(lateness.as_secs_f64());
        for (gauge, part) in self.used.iter().zip([cpu, memory, descriptors]) {
            gauge.set(part);
        }
    }

    pub(super) fn memory_limit(&self, bytes: Option<u64>) {
        // Exact up to nine petabytes.
        self.families.memory_limit.set(bytes.map_or(f64::INFINITY, |bytes| bytes as f64));
    }

    pub(super) fn waiting(&self, responses: usize) {
        self.families.waiting.set(i64::try_from(responses).unwrap_or(i64::MAX));
    }

    pub(super) fn refused(&self, kind: &str, enforced: bool) {
        let enforced = if enforced { "true" } else { "false" };
        self.families.refused.with_label_values(&[kind, enforced]).inc();
    }
}

/// The resources of which a part is used.
const USED: [&str; 3] = ["cpu", "memory", "descriptors"];
const ACTED_ON: &str = "acted-on";
