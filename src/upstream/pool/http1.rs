//! HTTP/1.1 connections: one exchange at a time, and reused only after the response's body was read
//! to its end.
//!
//! Reads of one client that may show an older state use the same connection ([`Pins`]), but do not
//! wait for it: two such reads at the same time use two connections.
//!
//! Nothing shows whether an idle connection lives. While a request is late ([`unanswered`]), those
//! are used that answered another one after it was sent, since what froze its connection may have
//! frozen the others. Those that did not are closed when it fails.
//!
//! Lock order: the idle connections, then the pins, or the requests that wait.

mod unanswered;

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use self::unanswered::{Unanswered, Waiting};
use super::dialer::Dialer;
use super::limits::{ACQUIRE_TIMEOUT, HEADERS_MAX_BYTES};
use crate::upstream::connect::{Io, Offer};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::request_body::RequestBody;

/// The most idle connections that are kept for later requests.
const IDLE_MAX: usize = 32;
/// The longest time that a connection is idle and still reused. kube-apiserver closes idle
/// connections after 90 s. The limit is well below that, so that a request is almost never written
/// to a connection that is being closed: it would be unknown whether the request was processed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// A connection is ready immediately after the last byte of a body. If it takes longer, the
/// connection is broken.
const READY_TIMEOUT: Duration = Duration::from_millis(100);
/// The most headers of a response: more than any API server sends. hyper's default is 100.
const HEADERS_MAX: usize = 256;

/// The HTTP/1.1 connections of a group.
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    permits: Arc<Semaphore>,
    max: usize,
    idle: Mutex<Vec<Idle>>,
    pins: Pins,
    unanswered: Unanswered,
    this: Weak<Self>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    tls_generation: u64,
    /// The time at which it was opened, or at which the last exchange on it ended.
    idle_since: Instant,
    is_reused: bool,
    /// The client whose stale reads use it. Only they use it then.
    pin: Option<PinGuard>,
}

impl Idle {
    fn new(sender: SendRequest<RequestBody>, tls_generation: u64) -> Self {
        Self { sender, tls_generation, idle_since: Instant::now(), is_reused: false, pin: None }
    }

    fn lease(self, connections: Arc<Connections>, permit: OwnedSemaphorePermit) -> Lease {
        let Self { sender, tls_generation, idle_since: _, is_reused, pin } = self;
        let waiting = Some(connections.unanswered.add(Instant::now()));
        Lease { connections, sender, tls_generation, is_reused, waiting, pin, _permit: permit }
    }

    fn is_fresh(&self) -> bool {
        !self.sender.is_closed() && self.idle_since.elapsed() < IDLE_TIME_MAX
    }
}

/// The result of [`Connections::acquire`].
pub(super) enum Acquired {
    /// A connection for one exchange.
    Connection(Lease),
    /// A new connection on which the upstream chose HTTP/2, the
    /// [`tls_generation`](crate::upstream::credentials::Identity::tls_generation) of its identity,
    /// and the time that opening it took.
    Http2(Io, u64, Duration),
}

