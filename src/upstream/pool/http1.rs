//! HTTP/1.1 connections: one exchange at a time, reused only when the response before was read to its end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{Dialer, HEADERS_MAX_BYTES, PLACE_WAIT_MAX, SendError, body};
use crate::telemetry::upstream_metrics::GaugeGuard;
use crate::upstream::RequestBody;
use crate::upstream::connect::Io;
use crate::upstream::error::{UpstreamError, chain};
use http::{Request, Response};

/// Requests at once; each has a connection. kube-apiserver runs 600 at once by default, for all its clients.
pub(super) const REQUESTS_MAX: usize = 256;
/// Watches and other streams at once; each has a connection.
pub(super) const STREAMS_MAX: usize = 1024;
/// Idle connections kept for the next request.
const IDLE_MAX: usize = 32;
/// kube-apiserver closes idle connections after 90 s. Well before that we do not use them any more, so that a request is hardly ever
/// written to one that is just being closed: whether it was processed could not be told.
const IDLE_MAX_AGE: Duration = Duration::from_secs(60);
/// A connection is ready a moment after its body's last byte; longer, and something is wrong with it.
const READY_WAIT: Duration = Duration::from_millis(100);
/// More response headers than any API server sends; hyper's default is 100.
const HEADERS_MAX: usize = 256;

/// The HTTP/1.1 connections of a group.
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    this: Weak<Self>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    tls_generation: u64,
    since: Instant,
}

/// What asking for a connection gives.
pub(super) enum Acquired {
    /// A connection for one exchange.
    Connection(Lease),
    /// A new connection, on which the upstream chose HTTP/2, and its [`Identity::tls_generation`](crate::upstream::credentials::Identity).
    Http2(Io, u64),
}

/// A connection in use. Dropping it closes the connection.
pub(super) struct Lease {
    connections: Arc<Connections>,
    sender: SendRequest<RequestBody>,
    tls_generation: u64,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(dialer: Arc<Dialer>, max: usize) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            dialer,
            permits: Arc::new(Semaphore::new(max)),
            idle: Mutex::new(Vec::new()),
            this: this.clone(),
        })
    }

    /// Takes an idle connection or makes one; waits, bounded, when all that are allowed are in use.
    pub(super) async fn acquire(&self) -> Result<Acquired, UpstreamError> {
        let identity = self.dialer.credentials.current();
        let permit = tokio::time::timeout(PLACE_WAIT_MAX, self.permits.clone().acquire_owned());
        let (Ok(Ok(permit)), Some(connections)) = (permit.await, self.this.upgrade()) else {
            return Err(self.dialer.exhausted());
        };
        let tls_generation = identity.tls_generation;
        while let Some(mut sender) = self.take_idle(tls_generation) {
            if let Ok(Ok(())) = tokio::time::timeout(READY_WAIT, sender.ready()).await {
                let lease = Lease { connections, sender, tls_generation, _permit: permit };
                return Ok(Acquired::Connection(lease));
            }
        }
        // Offers HTTP/2 again where that can be negotiated: the upstream may have learnt it by now.
        let offer = if identity.endpoint.https {
            self.dialer.offer()
        } else {
            crate::upstream::connect::Offer::Http1
        };
        let io = self.dialer.connect(&identity, offer).await?;
        if io.http2 {
            return Ok(Acquired::Http2(io, tls_generation));
        }
        let sender = handshake(io).await?;
        Ok(Acquired::Connection(Lease { connections, sender, tls_generation, _permit: permit }))
    }

    /// Takes a connection made while HTTP/2 was hoped for.
    pub(super) async fn adopt(&self, io: Io, tls_generation: u64) {
        if let Ok(sender) = handshake(io).await {
            self.put_idle(sender, tls_generation);
        }
    }

    fn take_idle(&self, tls_generation: u64) -> Option<SendRequest<RequestBody>> {
        let mut idle = self.idle.lock();
        idle.retain(|idle| {
            let stale = idle.tls_generation != tls_generation;
            if stale {
                self.dialer.metrics.retired("credentials");
            }
            !stale && !idle.sender.is_closed() && idle.since.elapsed() < IDLE_MAX_AGE
        });
        idle.pop().map(|idle| idle.sender)
    }

    fn put_idle(&self, sender: SendRequest<RequestBody>, tls_generation: u64) {
        let mut idle = self.idle.lock();
        idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < IDLE_MAX_AGE);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(Idle { sender, tls_generation, since: Instant::now() });
        }
    }
}

impl Lease {
    /// Sends a request; the lease goes into the response's body.
    pub(super) async fn send(
        mut self,
        request: Request<RequestBody>,
        gauge: GaugeGuard,
    ) -> Result<Response<body::Body>, SendError> {
        let response = self.sender.try_send_request(request).await.map_err(SendError::of)?;
        Ok(response.map(|incoming| {
            body::Body::new(incoming, body::Lease::Http1(Box::new(self))).counted(gauge)
        }))
    }

    /// Gives the connection back after a complete exchange.
    pub(super) fn complete(self) {
        let Self { connections, sender, tls_generation, _permit } = self;
        connections.put_idle(sender, tls_generation);
    }
}

/// Starts HTTP/1.1 on a connection, with upgrades allowed: what answers 101 hands its connection over.
pub(super) async fn handshake(io: Io) -> Result<SendRequest<RequestBody>, UpstreamError> {
    let (sender, connection) = Builder::new()
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADERS_MAX_BYTES as usize)
        .max_buf_size(HEADERS_MAX_BYTES as usize * 2)
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
