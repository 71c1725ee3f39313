//! HTTP/2 connections. Their streams are counted here, so that no request queues behind a stream
//! limit inside hyper.
//!
//! A task opens connections, one at a time in a group. The requests that wait share its result, and
//! a request that is cancelled does not waste it. A connection is used when the peer's SETTINGS
//! have arrived, which contain its stream limit.
//!
//! The streams are bounded, with those of draining connections. A connection drains if the peer
//! sent a GOAWAY or Weir's credentials changed: it accepts no new stream, and a client that reads
//! slowly may keep it open for long. Such connections do not use up the places of new ones
//! ([`Http2Limits::connections_max`]). There are at most [`Http2Limits::open_max`] connections; at
//! that number, the one that has drained longest is closed for each new one.
//!
//! A connection on which Weir reset many streams lately is *worn*: peers count the exchanges that
//! still run for streams that were reset, and close a connection with too many. Other connections
//! are preferred to it, and another one is opened if allowed, but it stays in use: cancelled
//! requests never take a place from the pool (`docs/decisions/connection-pools.md`).
//!
//! A connection that does not answer pings gets no new stream, and another one is opened in its
//! place ([`liveness`]).

mod connection;
mod group_streams;
mod handshake;
mod live_io;
mod liveness;
mod ping_timer;
mod state;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use self::connection::Connection;
pub(super) use self::connection::Lease;
use self::group_streams::GroupStreams;
use self::handshake::{handshake, not_http2};
use self::liveness::Liveness;
use self::state::{Admission, State};
use super::dialer::Dialer;
use super::http1;
use super::limits::{ACQUIRE_TIMEOUT, Http2Limits};
use crate::tasks::single_flight::{RunLost, SharedOutcome, SingleFlight};
use crate::upstream::connect::{CONNECT_TIMEOUT, Io, Offer};
use crate::upstream::error::UpstreamError;

/// The HTTP/2 connections of a group.
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    limits: Http2Limits,
    http1: Arc<http1::Connections>,
    state: Mutex<State>,
    streams: Arc<GroupStreams>,
    /// The dial in flight. Its lock is taken while that of `state` is held.
    dial: SingleFlight<(), DialResult>,
    this: Weak<Self>,
}

/// The result of opening a connection.
type DialResult = Result<Protocol, UpstreamError>;

#[derive(Clone, Copy)]
enum Protocol {
    Http2,
    Http1,
}

/// The result of [`Connections::acquire`].
pub(super) enum Acquired {
    /// A stream.
    Stream(Lease),
    /// The upstream chose HTTP/1.1; the connection was added to the HTTP/1.1 connections.
    Http1,
}

