//! Metrics of the audit log.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The words for [`Loss`], in its order.
const CAUSES: [&str; 4] = ["abandoned", "closed", "error", "full"];

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    written: IntCounter,
    lost: [IntCounter; 4],
    errors: IntCounter,
    waits: IntCounter,
    queue_bytes: IntGauge,
}

/// Why an event is not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// `abandoned`: its client went away while it waited for room; nothing of the answer was sent.
    Abandoned,
    /// `closed`: it came after the log was closed.
    Closed,
    /// `error`: it could not be written.
    Error,
    /// `full`: there was no room, and requests do not wait.
    Full,
}

impl AuditMetrics {
    /// Registers them once.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lost = IntCounterVec::new(
            Opts::new("weir_audit_events_lost_total", "Audit events that are not in the log."),
            &["cause"],
        )?;
        let metrics = Self {
            written: IntCounter::new("weir_audit_events_total", "Audit events written.")?,
            lost: CAUSES.map(|cause| lost.with_label_values(&[cause])),
            errors: IntCounter::new(
                "weir_audit_write_errors_total",
                "Failed attempts to write audit events.",
            )?,
            waits: IntCounter::new(
                "weir_audit_waits_total",
                "Requests that waited for room in the queue of audit events.",
            )?,
            queue_bytes: IntGauge::new(
                "weir_audit_queue_bytes",
                "Audit events that wait to be written, without those being written.",
            )?,
        };
        registry.register(Box::new(metrics.written.clone()))?;
        registry.register(Box::new(lost))?;
        registry.register(Box::new(metrics.errors.clone()))?;
        registry.register(Box::new(metrics.waits.clone()))?;
        registry.register(Box::new(metrics.queue_bytes.clone()))?;
        Ok(metrics)
    }

    /// So many events were written.
    pub fn wrote(&self, events: u64) {
        self.written.inc_by(events);
    }

    /// So many were lost.
    pub fn lost(&self, cause: Loss, events: u64) {
        let [abandoned, closed, error, full] = &self.lost;
        let counter = match cause {
            Loss::Abandoned => abandoned,
            Loss::Closed => closed,
            Loss::Error => error,
            Loss::Full => full,
        };
        counter.inc_by(events);
    }

    /// An attempt to write failed.
    pub fn failed(&self) {
        self.errors.inc();
    }

    /// A request has to wait for room.
    pub fn waited(&self) {
        self.waits.inc();
    }

    /// So many bytes wait.
    pub fn queued(&self, bytes: usize) {
        self.queue_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
