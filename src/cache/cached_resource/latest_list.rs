//! The span of the reflector's latest list, to which the spans of the requests that waited for it
//! link (`docs/decisions/tracing.md`).
//!
//! Lock order: the list, with no other lock.

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::trace_context::{SpanId, TraceId};

/// The span of the latest list; none without tracing.
#[derive(Debug, Default)]
pub(crate) struct LatestList(Mutex<Option<Listing>>);

#[derive(Debug)]
struct Listing {
    span: (TraceId, SpanId),
    /// `None` while it lasts.
    ended: Option<Instant>,
}

impl LatestList {
    /// Notes the beginning of a list.
    pub(crate) fn begin(&self, span: (TraceId, SpanId)) {
        *self.0.lock() = Some(Listing { span, ended: None });
    }

    /// Notes the end of the list.
    pub(crate) fn end(&self) {
        if let Some(listing) = &mut *self.0.lock() {
            listing.ended = Some(Instant::now());
        }
    }

    /// Returns the span, unless the list had ended before `moment`.
    pub(crate) fn span_since(&self, moment: Instant) -> Option<(TraceId, SpanId)> {
        let latest = self.0.lock();
        let listing = latest.as_ref()?;
        listing.ended.is_none_or(|ended| ended >= moment).then_some(listing.span)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::trace::{new_span_id, new_trace_id};

    #[tokio::test(start_paused = true)]
    async fn who_came_after_the_list_did_not_wait_for_it() {
        let latest = LatestList::default();
        let before = Instant::now();
        assert_eq!(latest.span_since(before), None);
        let span = (new_trace_id(), new_span_id());
        latest.begin(span);
        assert_eq!(latest.span_since(before), Some(span));
        tokio::time::advance(Duration::from_secs(1)).await;
        latest.end();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(latest.span_since(before), Some(span));
        assert_eq!(latest.span_since(Instant::now()), None);
    }
}
