//! Send time-outs of response bodies whose client does not read, on a connection that is alive.
//!
//! HTTP/2 has a flow-control window for each stream, and hyper polls a body no further while the
//! window is shut. A stalled body keeps its resources: list data, an upstream connection slot, a
//! permit of the forward budget. So each piece of a response must be sent within a time-out. A body
//! that stalls longer is dropped here, and hyper resets its stream once the client opens the window
//! again. The connection stays open, since a proxy may send the requests of many clients over it
//! (`docs/decisions/client-connections.md`).
//!
//! This bounds what Weir itself holds. hyper holds one more piece of each stream, which [`Body`]
//! keeps small. HTTP/1.1 has no such windows: there a socket that accepts nothing ends its
//! connection ([`crate::server::connection::permitted_io`]).
//!
//! While Weir is overloaded to the last stage, a body has a tenth of the time. The client of a
//! watch resumes at the last event that it has read.
//!
//! Locks: the table, then a body. Neither is held while a body is dropped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::server::http::body::Body;
use crate::server::metrics::ServerMetrics;
use crate::server::overload::Overload;

/// The response bodies of one connection that are being sent, with their deadlines. Cheap to clone:
/// clones share all.
#[derive(Clone, Debug)]
pub(crate) struct SendTimeouts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    timeout: Duration,
    metrics: ServerMetrics,
}

/// Bounded by the number of streams of a connection.
#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    bodies: HashMap<u64, Arc<Mutex<TrackedBody>>>,
}

/// A body with a deadline for the piece that was handed out last.
#[derive(Debug)]
pub(super) struct TrackedBody {
    /// `None` after a time-out.
    pub(super) body: Option<Body>,
    /// `None` while hyper waits for the next piece.
    pub(super) deadline: Option<Instant>,
}

impl SendTimeouts {
    /// Creates an empty table. `timeout` applies to each piece of a body.
    pub(crate) fn new(timeout: Duration, metrics: ServerMetrics) -> Self {
        Self(Arc::new(Shared { table: Mutex::default(), timeout, metrics }))
    }

    /// Drops the bodies whose deadline has passed. Never returns. While Weir is overloaded to the
    /// last stage, a body has a tenth of the time.
    pub(crate) async fn sweep(&self, overload: &Overload) -> Infallible {
        loop {
            // Before the look at the stage, so that no change is lost in between.
            let becomes_short = overload.until_vital_only();
            let is_short = overload.is_vital_only();
            let timeout = if is_short { self.0.timeout / SHORT_PART } else { self.0.timeout };
            tokio::select! {
                () = tokio::time::sleep(timeout / 2) => {}
                () = becomes_short, if !is_short => continue,
            }
            let now = Instant::now() + (self.0.timeout - timeout);
            let tracked: Vec<_> = self.0.table.lock().bodies.values().map(Arc::clone).collect();
            for tracked in tracked {
                let stalled = tracked.lock().take_stalled(now);
                if let Some(body) = stalled {
                    self.0.metrics.response_stalled();
                    tracing::debug!(?body, "dropped a response that its client did not read");
                }
            }
        }
    }

    /// Tracks `body`, and returns the number under which it can be removed.
    pub(super) fn insert(&self, body: Body, deadline: Instant) -> (u64, Arc<Mutex<TrackedBody>>) {
        let tracked = TrackedBody { body: Some(body), deadline: Some(deadline) };
        let tracked = Arc::new(Mutex::new(tracked));
        let mut table = self.0.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.bodies.insert(id, Arc::clone(&tracked));
        (id, tracked)
    }

    pub(super) fn remove(&self, id: u64) {
        let removed = self.0.table.lock().bodies.remove(&id);
        drop(removed);
    }

    /// Returns when a piece of `piece_bytes` must be sent, if hyper takes it now. Large pieces get
    /// proportionally more time, so that a slow but steady client is not disconnected.
    pub(super) fn deadline(&self, piece_bytes: usize) -> Instant {
        Instant::now() + self.0.timeout + Duration::from_secs((piece_bytes / RATE_BYTES_MIN) as u64)
    }

    #[cfg(test)]
    pub(super) fn tracked(&self) -> usize {
        self.0.table.lock().bodies.len()
    }
}

impl TrackedBody {
    /// Takes the body out if its deadline has passed.
    fn take_stalled(&mut self, now: Instant) -> Option<Body> {
        self.body.take_if(|_| self.deadline.is_some_and(|deadline| deadline < now))
    }
}

/// The part of the time-out that is left in the last stage of overload.
const SHORT_PART: u32 = 10;
/// The least that a client must read of a piece in each second after the time-out: the rate of a
/// modem. A client that opens its window in large steps seems to read nothing during a step.
const RATE_BYTES_MIN: usize = 4 << 10;
