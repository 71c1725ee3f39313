//! The order in which connections and their watches end when Weir drains.
//!
//! A connection without a watch drains at once: it sends GOAWAY and finishes its requests. The
//! others start to drain one after another, spread evenly by their watches over a part of the
//! deadline, so that their clients do not reach the next Weir all at the same moment. All watches
//! of a connection end together with it, because its client opens them again on one new connection.
//!
//! First go the connections whose watches resume with the least work. A watch that ends with a
//! bookmark resumes from there. One without resumes from its last event, which may be so old that
//! its client lists again; so connections with such watches go last, when the next Weir has filled
//! its caches for the others. See `docs/decisions/drain.md`.
//!
//! Lock: that of the map of connections, for an insertion, a removal or a copy. No connection is
//! dropped while it is held, since that takes the lock too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::server::open_watches::CountedWatch;

/// The open connections of a server, which a drain ends. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(Arc<Mutex<Connections>>);

#[derive(Debug, Default)]
struct Connections {
    next_id: u64,
    open: HashMap<u64, Weak<ConnectionState>>,
    /// Whether the drain has begun. Connections that come later drain at once.
    begun: bool,
}

/// A connection's part in a drain. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionDrain(Arc<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    id: u64,
    drain: Drain,
    /// Cancelled when the connection starts to drain. Each connection has a token of its own, so
    /// that its watches contend with those of no other connection.
    started: CancellationToken,
    watches: AtomicUsize,
    /// The number of those that cannot end with a bookmark.
    unmarked: AtomicUsize,
}

/// A watch's part in the drain of its connection. The watch counts until this is dropped.
#[derive(Debug)]
pub(crate) struct WatchDrain {
    connection: ConnectionDrain,
    marked: bool,
    /// Counts the watch for its client.
    counted: Option<Arc<CountedWatch>>,
}

impl Drain {
    /// Adds a connection, until the last clone of what is returned is dropped.
    pub(crate) fn connect(&self) -> ConnectionDrain {
        let mut connections = self.0.lock();
        let id = connections.next_id;
        connections.next_id += 1;
        let state = Arc::new(ConnectionState {
            id,
            drain: self.clone(),
            started: CancellationToken::new(),
            watches: AtomicUsize::new(0),
            unmarked: AtomicUsize::new(0),
        });
        connections.open.insert(id, Arc::downgrade(&state));
        let begun = connections.begun;
        drop(connections);
        if begun {
            state.started.cancel();
        }
        ConnectionDrain(state)
    }

    /// Starts to drain all connections: those without a watch and the first of the others at once,
    /// the rest spread over `spread`. Returns when the last one has started.
    pub(crate) async fn run(&self, spread: Duration) {
        let queue = self.begin();
        let total: usize = queue.iter().map(|departure| departure.watches).sum();
        tracing::info!(connections = queue.len(), watches = total, ?spread, "draining");
        let begun = Instant::now();
        let mut before: usize = 0;
        for Departure { connection, watches } in queue {
            tokio::time::sleep_until(begun + share(spread, before, total)).await;
            before += watches;
            if let Some(connection) = connection.upgrade() {
                connection.started.cancel();
            }
        }
    }

    /// Starts to drain the connections without a watch. Returns the others in the order in which
    /// they follow.
    fn begin(&self) -> Vec<Departure> {
        let open: Vec<Arc<ConnectionState>> = {
            let mut connections = self.0.lock();
            connections.begun = true;
            connections.open.values().filter_map(Weak::upgrade).collect()
        };
        let mut queue = Vec::new();
        for connection in open {
            let watches = connection.watches.load(Ordering::Relaxed);
            if watches == 0 {
                connection.started.cancel();
            } else {
                let unmarked = connection.unmarked.load(Ordering::Relaxed);
                let connection = Arc::downgrade(&connection);
                queue.push(((unmarked, watches), Departure { connection, watches }));
            }
        }
        queue.sort_by_key(|(work, _)| *work);
        queue.into_iter().map(|(_, departure)| departure).collect()
    }
}

impl ConnectionDrain {
    /// Returns the token that is cancelled when the connection starts to drain.
    pub(crate) fn started(&self) -> &CancellationToken {
        &self.0.started
    }

