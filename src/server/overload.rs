//! Weir's own overload: the stage, and the refusals of that stage
//! (`docs/decisions/own-overload.md`).
//!
//! A measurement sets the stage, some times a second. A request is judged once its sender is known,
//! since the priority level says what is refused first: that costs a known sender a few
//! microseconds and no request to the API server.
//!
//! Memory and file descriptors that run out are acted upon in every mode of flow control, since
//! the alternative is the end of the process. The signals of the CPU are acted upon in the mode
//! `enforce`, and counted in the others.

mod demand;
mod metrics;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::config::FlowControlMode;
use crate::flow::overload::{Signals, Stage};
use crate::server::http::refusal;
use crate::server::lanes::{Lane, Lanes};
pub(crate) use crate::server::overload::demand::Demand;
pub use crate::server::overload::metrics::{OverloadFigures, OverloadMetrics};
use crate::server::request::rejection::Rejection;
use crate::telemetry::events::EventKind;

/// The present stage of overload.
pub struct Overload {
    /// The number of the stage by all signals.
    measured: AtomicU8,
    /// The number of the stage that is acted upon.
    acted_on: AtomicU8,
    /// Whether the signals of the CPU are acted upon.
    enforces: bool,
    /// Wakes those who wait for the last stage.
    vital_only: Notify,
    lanes: Arc<Lanes>,
    hasher: RandomState,
    metrics: OverloadMetrics,
}

/// The stages after a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// The stage by all signals.
    pub overall: Stage,
    /// The stage by memory and file descriptors alone.
    pub space: Stage,
}

impl Overload {
    /// Begins calm.
    pub fn new(mode: FlowControlMode, metrics: OverloadMetrics) -> Arc<Self> {
        Arc::new(Self {
            measured: AtomicU8::new(Stage::Calm as u8),
            acted_on: AtomicU8::new(Stage::Calm as u8),
            enforces: mode == FlowControlMode::Enforce,
            vital_only: Notify::new(),
            lanes: Lanes::new(slots(Stage::Calm)),
            hasher: RandomState::new(),
            metrics,
        })
    }

    /// Sets the stages after a measurement.
    pub fn set(&self, stages: Stages, signals: &Signals) {
        let acted_on = if self.enforces { stages.overall } else { stages.space };
        self.lanes.tend(slots(acted_on));
        self.metrics.show(stages.overall, acted_on, signals);
        self.metrics.waiting(self.lanes.waiting());
        self.measured.store(stages.overall as u8, Ordering::Relaxed);
        let before = Stage::numbered(self.acted_on.swap(acted_on as u8, Ordering::Relaxed));
        if before < acted_on && acted_on == Stage::VitalOnly {
            self.vital_only.notify_waiters();
        }
        if before < acted_on || (before != acted_on && acted_on == Stage::Calm) {
            self.note_change(before, acted_on, signals);
        }
    }

    /// Notes that the stage rose, or that Weir is calm again.
    fn note_change(&self, before: Stage, stage: Stage, signals: &Signals) {
        let text = format!("The stage of Weir's own overload changed to {stage:?}.");
        let events = self.metrics.events();
        let line = |left_out: Option<u64>| {
            let Signals { lateness, cpu, memory, descriptors } = *signals;
            tracing::warn!(
                ?before,
                ?stage,
                ?lateness,
                cpu,
                memory,
                descriptors,
                left_out,
                "the stage of Weir's own overload changed"
            );
        };
        if stage == Stage::Calm {
            events.notable_end(EventKind::Overload, "", text, line);
        } else {
            events.notable_begin(EventKind::Overload, "", text, line);
        }
    }

    /// Shows the memory limit of this process, if it has one.
    pub fn show_memory_limit(&self, bytes: Option<u64>) {
        self.metrics.memory_limit(bytes);
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage::numbered(self.acted_on.load(Ordering::Relaxed))
    }

    /// Whether work is left out that is not necessary.
    pub(crate) fn is_saving(&self) -> bool {
        self.stage() >= Stage::Saving
    }

    pub(crate) fn is_vital_only(&self) -> bool {
        self.stage() == Stage::VitalOnly
    }

    /// Waits for the next change to the stage in which only vital requests are answered, also if
    /// that comes before the first poll.
    pub(crate) fn until_vital_only(&self) -> Notified<'_> {
        self.vital_only.notified()
    }

    pub(crate) fn lane(&self, flow: u64) -> Lane {
        self.lanes.lane(flow)
    }

    /// Returns a hash that distinguishes flows.
    pub(crate) fn flow(&self, identity: impl Hash) -> u64 {
        self.hasher.hash_one(identity)
    }

    /// Whether requests have to be judged at all.
    pub(crate) fn has_checks(&self) -> bool {
        self.measured.load(Ordering::Relaxed) >= Stage::LargeLists as u8 || self.lanes.waiting() > 0
    }

    /// Refuses a request that the present stage does not admit, or whose sender has more large
    /// answers waiting than can be sent soon.
    pub(crate) fn admit(&self, demand: &Demand<'_>) -> Result<(), Rejection> {
        let stage = self.stage();
        if demand.is_for_many()
            && let Some(expected) = self.lanes.expected(demand.flow)
            && (expected > EXPECTED_MAX || self.lanes.waiting() > WAITING_MAX)
        {
            self.metrics.refused("queue", self.enforces);
            if self.enforces {
                return Err(overloaded(expected.saturating_sub(EXPECTED_MAX).max(RETRY_AFTER)));
            }
        }
        if let Some(kind) = demand.refused_at(stage) {
            self.metrics.refused(kind, true);
            let base = if stage == Stage::VitalOnly { RETRY_AFTER_VITAL_ONLY } else { RETRY_AFTER };
            return Err(overloaded(base));
        }
        let measured = Stage::numbered(self.measured.load(Ordering::Relaxed));
        if let Some(kind) = demand.newly_refused_at(measured) {
            self.metrics.refused(kind, false);
        }
        Ok(())
    }
}

/// Returns the refusal of a request because Weir is overloaded. Clients wait for `least` up to
/// twice as long, so that those that were refused together do not return together.
pub(crate) fn overloaded(least: Duration) -> Rejection {
    let wait = least.mul_f64(1.0 + fastrand::f64());
    Rejection::with_shed(refusal::limited(wait, OVERLOADED.to_owned()), "overload")
}

/// Returns the slots of large answers: two for each processor, so that there is always one that is
/// ready to run, or one. The simulation's only thread needs none.
fn slots(stage: Stage) -> usize {
    if cfg!(feature = "simulation") {
        return usize::MAX;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if stage >= Stage::Saving { processors } else { 2 * processors }
}

/// A large answer that would be sent after this time is refused, like a forwarded request.
const EXPECTED_MAX: Duration = Duration::from_secs(5);
/// The most answers that wait for slots. Each is an open response.
const WAITING_MAX: usize = 10_000;
const OVERLOADED: &str = "weir: overloaded; try again later";
/// A stage lasts for two seconds at least.
const RETRY_AFTER: Duration = Duration::from_secs(2);
const RETRY_AFTER_VITAL_ONLY: Duration = Duration::from_secs(5);

#[cfg(test)]
impl Overload {
    /// Returns one that acts on all signals, with metrics of its own.
    pub(crate) fn calm() -> Arc<Self> {
        let metrics = OverloadMetrics::register(&prometheus::Registry::new()).unwrap();
        Self::new(FlowControlMode::Enforce, metrics)
    }

    /// Returns the number of large answers that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.waiting()
    }
}

#[cfg(test)]
mod tests;