/// The next step of a request for a stream.
enum NextStep {
    Use(Lease),
    AwaitDial(SharedOutcome<DialResult>),
    AwaitStream,
    /// Wait for a stream of the one connection that the client's reads use.
    AwaitPinned,
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
            streams: Arc::default(),
            dial: SingleFlight::default(),
            this: this.clone(),
        })
    }

    /// Returns a stream. Opens a connection if none has a free stream, or waits up to
    /// [`ACQUIRE_TIMEOUT`] if no more connections or streams are allowed. Requests with the same
    /// `pin` use the same connection while it accepts requests, and wait for it up to
    /// [`PINNED_WAIT_MAX`].
    pub(super) async fn acquire(&self, pin: Option<u64>) -> Result<Acquired, UpstreamError> {
        let started = Instant::now();
        let deadline = started + ACQUIRE_TIMEOUT;
        loop {
            // Registered before the state is read, so that no notification is missed.
            let freed = self.streams.freed.notified();
            match self.next_step(pin, started) {
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
                // Not by a notification, which would be lost for a request that can use any
                // connection.
                NextStep::AwaitPinned => tokio::time::sleep(PINNED_POLL_INTERVAL).await,
            }
        }
    }

    /// Starts HTTP/2 on an open connection and adds it. `opened_in` is the time that opening it
    /// took.
    pub(super) async fn adopt(
        &self,
        io: Io,
        tls_generation: u64,
        opened_in: Duration,
    ) -> Result<(), UpstreamError> {
        let address = self.dialer.address();
        let liveness = Arc::new(Liveness::new(opened_in, Arc::clone(&self.streams)));
        let handshake = handshake(io, self.limits, &address, Arc::clone(&liveness));
        let (sender, driver) = tokio::time::timeout(CONNECT_TIMEOUT, handshake)
            .await
            .map_err(|_| not_http2(&self.dialer.address(), "no SETTINGS"))??;
        let Some(connections) = self.this.upgrade() else { return Ok(()) };
        let peer_streams_max = Arc::new(AtomicUsize::new(driver.peer_streams_max()));
        let connection = Connection::new(
            sender,
            peer_streams_max.clone(),
            tls_generation,
            Arc::clone(&liveness),
            self.limits.awaits_bodies,
        );
        let connection = Arc::new(connection);
        // Remove the connection even if its driver panics: otherwise its streams would stay
        // occupied for ever.
        let [open, accepting] = [Phase::Open, Phase::Accepting].map(|phase| {
            let (connections, connection) = (Arc::clone(&connections), Arc::downgrade(&connection));
            EndPhaseOnDrop { connections, connection, phase }
        });
        let closing = connection.closing();
        self.state.lock().add(connection);
        tokio::spawn(async move {
            let open = open;
            closing.run_until_cancelled(driver.run(&peer_streams_max, accepting)).await;
            if liveness.is_dead() {
                open.connections.dialer.metrics.retired("dead");
                tracing::warn!(address, "a connection to the API server was dead, and is closed");
            }
        });
        self.streams.freed.notify_waiters();
        Ok(())
    }

    /// Lets all connections end after their last exchange.
    pub(super) fn retire(&self) {
        self.state.lock().retire();
    }

    fn next_step(&self, pin: Option<u64>, started: Instant) -> NextStep {
        let tls_generation = self.dialer.credentials.current().tls_generation;
        let now = Instant::now();
        let mut state = self.state.lock();
        state.drain_unusable(tls_generation, || self.dialer.metrics.retired("credentials"));
        if self.streams.in_use() >= self.limits.streams_max() {
            return NextStep::AwaitStream;
        }
        let is_free = |connection: &Connection| {
            connection.has_free_stream(self.limits.connection_streams_max)
                && !connection.is_silent()
        };
        let usable = match pin.and_then(|pin| state.pinned(pin)) {
            Some(pinned) if is_free(&pinned) => Some(pinned),
            Some(pinned) if !pinned.is_silent() && now < started + PINNED_WAIT_MAX => {
                return NextStep::AwaitPinned;
            }
            _ => state.least_worn(self.limits.resets_max, now, is_free),
        };
        let Some(connection) = usable else { return self.dial_or_wait(&state) };
        if let Some(pin) = pin {
            state.pin(pin, &connection);
        }
        let is_worn = connection.recent_resets(now) >= self.limits.resets_max;
        let lease = Lease::new(&self.streams, connection);
        if is_worn && state.may_replace_worn(now) {
            // This request does not wait for the new connection.
            drop(self.dial_or_wait(&state));
        }
        NextStep::Use(lease)
    }

    /// Joins the dial in flight, or starts one if another connection is allowed.
    fn dial_or_wait(&self, state: &State) -> NextStep {
        let Some(connections) = self.this.upgrade() else { return NextStep::AwaitStream };
        let admit = || match state.admit_connection(self.limits) {
            Admission::Refused => Err(NextStep::AwaitStream),
            Admission::Admitted => Ok(()),
            Admission::InPlaceOfDraining => {
                self.dialer.metrics.retired("drained-too-long");
                Ok(())
            }
        };
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

    /// Returns the number of recent resets and of streams in use, over the connections that accept
    /// requests.
    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self) -> (usize, usize) {
        self.state.lock().resets_and_in_use(Instant::now())
    }

    async fn dial(&self) -> DialResult {
        let identity = self.dialer.credentials.current();
        let started = Instant::now();
        let io = self.dialer.connect(&identity, Offer::Http2).await?;
        if io.http2 {
            self.adopt(io, identity.tls_generation, started.elapsed()).await?;
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
        self.0.streams.freed.notify_waiters();
    }
}

/// A phase in the life of a connection.
#[derive(Clone, Copy)]
enum Phase {
    /// It accepts requests.
    Accepting,
    /// It carries requests.
    Open,
}

/// Ends a phase of a connection when dropped.
struct EndPhaseOnDrop {
    connections: Arc<Connections>,
    connection: Weak<Connection>,
    phase: Phase,
}

impl Drop for EndPhaseOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.drop_sender();
        }
        let mut state = self.connections.state.lock();
        match self.phase {
            Phase::Accepting => state.drain(&self.connection),
            Phase::Open => state.remove(&self.connection),
        }
        drop(state);
        self.connections.streams.freed.notify_waiters();
    }
}

/// The longest wait of a read for the connection that its client's reads use. A read that waited
/// this long uses another one, since a client must not block others by holding streams.
const PINNED_WAIT_MAX: Duration = Duration::from_secs(1);
const PINNED_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The error if the dialing task is gone, because the runtime is stopping.
fn stopping() -> UpstreamError {
    UpstreamError::Connect { address: String::new(), cause: "Weir is stopping".to_owned() }
}