    /// Counts a watch of this connection. `marked` means that it can end with a bookmark.
    pub(crate) fn watch(&self, marked: bool) -> WatchDrain {
        self.0.watches.fetch_add(1, Ordering::Relaxed);
        if !marked {
            self.0.unmarked.fetch_add(1, Ordering::Relaxed);
        }
        WatchDrain { connection: self.clone(), marked, counted: None }
    }
}

impl WatchDrain {
    pub(crate) fn counted_by(mut self, watch: Option<Arc<CountedWatch>>) -> Self {
        self.counted = watch;
        self
    }

    /// Returns the token that is cancelled when the watch must end.
    pub(crate) fn started(&self) -> &CancellationToken {
        self.connection.started()
    }
}

impl Drop for WatchDrain {
    fn drop(&mut self) {
        let state = &self.connection.0;
        state.watches.fetch_sub(1, Ordering::Relaxed);
        if !self.marked {
            state.unmarked.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.drain.0.lock().open.remove(&self.id);
    }
}

struct Departure {
    connection: Weak<ConnectionState>,
    /// The number of its watches when the drain began.
    watches: usize,
}

/// Returns the part of `spread` after which the watch number `before` of `total` goes.
fn share(spread: Duration, before: usize, total: usize) -> Duration {
    let nanos = spread.as_nanos().saturating_mul(before as u128);
    Duration::from_nanos_u128(nanos / (total.max(1) as u128))
}

/// The shortest life of a watch that a drain ends. client-go takes a watch that ended within a
/// second and brought nothing for a failure, and lists again (`docs/semantics.md` §5.7).
pub(crate) const WATCH_AGE_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a connection with watches that end with a bookmark and others.
    fn open(drain: &Drain, marked: usize, unmarked: usize) -> (ConnectionDrain, Vec<WatchDrain>) {
        let connection = drain.connect();
        let marks = std::iter::repeat_n(true, marked).chain(std::iter::repeat_n(false, unmarked));
        let watches = marks.map(|marked| connection.watch(marked)).collect();
        (connection, watches)
    }

    /// Runs a drain and returns the second at which each connection starts to drain.
    async fn starts(drain: &Drain, connections: &[&ConnectionDrain], spread_s: u64) -> Vec<u64> {
        let begun = Instant::now();
        let waits = connections.iter().map(|connection| async move {
            connection.started().cancelled().await;
            begun.elapsed().as_secs()
        });
        let (starts, ()) = tokio::join!(
            futures::future::join_all(waits),
            drain.run(Duration::from_secs(spread_s))
        );
        starts
    }

    #[tokio::test(start_paused = true)]
    async fn connections_with_watches_go_evenly_and_the_others_at_once() {
        let drain = Drain::default();
        let idle: Vec<_> = (0..5).map(|_| drain.connect()).collect();
        let busy: Vec<_> = (0..90).map(|_| open(&drain, 2, 0)).collect();
        let connections: Vec<_> =
            idle.iter().chain(busy.iter().map(|(connection, _)| connection)).collect();
        let mut starts = starts(&drain, &connections, 90).await;
        assert_eq!(starts.drain(..5).collect::<Vec<_>>(), [0; 5]);
        starts.sort_unstable();
        assert_eq!(starts, (0..90).collect::<Vec<_>>(), "one a second");
    }

    #[tokio::test(start_paused = true)]
    async fn what_resumes_with_the_least_work_goes_first() {
        let drain = Drain::default();
        let connections =
            [(0, 2), (6, 0), (1, 0), (0, 1)].map(|(one, other)| open(&drain, one, other));
        let states: Vec<_> = connections.iter().map(|(connection, _)| connection).collect();
        // Ten watches over a hundred seconds.
        assert_eq!(starts(&drain, &states, 100).await, [80, 10, 0, 70]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_client_goes_at_once() {
        let drain = Drain::default();
        let (connection, _watches) = open(&drain, 50, 0);
        assert_eq!(starts(&drain, &[&connection], 100).await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_comes_during_the_drain_goes_at_once() {
        let drain = Drain::default();
        drain.run(Duration::from_secs(9)).await;
        assert!(drain.connect().started().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_closed_is_forgotten() {
        let drain = Drain::default();
        let (connection, watches) = open(&drain, 1, 1);
        drop(watches);
        let state = Arc::clone(&connection.0);
        assert_eq!(state.watches.load(Ordering::Relaxed), 0);
        assert_eq!(state.unmarked.load(Ordering::Relaxed), 0);
        drop((connection, state));
        assert!(drain.0.lock().open.is_empty());
    }
}
