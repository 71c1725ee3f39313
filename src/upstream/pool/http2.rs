//! HTTP/2 connections. Their streams are counted here, so that no request queues behind a stream
//! limit inside hyper.
//!
//! A task opens connections, one at a time in a group. The requests that wait share its result, and
//! a request that is cancelled does not waste it. A connection is used when the peer's SETTINGS
//! have arrived, which contain its stream limit.

mod handshake;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::handshake::{Sender, handshake, not_http2};
use super::dialer::Dialer;
use super::http1;
use super::limits::{ACQUIRE_TIMEOUT, Http2Limits};
use crate::tasks::single_flight::{RunLost, SharedOutcome, SingleFlight};
use crate::upstream::connect::{Io, Offer};
use crate::upstream::error::UpstreamError;

/// The HTTP/2 connections of a group.
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    limits: Http2Limits,
    http1: Arc<http1::Connections>,
    state: Mutex<State>,
    /// The dial in flight. Its lock is taken while that of `state` is held.
    dial: SingleFlight<(), DialResult>,
    /// Notified when a stream may have become available.
    freed: Notify,
    this: Weak<Self>,
}

#[derive(Default)]
struct State {
    usable: Vec<Arc<Connection>>,
    /// The number of connections that accept no new streams but still carry some.
    retired: usize,
}

/// The result of opening a connection.
type DialResult = Result<Protocol, UpstreamError>;

#[derive(Clone, Copy)]
enum Protocol {
    Http2,
    Http1,
}

struct Connection {
    sender: Sender,
    in_use: AtomicUsize,
    resets: AtomicUsize,
    peer_streams_max: Arc<AtomicUsize>,
    tls_generation: u64,
}

/// The result of [`Connections::acquire`].
pub(super) enum Acquired {
    /// A stream.
    Stream(Lease),
    /// The upstream chose HTTP/1.1; the connection was added to the HTTP/1.1 connections.
    Http1,
}

/// A stream of a connection. Dropping it counts as a reset.
pub(super) struct Lease {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    complete: bool,
}

/// The next step of a request for a stream.
enum NextStep {
    Use(Lease),
    AwaitDial(SharedOutcome<DialResult>),
    AwaitStream,
}

