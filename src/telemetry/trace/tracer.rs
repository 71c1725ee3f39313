//! Samples requests, and takes their finished spans; the clock and the ids of spans.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use tokio::time::Instant;

use crate::api::trace_context::{SpanId, TraceId};
use crate::telemetry::trace::metrics::TracingMetrics;
use crate::telemetry::trace::otlp::Span;
use crate::telemetry::trace::queue::SpanQueue;

/// Samples, and takes finished spans. The default is off. Cheap to clone: all clones share the
/// queue.
#[derive(Clone, Debug, Default)]
pub struct Tracer(pub(super) Option<Arc<Shared>>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) queue: SpanQueue,
    /// The requests of a million that are sampled, among those without a parent that counts.
    per_million: AtomicU32,
    pub(super) metrics: TracingMetrics,
}

/// The clocks of a span: it is measured by one that never jumps, and shown by the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanClock {
    started: Instant,
    started_at: SystemTime,
}

impl Tracer {
    /// Returns a tracer that is on, with an empty queue.
    pub(super) fn new(per_million: u32, metrics: TracingMetrics) -> (Self, Arc<Shared>) {
        let per_million = AtomicU32::new(per_million);
        let shared = Arc::new(Shared { queue: SpanQueue::default(), per_million, metrics });
        (Self(Some(Arc::clone(&shared))), shared)
    }

    /// Whether spans are exported.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sets the sampling rate.
    pub fn set_sampling_rate(&self, per_million: u32) {
        if let Some(shared) = &self.0 {
            shared.per_million.store(per_million, Ordering::Relaxed);
        }
    }

    /// Decides by the sampling rate whether a new trace is sampled.
    pub(crate) fn samples(&self) -> bool {
        let Some(shared) = &self.0 else { return false };
        let per_million = shared.per_million.load(Ordering::Relaxed);
        per_million > 0 && fastrand::u32(..1_000_000) < per_million
    }

    /// Takes the finished spans of one request or task. Never waits.
    pub(crate) fn record(&self, spans: Vec<Span>) {
        let Some(shared) = &self.0 else { return };
        let count = spans.len();
        if !shared.queue.push(spans) {
            shared.metrics.dropped(count);
        }
    }

    /// Returns a tracer whose spans stay in its queue.
    #[cfg(test)]
    pub(crate) fn unexported(per_million: u32) -> Self {
        let metrics = TracingMetrics::register(&prometheus::Registry::new()).unwrap();
        Self::new(per_million, metrics).0
    }

    /// Takes the spans out of the queue of [`Self::unexported`].
    #[cfg(test)]
    pub(crate) fn take(&self) -> Vec<Span> {
        self.0.as_ref().map(|shared| shared.queue.take(usize::MAX)).unwrap_or_default()
    }
}

impl SpanClock {
    /// Returns the clock of a span that started at `started`, a moment ago.
    pub(crate) fn new(started: Instant) -> Self {
        let ago = started.elapsed();
        Self {
            started,
            started_at: SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }

    /// Returns a moment that is not before the start, in nanoseconds since 1970.
    pub(crate) fn unix_nanos(&self, moment: Instant) -> u64 {
        let at = self.started_at + moment.saturating_duration_since(self.started);
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns the id of a new trace. It need not be secret, only unlike others.
pub(crate) fn new_trace_id() -> TraceId {
    TraceId(NonZero::new(fastrand::u128(1..)).unwrap_or(NonZero::<u128>::MIN))
}

/// Returns the id of a new span.
pub(crate) fn new_span_id() -> SpanId {
    SpanId(NonZero::new(fastrand::u64(1..)).unwrap_or(NonZero::<u64>::MIN))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_sampling_rate_is_of_a_million() {
        let tracer = Tracer::unexported(0);
        let sampled = |tracer: &Tracer| (0..10_000).filter(|_| tracer.samples()).count();
        assert_eq!(sampled(&tracer), 0);
        tracer.set_sampling_rate(1_000_000);
        assert_eq!(sampled(&tracer), 10_000);
        tracer.set_sampling_rate(500_000);
        assert!((4_000..6_000).contains(&sampled(&tracer)));
        assert!(!Tracer::default().samples());
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_a_span_does_not_jump() {
        let started = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let clock = SpanClock::new(started);
        let later = Instant::now() + Duration::from_millis(500);
        assert_eq!(clock.unix_nanos(later) - clock.unix_nanos(started), 1_500_000_000);
        assert_eq!(clock.unix_nanos(started - Duration::from_secs(9)), clock.unix_nanos(started));
    }
}
