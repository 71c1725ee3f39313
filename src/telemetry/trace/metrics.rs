//! The metrics of the export of spans.

use prometheus::IntCounter;

use crate::telemetry::metrics::{Labelled, families};

families! {
    /// The metrics of the export of spans. Cheap to clone: all clones share the metrics.
    #[derive(Clone, Debug)]
    pub struct TracingMetrics {
        /// Spans that the collector has accepted.
        exported: IntCounter = counter("weir_tracing_spans_exported_total"),
        /// Spans that found the queue full, because the collector is slower than requests are
        /// sampled.
        dropped: IntCounter = counter("weir_tracing_spans_dropped_total"),
        /// Spans that the collector does not have although they were sent or waited, by cause:
        /// rejected (partial success), refused, unavailable (at each attempt) or stopped (Weir
        /// ended before).
        failed: Labelled<FailureCause, IntCounter> =
            counters_by("weir_tracing_spans_failed_total", "cause"),
    }
}

crate::api::labels! {
    /// Why spans were sent, or taken to be sent, and the collector does not have them.
    pub(super) enum FailureCause {
        /// The collector took only others of the same request (partial success).
        Rejected = "rejected",
        /// The collector refused the request, and no repetition would help.
        Refused = "refused",
        /// The collector was away or overloaded at each attempt.
        Unavailable = "unavailable",
        /// Weir stopped before.
        Stopped = "stopped",
    }
}

impl TracingMetrics {
    pub(super) fn exported(&self, spans: usize) {
        self.exported.inc_by(spans as u64);
    }

    pub(super) fn dropped(&self, spans: usize) {
        self.dropped.inc_by(spans as u64);
    }

    pub(super) fn failed(&self, cause: FailureCause, spans: usize) {
        self.failed.get(cause).inc_by(spans as u64);
    }

    #[cfg(test)]
    pub(super) fn figures(&self) -> (u64, u64, u64) {
        let failed = FailureCause::ALL.map(|cause| self.failed.get(cause).get());
        (self.exported.get(), self.dropped.get(), failed.iter().sum())
    }
}