impl Connections {
    pub(super) fn new(
        dialer: Arc<Dialer>,
        limits: Http2Limits,
        http1: Arc<http1::Connections>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            dialer,
            limits,
            http1,
            state: Mutex::default(),
            dial: SingleFlight::default(),
            freed: Notify::new(),
            this: this.clone(),
        })
    }

    /// Returns a stream. Opens a connection if none has a free stream, or waits up to
    /// [`ACQUIRE_TIMEOUT`] if no more connections are allowed.
    pub(super) async fn acquire(&self) -> Result<Acquired, UpstreamError> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        loop {
            // Registered before the state is read, so that no notification is missed.
            let freed = self.freed.notified();
            match self.next_step() {
                NextStep::Use(lease) => return Ok(Acquired::Stream(lease)),
                // The dial is polled first: its failure must reach all requests that wait for it,
                // instead of making them dial again.
                NextStep::AwaitDial(dial) => tokio::select! {
                    biased;
                    result = dial.wait() => {
                        if let Protocol::Http1 = result.unwrap_or_else(|RunLost| Err(stopping()))? {
                            return Ok(Acquired::Http1);
                        }
                    }
                    // A stream of an older connection is just as good.
                    () = freed => {}
                },
                NextStep::AwaitStream => {
                    if tokio::time::timeout_at(deadline, freed).await.is_err() {
                        return Err(self.dialer.exhausted());
                    }
                }
            }
        }
    }

    /// Starts HTTP/2 on an open connection and adds it.
    pub(super) async fn adopt(&self, io: Io, tls_generation: u64) -> Result<(), UpstreamError> {
        let address = self.dialer.address();
        let handshake = handshake(io, self.limits, &address);
        let (sender, driver) = tokio::time::timeout(self.dialer.connect_timeout, handshake)
            .await
            .map_err(|_| not_http2(&self.dialer.address(), "no SETTINGS"))??;
        let Some(connections) = self.this.upgrade() else { return Ok(()) };
        let peer_streams_max = Arc::new(AtomicUsize::new(driver.peer_streams_max()));
        let connection = Arc::new(Connection {
            sender,
            in_use: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            peer_streams_max: peer_streams_max.clone(),
            tls_generation,
        });
        // Removes the connection even if its driver panics: otherwise its streams would stay
        // occupied for ever.
        let guard = RemoveOnDrop { connections, connection: Arc::downgrade(&connection) };
        self.state.lock().usable.push(connection);
        tokio::spawn(async move {
            driver.run(&peer_streams_max, guard).await;
        });
        self.freed.notify_waiters();
        Ok(())
    }

    fn next_step(&self) -> NextStep {
        let tls_generation = self.dialer.credentials.current().tls_generation;
        let mut state = self.state.lock();
        self.retire(&mut state, tls_generation);
        let Some(connections) = self.this.upgrade() else { return NextStep::AwaitStream };
        let free = state.usable.iter().find(|connection| {
            let peer_max = connection.peer_streams_max.load(Ordering::Relaxed);
            let streams_max = self.limits.connection_streams_max.min(peer_max);
            connection.in_use.load(Ordering::Relaxed) < streams_max
        });
        if let Some(connection) = free {
            // Raised only under the lock, so that two requests cannot take the last stream.
            connection.in_use.fetch_add(1, Ordering::Relaxed);
            let connection = connection.clone();
            return NextStep::Use(Lease { connections, connection, complete: false });
        }
        let open = state.usable.len() + state.retired;
        // Retired connections may stay open as long as their watches, and must not block new ones.
        let is_full = state.usable.len() >= self.limits.connections_max
            || open >= self.limits.connections_max * 2;
        let admit = || if is_full { Err(NextStep::AwaitStream) } else { Ok(()) };
        let (outcome, guard) = match self.dial.try_join(&(), admit) {
            Ok((outcome, run)) => (outcome, run.map(|(guard, ())| guard)),
            Err(step) => return step,
        };
        if let Some(guard) = guard {
            tokio::spawn(async move {
                // Requests that wait for a stream try again after the dial, also if it panics. The
                // run ends first, because it is dropped first.
                let waiting = NotifyOnDrop(connections);
                let guard = guard;
                let result = waiting.0.dial().await;
                guard.complete_then_close(result);
            });
        }
        NextStep::AwaitDial(outcome)
    }

    /// Removes the connections that are closed or must accept no new streams.
    fn retire(&self, state: &mut State, tls_generation: u64) {
        let State { usable, retired, .. } = state;
        usable.retain(|connection| {
            let cause = if connection.tls_generation != tls_generation {
                "credentials"
            } else if connection.resets.load(Ordering::Relaxed) >= self.limits.resets_max {
                "resets"
            } else if connection.sender.is_closed() {
                "closed"
            } else {
                return true;
            };
            if cause != "closed" {
                self.dialer.metrics.retired(cause);
            }
            *retired += 1;
            false
        });
    }

    /// Removes a connection whose driver has ended.
    fn remove(&self, connection: &Weak<Connection>) {
        let mut state = self.state.lock();
        let before = state.usable.len();
        state.usable.retain(|other| Arc::as_ptr(other) != connection.as_ptr());
        if state.usable.len() == before {
            state.retired = state.retired.saturating_sub(1);
        }
        drop(state);
        self.freed.notify_waiters();
    }

    /// Returns the number of resets and of streams in use, over the usable connections.
    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self) -> (usize, usize) {
        let state = self.state.lock();
        state.usable.iter().fold((0, 0), |(resets, in_use), connection| {
            let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
            (resets + load(&connection.resets), in_use + load(&connection.in_use))
        })
    }

    async fn dial(&self) -> DialResult {
        let identity = self.dialer.credentials.current();
        let io = self.dialer.connect(&identity, Offer::Http2).await?;
        if io.http2 {
            self.adopt(io, identity.tls_generation).await?;
            Ok(Protocol::Http2)
        } else {
            self.http1.adopt(io, identity.tls_generation).await;
            Ok(Protocol::Http1)
        }
    }
}

/// Wakes the requests that wait for a stream when it is dropped.
struct NotifyOnDrop(Arc<Connections>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.freed.notify_waiters();
    }
}

/// Removes a connection when dropped.
struct RemoveOnDrop {
    connections: Arc<Connections>,
    connection: Weak<Connection>,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.connections.remove(&self.connection);
    }
}

impl Lease {
    /// Returns the sender of the connection.
    pub(super) fn sender(&self) -> Sender {
        self.connection.sender.clone()
    }

    /// Returns the stream after an exchange that needed no reset.
    pub(super) fn complete(mut self) {
        self.complete = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.complete {
            self.connection.resets.fetch_add(1, Ordering::Relaxed);
        }
        self.connection.in_use.fetch_sub(1, Ordering::Relaxed);
        self.connections.freed.notify_one();
    }
}

/// The error if the dialing task is gone, because the runtime is stopping.
fn stopping() -> UpstreamError {
    UpstreamError::Connect { address: String::new(), cause: "Weir is stopping".to_owned() }
}
