//! The connection pools to one API server.
//!
//! hyper-util's client would keep one HTTP/2 connection for each host, and queue everything else
//! behind the stream limit of that connection (kube-apiserver: 100 streams). Watches never end, so
//! the queue would never move (`docs/decisions/connection-pools.md`).
//!
//! Requests and streams never share a connection, so that watches cannot starve requests. Each new
//! connection shows which protocol the upstream speaks. The pool remembers the latest result, and
//! adapts when it changes. Within a group, HTTP/2 connections are opened one at a time ([`http2`]),
//! HTTP/1.1 connections by the request that needs one ([`http1`]). Each upgrade and each list of a
//! whole collection has a connection of its own, which is used once. Requests that the upstream may
//! refuse to authenticate have HTTP/1.1 connections of their own ([`SendOptions::unproven`];
//! `docs/decisions/connection-pools.md`).
//!
//! Locks: each group has its own, held for a few instructions and never together with that of
//! another group. Within a group: the state, then the map of its dials or the resets of a
//! connection.

mod body;
mod dialer;
mod exchange;
mod group;
mod http1;
mod http2;
mod limits;
mod request_form;
mod send_error;
mod single;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::{Request, Response};
use tokio::sync::Semaphore;

use self::body::Lease;
pub use self::body::{Body, BodyError};
use self::dialer::Dialer;
pub(super) use self::exchange::{Attempt, Leaving};
use self::group::Group;
use self::limits::{HTTP2_REQUESTS, HTTP2_STREAMS};
use self::request_form::http1_form;
pub(super) use self::send_error::{Left, SendError};
pub(super) use self::single::Single;
use crate::config::UpstreamConfig;
use crate::config::seams::Dial;
use crate::upstream::connect::Offer;
use crate::upstream::credentials::{Credentials, Endpoint};
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::UpstreamMetrics;
use crate::upstream::request_body::RequestBody;
use crate::upstream::send_options::{SendOptions, TrafficClass};

/// The connections to one API server with one identity.
pub(super) struct Pool {
    dialer: Arc<Dialer>,
    requests: Group,
    streams: Group,
    unproven_requests: Arc<http1::Connections>,
    unproven_streams: Arc<http1::Connections>,
    wide: Arc<http1::Connections>,
    upgrades: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    singles: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(
        endpoint: Endpoint,
        config: (&UpstreamConfig, Option<Dial>),
        credentials: Arc<Credentials>,
        metrics: UpstreamMetrics,
        connections_opened: Arc<AtomicU64>,
    ) -> Self {
        let dialer = Dialer::new(endpoint, config, credentials, metrics, connections_opened);
        let dialer = Arc::new(dialer);
        let unproven = |max| http1::Connections::new(dialer.clone(), max);
        Self {
            unproven_requests: unproven(limits::UNPROVEN_REQUESTS_MAX),
            unproven_streams: unproven(limits::UNPROVEN_STREAMS_MAX),
            wide: http1::Connections::new(dialer.clone(), limits::WIDE_MAX),
            requests: Group::new(&dialer, HTTP2_REQUESTS, limits::HTTP1_REQUESTS_MAX),
            streams: Group::new(&dialer, HTTP2_STREAMS, limits::HTTP1_STREAMS_MAX),
            upgrades: Arc::new(Semaphore::new(limits::UPGRADES_MAX)),
            lists: Arc::new(Semaphore::new(limits::LISTS_MAX)),
            singles: Arc::new(Semaphore::new(limits::SINGLES_MAX)),
            dialer,
        }
    }

    /// Sends a request. Its URI must be complete (scheme, authority, path), and its headers final.
    pub(super) async fn send(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
    ) -> Result<Response<Body>, SendError> {
        let options = attempt.options;
        let (group, unproven) = match class {
            TrafficClass::Request => (&self.requests, &self.unproven_requests),
            TrafficClass::Stream => (&self.streams, &self.unproven_streams),
            TrafficClass::Upgrade => {
                let headers_max = limits::HEADERS_MAX_BYTES;
                return self.send_alone(&self.upgrades, headers_max, class, request, options).await;
            }
            TrafficClass::List => {
                let headers_max = limits::LIST_HEADERS_MAX_BYTES;
                return self.send_alone(&self.lists, headers_max, class, request, options).await;
            }
        };
        let gauge = self.dialer.metrics.stream(class);
        let alone = match options {
            SendOptions { unproven: true, .. } => Some(unproven),
            // The pin of older reads is that of the group.
            SendOptions { is_wide: true, pin: None, .. } => {
                Some(&self.wide).filter(|wide| wide.has_free())
            }
            _ => None,
        };
        if let Some(connections) = alone {
            let sent = match connections.acquire_http1(options.pin).await {
                Ok(lease) => exchange::send_http1(lease, request, gauge, attempt).await,
                Err(error) => Err(SendError::not_sent(error)),
            };
            return sent.map(|response| response.map(|body| body.with_class(class, options)));
        }
        let sent = group.send(gauge, request, attempt, self.dialer.speaks_http2()).await;
        sent.map(|response| response.map(|body| body.with_class(class, options)))
    }

    /// Returns how many exchanges of a class can be in progress at once, with the protocol that the
    /// upstream speaks.
    pub(super) fn streams_max(&self, class: TrafficClass, unproven: bool) -> usize {
        limits::streams_max(class, self.dialer.speaks_http2(), unproven)
    }

    /// Returns how many HTTP/2 streams of a class clients can reset within
    /// [`RECENT`](crate::upstream::recent_count::RECENT) before all connections are worn.
    pub(super) fn resets_max(class: TrafficClass) -> usize {
        limits::resets_max(class)
    }

    /// Returns the number of resets and of streams in use, over the connections for requests.
    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self) -> (usize, usize) {
        self.requests.resets_and_in_use()
    }

    /// Opens a connection of its own for requests in a row.
    pub(super) async fn single(&self) -> Result<Single, SendError> {
        Single::open(&self.dialer, &self.singles).await
    }

    /// Opens a connection of its own for checks of the server.
    pub(super) async fn single_for_check(&self) -> Result<Single, SendError> {
        Single::open_for_check(&self.dialer).await
    }

    /// Sends a request over HTTP/1.1, on a connection of its own.
    async fn send_alone(
        &self,
        permits: &Arc<Semaphore>,
        headers_max_bytes: u32,
        class: TrafficClass,
        request: Request<RequestBody>,
        options: &SendOptions,
    ) -> Result<Response<Body>, SendError> {
        let identity = self.dialer.credentials.current();
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            return Err(SendError::not_sent(self.dialer.exhausted()));
        };
        let offer = match class {
            TrafficClass::Upgrade => Offer::Upgrade,
            _ => Offer::Http1,
        };
        let mut io = self.dialer.connect(&identity, offer).await.map_err(SendError::not_sent)?;
        // Permit and gauge live as long as the socket, which a 101 response passes to the code that
        // splices it.
        io.hold(permit);
        io.hold(self.dialer.metrics.stream(class));
        let handshake = http1::handshake(io, headers_max_bytes as usize).await;
        let mut sender = handshake.map_err(SendError::not_sent)?;
        tokio::select! {
            biased;
            sent = sender.try_send_request(http1_form(request)) => match sent {
                Ok(response) => Ok(response.map(|body| Body::new(body, Lease::None))),
                Err(error) => Err(SendError::from_hyper(error)),
            },
            timeout = exchange::answer_timeout(options) => {
                Err(SendError::unanswered(UpstreamError::Timeout(timeout)))
            }
        }
    }
}
