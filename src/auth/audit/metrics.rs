//! Metrics of the audit log.

use prometheus::{IntCounter, IntGauge};

use crate::telemetry::metrics::{Labelled, families, saturating_i64};

families! {
    /// Handles of the metrics of the audit log. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct AuditMetrics {
        /// Audit events written.
        pub(super) written: IntCounter = counter("weir_audit_events_total"),
        /// Audit events that were lost, by cause.
        lost: Labelled<LossCause, IntCounter> =
            counters_by("weir_audit_events_lost_total", "cause"),
        /// Failed writes to the audit log.
        pub(super) errors: IntCounter = counter("weir_audit_write_errors_total"),
        /// Requests that waited for space in the audit queue.
        pub(super) waits: IntCounter = counter("weir_audit_waits_total"),
        /// Size of the queued audit events, without the batch that is being written.
        pub(in crate::auth) queue_bytes: IntGauge = gauge("weir_audit_queue_bytes"),
    }
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
    /// Counts `events` lost.
    pub fn lost(&self, cause: LossCause, events: u64) {
        self.lost.get(cause).inc_by(events);
    }

    /// Sets the size of the queue in bytes.
    pub fn queued(&self, bytes: usize) {
        self.queue_bytes.set(saturating_i64(bytes));
    }
}
