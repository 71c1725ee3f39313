//! HTTP/2 connections: places are counted here, so that nothing ever queues behind a stream limit inside hyper.
//!
//! A connection is made by a task of its own, one at a time in a group: those who wait share its outcome, and one who
//! goes away doesn't waste it. A connection is ready for use when the peer's SETTINGS have told how many streams it takes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use hyper::client::conn::http2::{self, Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{ACQUIRE_TIMEOUT, Dialer, HEADERS_MAX_BYTES, SendError, body, http1};
use crate::streams::{ConnectionTasks, Spawner, Stopped};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::RequestBody;
use crate::upstream::connect::{Io, Offer};
use crate::upstream::error::{UpstreamError, chain};

/// The bounds of a group.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Exchanges at once on one connection, if the peer allows as many.
    places: usize,
    /// Connections at once.
    connections_max: usize,
    /// A connection that has reset so many streams takes no new ones.
    resets_max: usize,
}

impl Limits {
    /// Exchanges at once in all.
    pub(super) const fn streams_max(self) -> usize {
        self.places * self.connections_max
    }
}

/// Ordinary requests. kube-apiserver allows 100 streams; the rest is room for streams that are being reset. 16 connections carry 1,440
/// requests, more than twice what kube-apiserver runs at once.
pub(super) const REQUESTS: Limits = Limits { places: 90, connections_max: 16, resets_max: 200 };
/// Watches and other streams (design, section 8). Every cancelled one is a reset, so more of them are allowed.
pub(super) const STREAMS: Limits = Limits { places: 64, connections_max: 64, resets_max: 1000 };

/// What a peer may send of one body before it is read. Larger ones speed large lists up a little and cost memory when slow clients pile up.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// h2 counts small unread frames against half the connection's window (crates.md, pitfall 2).
const CONNECTION_WINDOW_MIN_BYTES: u32 = 4 * 1024 * 1024;
/// Pings find a dead peer under silent watches: at most 45 s.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What is buffered of a request's body for each stream.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Streams that we reset are remembered so long and so many, so that frames still under way to them are ignored rather than
/// counted as the peer's errors, which would end the connection with `too_many_internal_resets`.
const RESET_MEMORY: Duration = Duration::from_secs(30);
/// Futures of hyper's that a connection may put up before they run: two for a request (its answer, its body) and the connection itself, far fewer than this.
const SPAWN_QUEUE_MAX: usize = 1024;
/// How often a new connection is asked whether SETTINGS came.
const SETTINGS_POLL: Duration = Duration::from_millis(1);
/// A limit on streams that no peer can send, to see when SETTINGS have come.
const SETTINGS_UNKNOWN: usize = usize::MAX - 1;

/// The HTTP/2 connections of a group.
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    limits: Limits,
    http1: Arc<http1::Connections>,
    state: Mutex<State>,
    freed: Notify,
    this: Weak<Self>,
}

#[derive(Default)]
struct State {
    usable: Vec<Arc<Connection>>,
    /// Connections that take nothing new but still carry something.
    retired: usize,
    attempt: Option<watch::Receiver<Option<Attempt>>>,
}

/// The outcome of making a connection.
type Attempt = Result<Protocol, UpstreamError>;

#[derive(Clone, Copy)]
enum Protocol {
    Http2,
    Http1,
}

struct Connection {
    sender: Sender,
    in_use: AtomicUsize,
    resets: AtomicUsize,
    peer_max: Arc<AtomicUsize>,
    tls_generation: u64,
}

/// What asking for a place gives.
pub(super) enum Acquired {
    /// A place.
    Place(Lease),
    /// The upstream spoke HTTP/1.1; the connection has gone to its group.
    Http1,
}

/// A place on a connection. Dropping it counts as a reset.
pub(super) struct Lease {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    complete: bool,
}

enum Next {
    Take(Lease),
    Attempt(watch::Receiver<Option<Attempt>>),
    Wait,
}

