//! The requests over HTTP/1.1 that wait for the head of a response, and when they were sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The requests that wait. Cheap to clone: clones share them. Bounded by the number of connections.
#[derive(Clone, Default)]
pub(super) struct Unanswered(Arc<Mutex<Sent>>);

/// The times at which the requests were sent, the oldest first.
#[derive(Default)]
struct Sent {
    times: BTreeMap<u64, Instant>,
    next: u64,
}

/// A request that waits. Dropping it ends the wait.
pub(super) struct Waiting {
    number: u64,
    sent: Instant,
    unanswered: Unanswered,
}

impl Unanswered {
    /// Adds a request that is sent now.
    pub(super) fn add(&self, now: Instant) -> Waiting {
        let mut sent = self.0.lock();
        let number = sent.next;
        sent.next += 1;
        sent.times.insert(number, now);
        Waiting { number, sent: now, unanswered: self.clone() }
    }

    /// Returns when the oldest request was sent, if it is late.
    pub(super) fn late_since(&self) -> Option<Instant> {
        let sent = self.0.lock();
        let (_, oldest) = sent.times.first_key_value()?;
        (oldest.elapsed() >= LATE_AFTER).then_some(*oldest)
    }
}

impl Waiting {
    /// Returns when the request was sent.
    pub(super) fn sent(&self) -> Instant {
        self.sent
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.unanswered.0.lock().times.remove(&self.number);
    }
}

/// Most answers take less. A request that takes longer costs others a new connection at most.
const LATE_AFTER: Duration = Duration::from_millis(500);