/// A connection in use. Dropping the lease closes the connection.
pub(super) struct Lease {
    connections: Arc<Connections>,
    pub(super) sender: SendRequest<RequestBody>,
    tls_generation: u64,
    is_reused: bool,
    /// `None` once the head of the response has arrived.
    waiting: Option<Waiting>,
    pin: Option<PinGuard>,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    /// Creates a set of at most `max` connections in use.
    pub(super) fn new(dialer: Arc<Dialer>, max: usize) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            dialer,
            permits: Arc::new(Semaphore::new(max)),
            max,
            idle: Mutex::new(Vec::new()),
            pins: Pins::default(),
            unanswered: Unanswered::default(),
            this: this.clone(),
        })
    }

    /// Whether another connection may be used now.
    pub(super) fn has_free(&self) -> bool {
        self.permits.available_permits() > 0
    }

    /// Returns an idle connection or opens one. Waits up to [`ACQUIRE_TIMEOUT`] while all allowed
    /// connections are in use. Prefers the connection that requests with this `pin` used before.
    pub(super) async fn acquire(&self, pin: Option<u64>) -> Result<Acquired, UpstreamError> {
        // Offer HTTP/2 again if it can be negotiated: the upstream may support it by now.
        let offers_http2 = self.dialer.speaks_tls();
        let offer = if offers_http2 { self.dialer.offer() } else { Offer::Http1 };
        self.acquire_with(offer, pin).await
    }

    /// Returns a connection as [`acquire`](Self::acquire) does, on which only HTTP/1.1 is offered.
    pub(super) async fn acquire_http1(&self, pin: Option<u64>) -> Result<Lease, UpstreamError> {
        match self.acquire_with(Offer::Http1, pin).await? {
            Acquired::Connection(lease) => Ok(lease),
            // A peer cannot choose what was not offered.
            Acquired::Http2(..) => Err(UpstreamError::Connect {
                address: self.dialer.address(),
                cause: "it chose HTTP/2, which was not offered".to_owned(),
            }),
        }
    }

    async fn acquire_with(
        &self,
        offer: Offer,
        pin: Option<u64>,
    ) -> Result<Acquired, UpstreamError> {
        let identity = self.dialer.credentials.current();
        let permit = tokio::time::timeout(ACQUIRE_TIMEOUT, self.permits.clone().acquire_owned());
        let (Ok(Ok(permit)), Some(connections)) = (permit.await, self.this.upgrade()) else {
            return Err(self.dialer.exhausted());
        };
        let tls_generation = identity.tls_generation;
        let with_pin = |mut idle: Idle| {
            idle.pin = idle.pin.or_else(|| self.pins.acquire(pin?));
            idle
        };
        while let Some(mut idle) = self.take_idle(tls_generation, pin) {
            if let Ok(Ok(())) = tokio::time::timeout(READY_TIMEOUT, idle.sender.ready()).await {
                return Ok(Acquired::Connection(with_pin(idle).lease(connections, permit)));
            }
        }
        let started = Instant::now();
        let io = self.dialer.connect(&identity, offer).await?;
        if io.http2 {
            return Ok(Acquired::Http2(io, tls_generation, started.elapsed()));
        }
        let idle = Idle::new(handshake(io, HEADERS_MAX_BYTES as usize).await?, tls_generation);
        Ok(Acquired::Connection(with_pin(idle).lease(connections, permit)))
    }

    /// Adds a connection on which HTTP/2 was offered and HTTP/1.1 chosen.
    pub(super) async fn adopt(&self, io: Io, tls_generation: u64) {
        if let Ok(sender) = handshake(io, HEADERS_MAX_BYTES as usize).await {
            self.put_idle(Idle::new(sender, tls_generation));
        }
    }

    /// Closes the idle connections.
    pub(super) fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    /// Takes the connection of this pin, or else the one without a pin that was used last; `None`
    /// if it may be dead.
    fn take_idle(&self, tls_generation: u64, pin: Option<u64>) -> Option<Idle> {
        let mut idle = self.idle.lock();
        let late_since = self.unanswered.late_since();
        idle.retain(|idle| {
            let stale = idle.tls_generation != tls_generation;
            if stale {
                self.dialer.metrics.retired("credentials");
            }
            !stale && idle.is_fresh()
        });
        let last = |pin: Option<u64>| {
            let is_usable = |idle: &Idle| {
                let has_pin = idle.pin.as_ref().map(PinGuard::pin) == pin;
                has_pin && late_since.is_none_or(|sent| idle.idle_since > sent)
            };
            idle.iter().rposition(is_usable)
        };
        let position = pin.and_then(|pin| last(Some(pin))).or_else(|| last(None))?;
        Some(idle.remove(position))
    }

    fn put_idle(&self, new: Idle) {
        let mut idle = self.idle.lock();
        idle.retain(Idle::is_fresh);
        if idle.len() < IDLE_MAX.min(self.max) && new.is_fresh() {
            idle.push(new);
        }
    }
}

impl Lease {
    /// Returns the connection after a complete exchange.
    pub(super) fn complete(self) {
        let Self { connections, sender, tls_generation, pin, _permit, .. } = self;
        let (idle_since, is_reused) = (Instant::now(), true);
        connections.put_idle(Idle { sender, tls_generation, idle_since, is_reused, pin });
    }

    /// Returns whether the connection carried an exchange before.
    pub(super) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Notes that the head of the response arrived.
    pub(super) fn answered(&mut self) {
        self.waiting = None;
    }

    /// Ends an exchange without a response. Its cause may have hit the idle connections, too, that
    /// have answered nothing since the request was sent.
    pub(super) fn fail(self) {
        let Some(sent) = self.waiting.as_ref().map(Waiting::sent) else { return };
        let mut idle = self.connections.idle.lock();
        let (kept, closed) = idle.drain(..).partition(|idle| idle.idle_since > sent);
        *idle = kept;
        let closed: Vec<Idle> = closed;
        // Their pins have a lock of their own.
        drop(idle);
        drop(closed);
    }
}

/// Starts HTTP/1.1 on a connection. Upgrades are allowed: a 101 response takes the connection over.
/// The connection reads up to twice `headers_max_bytes` at once, and keeps a buffer of that size
/// until it is closed.
pub(super) async fn handshake(
    io: Io,
    headers_max_bytes: usize,
) -> Result<SendRequest<RequestBody>, UpstreamError> {
    let (sender, connection) = Builder::new()
        .max_headers(HEADERS_MAX)
        .max_header_size(headers_max_bytes)
        .max_buf_size(headers_max_bytes * 2)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| UpstreamError::Lost(chain(&error)))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(error = chain(&error), "an HTTP/1.1 connection to the upstream ended");
        }
    });
    Ok(sender)
}

/// The clients that have a connection. Cheap to clone: clones share the clients. Bounded by the
/// number of connections.
#[derive(Clone, Default)]
struct Pins(Arc<Mutex<HashSet<u64>>>);

/// Belongs to the one connection that a client's stale reads use. Dropping it, with the connection,
/// lets the client's next read choose another.
struct PinGuard {
    pin: u64,
    pins: Pins,
}

impl Pins {
    /// Returns the guard for a client that has no connection yet.
    fn acquire(&self, pin: u64) -> Option<PinGuard> {
        let is_new = self.0.lock().insert(pin);
        is_new.then(|| PinGuard { pin, pins: self.clone() })
    }
}

impl PinGuard {
    /// Returns the client.
    fn pin(&self) -> u64 {
        self.pin
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.pins.0.lock().remove(&self.pin);
    }
}
