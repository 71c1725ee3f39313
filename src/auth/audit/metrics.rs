//! Metrics of the audit log.

use prometheus::{IntCounter, IntGauge, Registry};

use crate::telemetry::metrics::{Labelled, counter, counter_vec, gauge, saturating_i64};

/// Handles of the metrics of the audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    written: IntCounter,
    lost: Labelled<LossCause, IntCounter>,
    errors: IntCounter,
    waits: IntCounter,
    queue_bytes: IntGauge,
}

crate::api::labels! {
    /// Why an event was lost.
    pub enum LossCause {
        /// The client disconnected while its request waited for space in the queue. No part of the
        /// response was sent.
        Abandoned = "abandoned",
        /// The event came after the log was closed.
        Closed = "closed",
        /// The event could not be written.
        Error = "error",
        /// The queue was full, and the log is configured to drop events.
        Full = "full",
    }
}

impl AuditMetrics {
    /// Registers the metrics. Fails if called twice with the same registry.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lost = counter_vec(
            registry,
            "weir_audit_events_lost_total",
            "Audit events that were lost, by cause.",
            &["cause"],
        )?;
        Ok(Self {
            written: counter(registry, "weir_audit_events_total", "Audit events written.")?,
            lost: Labelled::new(&lost),
            errors: counter(
                registry,
                "weir_audit_write_errors_total",
                "Failed writes to the audit log.",
            )?,
            waits: counter(
                registry,
                "weir_audit_waits_total",
                "Requests that waited for space in the audit queue.",
            )?,
            queue_bytes: gauge(
                registry,
                "weir_audit_queue_bytes",
                "Size of the queued audit events, without the batch that is being written.",
            )?,
        })
    }

    /// Counts `events` written.
    pub fn wrote(&self, events: u64) {
        self.written.inc_by(events);
    }

    /// Counts `events` lost.
    pub fn lost(&self, cause: LossCause, events: u64) {
        self.lost.get(cause).inc_by(events);
    }

    /// Counts a failed write.
    pub fn failed(&self) {
        self.errors.inc();
    }

    /// Counts a request that has to wait.
    pub fn waited(&self) {
        self.waits.inc();
    }

    /// Returns the size of the queue in bytes.
    pub(in crate::auth) fn queue_bytes(&self) -> i64 {
        self.queue_bytes.get()
    }

    /// Sets the size of the queue in bytes.
    pub fn queued(&self, bytes: usize) {
        self.queue_bytes.set(saturating_i64(bytes));
    }
}