impl Connections {
    pub(super) fn new(
        dialer: Arc<Dialer>,
        limits: Limits,
        http1: Arc<http1::Connections>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            dialer,
            limits,
            http1,
            state: Mutex::default(),
            freed: Notify::new(),
            this: this.clone(),
        })
    }

    /// Takes a place, makes a connection if there is none, or waits, bounded, if there may be no more.
    pub(super) async fn acquire(&self) -> Result<Acquired, UpstreamError> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        loop {
            // Registered before looking, so that a place freed in between is not missed.
            let freed = self.freed.notified();
            match self.next() {
                Next::Take(lease) => return Ok(Acquired::Place(lease)),
                // The outcome first: a failure must reach everybody who waited for it, not make them try again.
                Next::Attempt(attempt) => tokio::select! {
                    biased;
                    outcome = outcome(attempt) => {
                        if let Protocol::Http1 = outcome? {
                            return Ok(Acquired::Http1);
                        }
                    }
                    // A place on an old connection is as good as a new connection.
                    () = freed => {}
                },
                Next::Wait => {
                    if tokio::time::timeout_at(deadline, freed).await.is_err() {
                        return Err(self.dialer.exhausted());
                    }
                }
            }
        }
    }

    /// Starts HTTP/2 on a connection that was made elsewhere.
    pub(super) async fn adopt(&self, io: Io, tls_generation: u64) -> Result<(), UpstreamError> {
        let handshake = tokio::time::timeout(self.dialer.connect_timeout, self.handshake(io));
        let (sender, driver, tasks) =
            handshake.await.map_err(|_| not_http2(&self.address(), "no SETTINGS"))??;
        let Some(connections) = self.this.upgrade() else { return Ok(()) };
        let peer_max = Arc::new(AtomicUsize::new(driver.streams_max()));
        let connection = Arc::new(Connection {
            sender,
            in_use: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            peer_max: peer_max.clone(),
            tls_generation,
        });
        let weak = Arc::downgrade(&connection);
        self.state.lock().usable.push(connection);
        // Whatever ends the driver, a panic in it too: a place that is never given back is lost to all.
        let ended = Ended { connections, connection: weak };
        tokio::spawn(async move {
            drive(driver, tasks, &peer_max, ended).await;
        });
        self.freed.notify_waiters();
        Ok(())
    }

    fn next(&self) -> Next {
        let tls_generation = self.dialer.credentials.current().tls_generation;
        let mut state = self.state.lock();
        self.retire(&mut state, tls_generation);
        let Some(connections) = self.this.upgrade() else { return Next::Wait };
        let free = state.usable.iter().find(|connection| {
            let peer_max = connection.peer_max.load(Ordering::Relaxed);
            connection.in_use.load(Ordering::Relaxed) < self.limits.places.min(peer_max)
        });
        if let Some(connection) = free {
            // Only raised under the lock, so two can't take the last place.
            connection.in_use.fetch_add(1, Ordering::Relaxed);
            let connection = connection.clone();
            return Next::Take(Lease { connections, connection, complete: false });
        }
        if let Some(attempt) = &state.attempt {
            return Next::Attempt(attempt.clone());
        }
        let live = state.usable.len() + state.retired;
        // Retired ones may linger under long watches and must not keep everyone else out.
        if state.usable.len() >= self.limits.connections_max
            || live >= self.limits.connections_max * 2
        {
            return Next::Wait;
        }
        let (done, attempt) = watch::channel(None);
        state.attempt = Some(attempt.clone());
        tokio::spawn(async move {
            let attempted = Attempted(connections);
            let outcome = attempted.0.attempt().await;
            // In this order, so that nobody sees neither the attempt nor its outcome.
            done.send_replace(Some(outcome));
            drop(attempted);
        });
        Next::Attempt(attempt)
    }

    /// Takes closed connections out, and those that should carry nothing new.
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

    /// The driver of a connection has ended.
    fn ended(&self, connection: &Weak<Connection>) {
        let mut state = self.state.lock();
        let before = state.usable.len();
        state.usable.retain(|other| Arc::as_ptr(other) != connection.as_ptr());
        if state.usable.len() == before {
            state.retired = state.retired.saturating_sub(1);
        }
        drop(state);
        self.freed.notify_waiters();
    }

    /// For messages.
    pub(super) fn address(&self) -> String {
        self.dialer.credentials.current().endpoint.to_string()
    }

    /// Streams that were reset and places in use, on the connections in use.
    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self) -> (usize, usize) {
        let state = self.state.lock();
        state.usable.iter().fold((0, 0), |(resets, in_use), connection| {
            let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
            (resets + load(&connection.resets), in_use + load(&connection.in_use))
        })
    }

    async fn attempt(&self) -> Attempt {
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

    /// Apart from the `async fn` that awaits it, in whose form the compiler cannot see that hyper's types are `Send`.
    fn begin(&self, io: Io, spawner: Spawner) -> Handshake {
        let window = STREAM_WINDOW_BYTES.saturating_mul(self.limits.places as u32);
        let handshake = Builder::new(spawner)
            .timer(TokioTimer::new())
            .adaptive_window(false)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(window.max(CONNECTION_WINDOW_MIN_BYTES))
            .initial_max_send_streams(SETTINGS_UNKNOWN)
            .max_header_list_size(HEADERS_MAX_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .max_concurrent_reset_streams(self.limits.resets_max * 2)
            .reset_stream_duration(RESET_MEMORY)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io));
        Box::pin(async {
            let (sender, driver) = handshake.await?;
            Ok((sender, Box::new(driver) as Box<dyn Driver>))
        })
    }

    async fn handshake(
        &self,
        io: Io,
    ) -> Result<(Sender, Box<dyn Driver>, ConnectionTasks<Infallible>), UpstreamError> {
        let address = self.address();
        let mut tasks = ConnectionTasks::new(SPAWN_QUEUE_MAX);
        let (sender, mut driver) = self
            .begin(io, tasks.spawner())
            .await
            .map_err(|error| not_http2(&address, &chain(&error)))?;
        while driver.streams_max() == SETTINGS_UNKNOWN {
            tokio::select! {
                Stopped::Ended(ended) = tasks.run(&mut driver) => {
                    let cause = ended.map_or_else(|error| chain(&error), |()| "closed".to_owned());
                    return Err(not_http2(&address, &cause));
                }
                () = tokio::time::sleep(SETTINGS_POLL) => {}
            }
        }
        Ok((sender, driver, tasks))
    }
}

