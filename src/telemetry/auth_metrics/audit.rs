//! Metrics of the audit log.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{counter, counter_vec, gauge, saturating_i64};

/// The words for [`LossCause`], in its order.
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
pub enum LossCause {
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
        let lost = counter_vec(
            registry,
            "weir_audit_events_lost_total",
            "Audit events that are not in the log.",
            &["cause"],
        )?;
        Ok(Self {
            written: counter(registry, "weir_audit_events_total", "Audit events written.")?,
            lost: CAUSES.map(|cause| lost.with_label_values(&[cause])),
            errors: counter(
                registry,
                "weir_audit_write_errors_total",
                "Failed attempts to write audit events.",
            )?,
            waits: counter(
                registry,
                "weir_audit_waits_total",
                "Requests that waited for room in the queue of audit events.",
            )?,
            queue_bytes: gauge(
                registry,
                "weir_audit_queue_bytes",
                "Audit events that wait to be written, without those being written.",
            )?,
        })
    }

    /// So many events were written.
    pub fn wrote(&self, events: u64) {
        self.written.inc_by(events);
    }

    /// So many were lost.
    pub fn lost(&self, cause: LossCause, events: u64) {
        let [abandoned, closed, error, full] = &self.lost;
        let counter = match cause {
            LossCause::Abandoned => abandoned,
            LossCause::Closed => closed,
            LossCause::Error => error,
            LossCause::Full => full,
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
        self.queue_bytes.set(saturating_i64(bytes));
    }
}
