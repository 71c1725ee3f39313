//! The metrics of Weir's own overload.

use std::sync::Arc;

use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::flow::overload::{Signals, Stage};
use crate::telemetry::events::Events;
use crate::telemetry::metrics::{
    counter_vec, float_gauge, float_gauge_vec, gauge, gauge_vec, sum_with,
};

/// The metrics of overload. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OverloadMetrics {
    inner: Arc<Inner>,
    events: Events,
}

#[derive(Debug)]
struct Inner {
    stage: IntGaugeVec,
    lateness: Gauge,
    memory_limit: Gauge,
    used: [Gauge; 3],
    refused: IntCounterVec,
    waiting: IntGauge,
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
        let lateness = float_gauge(
            registry,
            "weir_runtime_lag_seconds",
            "How late timers of this process fire: the 90th percentile of the last second.",
        )?;
        let memory_limit = float_gauge(
            registry,
            "weir_memory_limit_bytes",
            "The memory limit of this process's control group, in bytes; +Inf without one.",
        )?;
        memory_limit.set(f64::INFINITY);
        let used = float_gauge_vec(
            registry,
            "weir_overload_used_ratio",
            "The used part of the limits of CPU, memory and file descriptors.",
            &["resource"],
        )?;
        let used = ["cpu", "memory", "descriptors"].map(|name| used.with_label_values(&[name]));
        let inner = Inner {
            stage: gauge_vec(
                registry,
                "weir_overload_stage",
                "The stage of Weir's own overload, 0 to 4: as measured, and as acted upon.",
                &["by"],
            )?,
            lateness,
            memory_limit,
            used,
            refused: counter_vec(
                registry,
                "weir_overload_refused_requests_total",
                "Requests that a stage of Weir's own overload refused, or would have refused.",
                &["kind", "enforced"],
            )?,
            waiting: gauge(
                registry,
                "weir_overload_waiting_responses",
                "Large responses from caches that wait for others to be sent.",
            )?,
        };
        Ok(Self { inner: Arc::new(inner), events: Events::default() })
    }

    /// Notes changes of the stage among these events.
    pub fn with_events(self, events: &Events) -> Self {
        Self { events: events.clone(), ..self }
    }

    /// Returns the figures.
    pub fn figures(&self) -> OverloadFigures {
        let Inner { stage, memory_limit, used: [_, memory, _], refused, .. } = &*self.inner;
        OverloadFigures {
            stage: sum_with(stage, ("by", ACTED_ON)),
            memory_max: Some(memory_limit.get()).filter(|limit| limit.is_finite()),
            memory_ratio: memory.get(),
            refused: sum_with(refused, ("enforced", "true")).unwrap_or(0.0),
        }
    }

    /// Returns the notable events.
    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    pub(super) fn show(&self, measured: Stage, acted_on: Stage, signals: &Signals) {
        let Signals { lateness, cpu, memory, descriptors } = *signals;
        for (by, stage) in [("measured", measured), (ACTED_ON, acted_on)] {
            self.inner.stage.with_label_values(&[by]).set(i64::from(stage as u8));
        }
        self.inner.lateness.set(lateness.as_secs_f64());
        for (gauge, part) in self.inner.used.iter().zip([cpu, memory, descriptors]) {
            gauge.set(part);
        }
    }

    pub(super) fn memory_limit(&self, bytes: Option<u64>) {
        // Exact up to nine petabytes.
        self.inner.memory_limit.set(bytes.map_or(f64::INFINITY, |bytes| bytes as f64));
    }

    pub(super) fn waiting(&self, responses: usize) {
        self.inner.waiting.set(i64::try_from(responses).unwrap_or(i64::MAX));
    }

    pub(super) fn refused(&self, kind: &str, enforced: bool) {
        let enforced = if enforced { "true" } else { "false" };
        self.inner.refused.with_label_values(&[kind, enforced]).inc();
    }
}

/// The label of the stage that is acted upon.
const ACTED_ON: &str = "acted-on";
