//! A few HTTP/1.1 connections for GETs, beside HTTP/2.
//!
//! Go's HTTP/2 server, and an HTTP/2 client as well, need more time for one small response than
//! HTTP/1.1 does: about 50 µs of the latency of a forwarded GET (benches/README.md). Therefore a
//! GET uses one of these connections if one is idle; all other requests share HTTP/2 connections.
//! No request waits for such a connection: if GETs follow each other closely and none is idle, a
//! task opens one for later requests.
//!
//! Only GETs of objects and lists ([`TrafficClass::Read`]) without a body qualify, and only over
//! TLS (where ALPN lets the upstream refuse). A GET that is lost before any response may be sent
//! again (RFC 9110 §9.2.2), since it is unknown whether the idle connection was being closed. It is
//! sent again over HTTP/2.
//!
//! Connections are used for [`LIFETIME_MAX`], because an API server that spreads its clients
//! (`--goaway-chance`) can do so only over HTTP/2. The measurements are in
//! `docs/decisions/read-pool.md`.
//!
//! Lock: that of the dial state, held for a few instructions, and never together with another.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{Method, Request, Response};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::body::Body;
use super::dialer::Dialer;
use super::send_error::SendError;
use super::{exchange, http1};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::error::chain;
use crate::upstream::request_body::RequestBody;
use crate::upstream::traffic_class::TrafficClass;

/// The connections of one identity. They serve latency under light load; under heavy load, HTTP/2
/// carries the requests.
const CONNECTIONS_MAX: usize = 8;
/// A GET that finds no idle connection dials one only if another did within this time.
const DIAL_MISS_WINDOW: Duration = Duration::from_secs(1);
/// The pause after a failed dial.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// The largest response head: larger than any API server's. A GET with a larger one is sent again
/// over HTTP/2. The limit also bounds the read buffer of a connection.
const HEADERS_MAX_BYTES: u32 = 32 * 1024;
/// How long a connection is used.
const LIFETIME_MAX: Duration = Duration::from_secs(300);

/// The HTTP/1.1 connections for GETs.
pub(super) struct ReadPool {
    connections: Arc<http1::Connections>,
    dial_state: Mutex<DialState>,
}

#[derive(Default)]
struct DialState {
    in_progress: bool,
    /// The last time that a GET found no idle connection.
    last_miss: Option<Instant>,
    /// No connection is dialed before this time.
    paused_until: Option<Instant>,
}

impl DialState {
    /// Notes that a GET found no idle connection, and returns whether to dial one now.
    fn should_dial(&mut self, now: Instant) -> bool {
        let frequent =
            self.last_miss.replace(now).is_some_and(|last| now - last < DIAL_MISS_WINDOW);
        let paused = self.paused_until.is_some_and(|until| now < until);
        let dial = frequent && !paused && !self.in_progress;
        self.in_progress |= dial;
        dial
    }
}

impl ReadPool {
    pub(super) fn new(dialer: Arc<Dialer>) -> Arc<Self> {
        let connections =
            http1::Connections::new(dialer, CONNECTIONS_MAX, LIFETIME_MAX, HEADERS_MAX_BYTES);
        Arc::new(Self { connections, dial_state: Mutex::default() })
    }

    /// Returns an idle connection if there is one and the request qualifies.
    pub(super) fn lease(
        self: &Arc<Self>,
        class: TrafficClass,
        request: &Request<RequestBody>,
    ) -> Option<http1::Lease> {
        let is_plain_get = request.method() == Method::GET && request.body().is_end_stream();
        if class != TrafficClass::Read
            || !is_plain_get
            || request.uri().scheme() != Some(&Scheme::HTTPS)
        {
            return None;
        }
        let lease = self.connections.try_acquire();
        if lease.is_none()
            && self.connections.has_capacity()
            && self.dial_state.lock().should_dial(Instant::now())
        {
            tokio::spawn(DialGuard(Arc::clone(self)).dial());
        }
        lease
    }

    #[cfg(test)]
    pub(super) fn has_idle(&self) -> bool {
        self.connections.try_acquire().map(http1::Lease::complete).is_some()
    }

    /// Sends a request on an acquired connection.
    pub(super) async fn send(
        &self,
        lease: http1::Lease,
        request: Request<RequestBody>,
        gauge: GaugeGuard,
    ) -> Result<Response<Body>, SendError> {
        exchange::send_http1(lease, request, gauge).await.map_err(|failure| {
            // The cause has closed the other connections, too.
            self.connections.close_idle();
            SendError { unprocessed: true, ..failure }
        })
    }
}

/// Ends a dial when dropped, whatever its result.
struct DialGuard(Arc<ReadPool>);

impl DialGuard {
    async fn dial(self) {
        if let Err(error) = self.0.connections.dial().await {
            tracing::debug!(
                error = chain(&error),
                "cannot open an HTTP/1.1 connection for GETs; they use HTTP/2"
            );
            self.0.dial_state.lock().paused_until = Some(Instant::now() + RETRY_DELAY);
        }
    }
}

impl Drop for DialGuard {
    fn drop(&mut self) {
        self.0.dial_state.lock().in_progress = false;
    }
}
