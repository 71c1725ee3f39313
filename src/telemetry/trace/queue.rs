//! The spans that wait to be exported: at most [`QUEUE_SPANS_MAX`], and one batch that is being
//! sent.
//!
//! Nobody waits for room. The spans of a request are added together or, if there is no room for
//! all of them, not at all, since half a trace misleads.
//!
//! Lock order: the spans, with no other lock.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::telemetry::trace::otlp::Span;

/// The spans that wait to be exported.
#[derive(Debug, Default)]
pub(super) struct SpanQueue {
    spans: Mutex<Spans>,
    /// Wakes the exporter.
    added: Notify,
}

#[derive(Debug, Default)]
struct Spans {
    waiting: VecDeque<Span>,
    /// The number that the exporter has taken and not settled.
    taken: usize,
}

impl SpanQueue {
    /// Adds spans. Returns false, and drops them, if there is no room for all.
    pub(super) fn push(&self, new: Vec<Span>) -> bool {
        {
            let mut spans = self.spans.lock();
            if spans.waiting.len() + new.len() > QUEUE_SPANS_MAX {
                return false;
            }
            spans.waiting.extend(new);
        }
        self.added.notify_one();
        true
    }

    /// Waits until `count` spans wait. Only one task may wait. Cancel safe.
    pub(super) async fn wait_for(&self, count: usize) {
        while self.spans.lock().waiting.len() < count {
            self.added.notified().await;
        }
    }

    /// Takes the oldest spans, at most `max`. They count as unsettled until [`Self::settle`].
    pub(super) fn take(&self, max: usize) -> Vec<Span> {
        let mut spans = self.spans.lock();
        let count = spans.waiting.len().min(max);
        spans.taken = count;
        spans.waiting.drain(..count).collect()
    }

    /// Notes that the fate of the taken spans is known and counted.
    pub(super) fn settle(&self) {
        self.spans.lock().taken = 0;
    }

    /// Empties the queue. Returns the number of spans in it, and of those not settled.
    pub(super) fn clear(&self) -> usize {
        let mut spans = self.spans.lock();
        let lost = spans.waiting.len() + spans.taken;
        *spans = Spans::default();
        lost
    }
}

/// The limit of the queue, in spans: as in OpenTelemetry's batch processors. A span takes some
/// hundred bytes, and at most 4 KB.
pub(super) const QUEUE_SPANS_MAX: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: usize) -> Vec<Span> {
        vec![Span::default(); count]
    }

    #[test]
    fn the_queue_is_bounded_and_a_request_is_added_whole() {
        let queue = SpanQueue::default();
        assert!(queue.push(spans(QUEUE_SPANS_MAX - 3)));
        assert!(!queue.push(spans(4)));
        assert!(queue.push(spans(3)));
        assert!(!queue.push(spans(1)));
        assert_eq!(queue.take(500).len(), 500);
        assert!(queue.push(spans(500)));
        assert_eq!(queue.clear(), QUEUE_SPANS_MAX + 500, "those that are being sent count");
        assert_eq!(queue.take(1).len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_exporter_is_woken_when_enough_wait() {
        let queue = SpanQueue::default();
        assert!(queue.push(spans(2)));
        queue.wait_for(2).await;
        let more = async {
            tokio::task::yield_now().await;
            assert!(queue.push(spans(1)));
        };
        tokio::join!(queue.wait_for(3), more);
    }
}