/// Makes room for the next attempt when dropped, however this one ended: an attempt that nobody works on would be waited for by all.
struct Attempted(Arc<Connections>);

impl Drop for Attempted {
    fn drop(&mut self) {
        self.0.state.lock().attempt = None;
        self.0.freed.notify_waiters();
    }
}

/// Tells of the end of a connection when dropped.
struct Ended {
    connections: Arc<Connections>,
    connection: Weak<Connection>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.connections.ended(&self.connection);
    }
}

type Sender = SendRequest<RequestBody>;
type Handshake = Pin<Box<dyn Future<Output = hyper::Result<(Sender, Box<dyn Driver>)>> + Send>>;

/// hyper's future that takes the requests.
trait Driver: Future<Output = hyper::Result<()>> + Send + Unpin {
    /// How many streams the peer allows, as far as it has told.
    fn streams_max(&self) -> usize;
}

impl Driver for http2::Connection<TokioIo<Io>, RequestBody, Spawner> {
    fn streams_max(&self) -> usize {
        self.current_max_send_streams()
    }
}

impl Lease {
    /// Sends a request; the lease goes into the response's body.
    pub(super) async fn send(
        mut self,
        request: Request<RequestBody>,
        gauge: GaugeGuard,
    ) -> Result<Response<body::Body>, SendError> {
        let mut sender = self.connection.sender.clone();
        let sent_whole = request.body().is_end_stream();
        match sender.try_send_request(request).await {
            Ok(response) => Ok(response.map(|incoming| {
                let body = body::Body::new(incoming, body::Lease::Http2(self)).counted(gauge);
                if sent_whole { body.strict() } else { body }
            })),
            Err(failure) => {
                // The peer or the connection ended it; nothing of ours was reset.
                self.complete = true;
                Err(SendError::of(failure))
            }
        }
    }

    /// Gives the place back after an exchange that needed no reset.
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

/// Runs a connection to its end, and keeps the peer's limit as it is now. `ended` is dropped when it takes no more requests; answers that are under way
/// come to their end.
async fn drive(
    mut driver: Box<dyn Driver>,
    mut tasks: ConnectionTasks<Infallible>,
    peer_max: &AtomicUsize,
    ended: Ended,
) {
    let mut driver = std::future::poll_fn(|context| {
        let polled = Pin::new(&mut driver).poll(context);
        peer_max.store(driver.streams_max(), Ordering::Relaxed);
        polled
    });
    let Stopped::Ended(outcome) = tasks.run(&mut driver).await;
    if let Err(error) = outcome {
        tracing::debug!(error = chain(&error), "an HTTP/2 connection to the upstream ended");
    }
    drop(ended);
    tasks.finish().await;
}

async fn outcome(mut attempt: watch::Receiver<Option<Attempt>>) -> Attempt {
    match attempt.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or(Ok(Protocol::Http2)),
        // The task that connected is gone: the runtime is stopping.
        Err(_) => Err(UpstreamError::Connect {
            address: String::new(),
            cause: "Weir is stopping".to_owned(),
        }),
    }
}

fn not_http2(address: &str, cause: &str) -> UpstreamError {
    UpstreamError::Connect {
        address: address.to_owned(),
        cause: format!("it did not answer as HTTP/2 ({cause}); upstream.http2 can be set to false"),
    }
}
