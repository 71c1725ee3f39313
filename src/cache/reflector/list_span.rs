//! The span of a reflector's list. While spans are exported each list has one, whatever the
//! sampling rate is: there are few, and the links of requests must lead somewhere.

use std::sync::Arc;

use tokio::time::Instant;

use crate::api::trace_context::{SpanId, TraceId};
use crate::cache::cached_resource::CachedResource;
use crate::telemetry::trace::otlp::{KeyValue, Span, SpanKind, Status, StatusCode};
use crate::telemetry::trace::{SpanClock, new_span_id, new_trace_id};

/// A list that lasts. It counts as failed if it is dropped before [`Self::succeed`].
pub(super) struct ListSpan {
    /// `None` while no spans are exported.
    recording: Option<Recording>,
}

struct Recording {
    cached: Arc<CachedResource>,
    cause: &'static str,
    span: (TraceId, SpanId),
    started: Instant,
    has_succeeded: bool,
}

impl ListSpan {
    /// Begins the span of a list of this cache.
    pub(super) fn begin(cached: &Arc<CachedResource>, cause: &'static str) -> Self {
        if !cached.context.metrics.tracer().is_on() {
            return Self { recording: None };
        }
        let span = (new_trace_id(), new_span_id());
        cached.latest_list.begin(span);
        let (cached, started) = (Arc::clone(cached), Instant::now());
        let recording = Recording { cached, cause, span, started, has_succeeded: false };
        Self { recording: Some(recording) }
    }

    /// Notes that the list is complete.
    pub(super) fn succeed(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.has_succeeded = true;
        }
    }
}

impl Drop for ListSpan {
    fn drop(&mut self) {
        let Some(recording) = self.recording.take() else { return };
        recording.cached.latest_list.end();
        recording.cached.context.metrics.tracer().record(vec![recording.to_span()]);
    }
}

impl Recording {
    /// Returns the span, which ends now.
    fn to_span(&self) -> Span {
        let (trace_id, span_id) = self.span;
        let key = &self.cached.key;
        let (clock, now) = (SpanClock::new(self.started), Instant::now());
        let resource = key.gvr.to_string();
        Span {
            trace_id: trace_id.to_bytes(),
            span_id: span_id.to_bytes(),
            name: "reflector list".to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: clock.unix_nanos(self.started),
            end_time_unix_nano: clock.unix_nanos(now),
            attributes: vec![
                KeyValue::new("weir.resource", resource),
                KeyValue::new("weir.representation", key.representation.as_str()),
                KeyValue::new("weir.list.cause", self.cause),
            ],
            status: (!self.has_succeeded).then(|| Status { code: StatusCode::Error.into() }),
            ..Span::default()
        }
    }
}
