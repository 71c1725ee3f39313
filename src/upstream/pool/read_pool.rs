//! A few HTTP/1.1 connections beside those of HTTP/2, for GETs.
//!
//! Go's HTTP/2 server, and an HTTP/2 client too, take longer over one small answer than HTTP/1.1 does: some 50 µs of the latency of a forwarded GET
//! (benches/README.md). So a GET that finds one of these connections idle goes there, and all others share HTTP/2 connections as ever. No request
//! waits for one: where GETs come one after another and none is idle, one is made for those to come, by a task of its own.
//!
//! Only GETs of objects and lists ([`TrafficClass::Read`]) without a body, over TLS (where ALPN lets the upstream refuse). One that is lost on such a
//! connection before any answer may be sent again (RFC 9110 §9.2.2: whether an idle connection was just being closed can't be told otherwise), and is,
//! by HTTP/2.
//!
//! Connections are used for [`LIFETIME_MAX`]: an API server that wants to spread its clients (`--goaway-chance`) can tell so in HTTP/2 only.
//!
//! Lock: that of the making, held for a few instructions, and never together with another.

use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{Method, Request, Response};
use http_body::Body as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Dialer, SendError, body, http1, http1_form};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::error::chain;
use crate::upstream::{RequestBody, TrafficClass};

/// So many connections of one identity: for latency where there is little to do. Where there is much, HTTP/2 carries it.
const CONNECTIONS_MAX: usize = 8;
/// GETs that find none idle come one after another if so little time lies between two.
const DIAL_MISS_WINDOW: Duration = Duration::from_secs(1);
/// No other is made so soon after one could not be.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// More than any API server's answer has; one with more is asked for again by HTTP/2. What a connection reads at once, and keeps, is bounded by it.
const HEADERS_MAX_BYTES: u32 = 32 * 1024;
/// How long a connection is used.
const LIFETIME_MAX: Duration = Duration::from_secs(300);

/// See the module.
pub(super) struct ReadPool {
    connections: Arc<http1::Connections>,
    dial_state: Mutex<DialState>,
}

#[derive(Default)]
struct DialState {
    in_progress: bool,
    /// When a GET last found no idle connection.
    last_miss: Option<Instant>,
    /// Until when none is made.
    paused_until: Option<Instant>,
}

impl DialState {
    /// Whether one is to be made now, for a GET that found none.
    fn should_dial(&mut self, now: Instant) -> bool {
        let often = self.last_miss.replace(now).is_some_and(|last| now - last < DIAL_MISS_WINDOW);
        let paused = self.paused_until.is_some_and(|until| now < until);
        let dial = often && !paused && !self.in_progress;
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

    /// A connection for this request of that class, if one is idle.
    pub(super) fn lease(
        self: &Arc<Self>,
        class: TrafficClass,
        request: &Request<RequestBody>,
    ) -> Option<http1::Lease> {
        let plain = request.method() == Method::GET && request.body().is_end_stream();
        if class != TrafficClass::Read || !plain || request.uri().scheme() != Some(&Scheme::HTTPS) {
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

    /// Sends it there.
    pub(super) async fn send(
        &self,
        lease: http1::Lease,
        request: Request<RequestBody>,
        gauge: GaugeGuard,
    ) -> Result<Response<body::Body>, SendError> {
        lease.send(http1_form(request), gauge).await.map_err(|failure| {
            // Whatever closed this one closed the others too.
            self.connections.close_idle();
            SendError { unprocessed: true, ..failure }
        })
    }
}

/// One is being made; dropped when it is, or is not.
struct DialGuard(Arc<ReadPool>);

impl DialGuard {
    async fn dial(self) {
        if let Err(error) = self.0.connections.dial().await {
            tracing::debug!(error = chain(&error), "no HTTP/1.1 connection beside HTTP/2");
            self.0.dial_state.lock().paused_until = Some(Instant::now() + RETRY_DELAY);
        }
    }
}

impl Drop for DialGuard {
    fn drop(&mut self) {
        self.0.dial_state.lock().in_progress = false;
    }
}
