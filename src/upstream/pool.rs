//! Connection pools of our own: hyper-util's would keep one HTTP/2 connection per host and let everything queue behind
//! its stream limit (crates.md, pitfall 1).
//!
//! Requests and streams never share a connection, so that no watch can starve a request. Which protocol the upstream speaks is
//! learnt from each connection made; [`Pool`] keeps the last answer and follows it when it changes. Within a group HTTP/2
//! connections are made one at a time ([`http2`]), HTTP/1.1 connections by whoever needs one ([`http1`]). Upgrades and lists of whole
//! collections have a connection each, which is never used again. Beside HTTP/2 there are a few HTTP/1.1 connections for GETs ([`gets`]).
//!
//! Locks: each group has one, held for a few instructions and never while another is.

mod body;
mod http1;
mod http2;
mod read_pool;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::Semaphore;

use self::body::Lease;
pub use self::body::{Body, BodyError};
use self::read_pool::ReadPool;
use crate::config::UpstreamConfig;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::connect::{Io, Offer, connect};
use crate::upstream::credentials::{Credentials, Identity};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::metrics::{ProtocolLabel, UpstreamMetrics};
use crate::upstream::{RequestBody, TrafficClass};

/// Upgraded connections at once: one for each `kubectl exec` or `port-forward`, far more than a person or a controller opens.
const UPGRADES_MAX: usize = 1024;
/// Lists of whole collections at once: more than the reflectors of all caches begin.
const LISTS_MAX: usize = 64;
/// How long a request may wait for a place on a connection when every allowed connection is full.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// kube-apiserver takes 1 MiB of headers and so may answer with as much.
const HEADERS_MAX_BYTES: u32 = 1024 * 1024;
/// To a reflector it answers with few. A connection over HTTP/1.1 reads twice as much at once.
const LIST_HEADERS_MAX_BYTES: u32 = 32 * 1024;

/// Why a request got no response.
pub(super) struct SendError {
    /// What to tell.
    pub(super) error: UpstreamError,
    /// Whether it may be sent again: HTTP says that the upstream did not process it, or it makes no difference.
    pub(super) unprocessed: bool,
}

/// The connections with one identity.
pub(super) struct Pool {
    dialer: Arc<Dialer>,
    requests: Group,
    reads: Arc<ReadPool>,
    streams: Group,
    upgrades: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

/// Connections that carry one kind of exchange.
struct Group {
    http2: Arc<http2::Connections>,
    http1: Arc<http1::Connections>,
}

/// How connections are made.
struct Dialer {
    credentials: Arc<Credentials>,
    metrics: UpstreamMetrics,
    connect_timeout: Duration,
    /// Whether the configuration allows HTTP/2.
    http2_allowed: bool,
    /// Whether the upstream spoke it last.
    http2_spoken: AtomicBool,
}

impl Dialer {
    async fn connect(&self, identity: &Identity, offer: Offer) -> Result<Io, UpstreamError> {
        let mut io = connect(identity, offer, self.connect_timeout).await?;
        if offer == Offer::Http2 {
            self.http2_spoken.store(io.http2, Ordering::Relaxed);
        }
        let protocol = if io.http2 { ProtocolLabel::Http2 } else { ProtocolLabel::Http1 };
        io.count(self.metrics.connection(protocol));
        Ok(io)
    }

    fn offer(&self) -> Offer {
        if self.http2_allowed { Offer::Http2 } else { Offer::Http1 }
    }

    fn exhausted(&self) -> UpstreamError {
        UpstreamError::Connect {
            address: self.credentials.current().endpoint.to_string(),
            cause: format!("every allowed connection is in use for {ACQUIRE_TIMEOUT:?}"),
        }
    }
}

impl Pool {
    pub(super) fn new(
        config: &UpstreamConfig,
        credentials: Arc<Credentials>,
        metrics: UpstreamMetrics,
    ) -> Self {
        let dialer = Arc::new(Dialer {
            credentials,
            metrics,
            connect_timeout: config.connect_timeout,
            http2_allowed: config.http2,
            http2_spoken: AtomicBool::new(config.http2),
        });
        let group = |http2_limits, http1_max| {
            let http1 = http1::Connections::new(
                dialer.clone(),
                http1_max,
                Duration::MAX,
                HEADERS_MAX_BYTES,
            );
            let http2 = http2::Connections::new(dialer.clone(), http2_limits, http1.clone());
            Group { http2, http1 }
        };
        Self {
            requests: group(http2::REQUESTS, http1::REQUESTS_MAX),
            reads: ReadPool::new(dialer.clone()),
            streams: group(http2::STREAMS, http1::STREAMS_MAX),
            upgrades: Arc::new(Semaphore::new(UPGRADES_MAX)),
            lists: Arc::new(Semaphore::new(LISTS_MAX)),
            dialer,
        }
    }

    /// Sends a request whose URI is complete (scheme, authority, path) and whose headers are final.
    pub(super) async fn send(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, SendError> {
        let group = match class {
            TrafficClass::Request | TrafficClass::Read => &self.requests,
            TrafficClass::Stream => &self.streams,
            TrafficClass::Upgrade => {
                return self.alone(&self.upgrades, HEADERS_MAX_BYTES, class, request).await;
            }
            TrafficClass::List => {
                return self.alone(&self.lists, LIST_HEADERS_MAX_BYTES, class, request).await;
            }
        };
        let gauge = self.dialer.metrics.stream(class);
        let http2 = self.dialer.http2_spoken.load(Ordering::Relaxed);
        let sent = match http2.then(|| self.reads.lease(class, &request)).flatten() {
            Some(lease) => self.reads.send(lease, request, gauge).await,
            None if http2 => group.send_http2_first(gauge, request).await,
            None => group.send_http1_first(gauge, request).await,
        };
        sent.map(|response| response.map(|body| body.paced(class)))
    }

    /// How many exchanges of a kind there may be at once, by the protocol that the upstream speaks.
    pub(super) fn streams_max(&self, class: TrafficClass) -> usize {
        let http2 = self.dialer.http2_spoken.load(Ordering::Relaxed);
        match (class, http2) {
            (TrafficClass::Request | TrafficClass::Read, true) => http2::REQUESTS.streams_max(),
            (TrafficClass::Request | TrafficClass::Read, false) => http1::REQUESTS_MAX,
            (TrafficClass::Stream, true) => http2::STREAMS.streams_max(),
            (TrafficClass::Stream, false) => http1::STREAMS_MAX,
            (TrafficClass::Upgrade, _) => UPGRADES_MAX,
            (TrafficClass::List, _) => LISTS_MAX,
        }
    }

    /// Of the connections for requests.
    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self) -> (usize, usize) {
        self.requests.http2.resets_and_in_use()
    }

    #[cfg(test)]
    pub(super) fn has_idle_read_connection(&self) -> bool {
        self.reads.has_idle()
    }

    /// Sends a request over HTTP/1.1 on a connection of its own.
    async fn alone(
        &self,
        permits: &Arc<Semaphore>,
        headers_max_bytes: u32,
        class: TrafficClass,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, SendError> {
        let identity = self.dialer.credentials.current();
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            return Err(SendError::unsent(self.dialer.exhausted()));
        };
        let mut io = match self.dialer.connect(&identity, Offer::Http1).await {
            Ok(io) => io,
            Err(error) => return Err(SendError::unsent(error)),
        };
        // Both live as long as the socket, which a 101 hands over to whoever splices it.
        io.keep(permit);
        io.keep(self.dialer.metrics.stream(class));
        match http1::handshake(io, headers_max_bytes as usize).await {
            Ok(mut sender) => match sender.try_send_request(http1_form(request)).await {
                Ok(response) => Ok(response.map(|body| Body::new(body, Lease::None))),
                Err(error) => Err(SendError::of(error)),
            },
            Err(error) => Err(SendError::unsent(error)),
        }
    }
}

impl Group {
    /// Several upstreams of different minds behind one address: the next request settles with one of them.
    fn undecided(&self) -> UpstreamError {
        UpstreamError::Connect {
            address: self.http2.address(),
            cause: "it chooses HTTP/1.1 and HTTP/2 by turns".to_owned(),
        }
    }

    async fn send_http2_first(
        &self,
        gauge: GaugeGuard,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, SendError> {
        match self.http2.acquire().await {
            Ok(http2::Acquired::Place(lease)) => lease.send(http2_form(request), gauge).await,
            Ok(http2::Acquired::Http1) => match self.http1.acquire().await {
                Ok(http1::Acquired::Connection(lease)) => {
                    lease.send(http1_form(request), gauge).await
                }
                Ok(http1::Acquired::Http2(..)) => Err(SendError::unsent(self.undecided())),
                Err(error) => Err(SendError::unsent(error)),
            },
            Err(error) => Err(SendError::unsent(error)),
        }
    }

    async fn send_http1_first(
        &self,
        gauge: GaugeGuard,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, SendError> {
        let (io, tls_generation) = match self.http1.acquire().await {
            Ok(http1::Acquired::Connection(lease)) => {
                return lease.send(http1_form(request), gauge).await;
            }
            Ok(http1::Acquired::Http2(io, tls_generation)) => (io, tls_generation),
            Err(error) => return Err(SendError::unsent(error)),
        };
        // The upstream has learnt HTTP/2 meanwhile.
        if let Err(error) = self.http2.adopt(io, tls_generation).await {
            return Err(SendError::unsent(error));
        }
        match self.http2.acquire().await {
            Ok(http2::Acquired::Place(lease)) => lease.send(http2_form(request), gauge).await,
            Ok(http2::Acquired::Http1) => Err(SendError::unsent(self.undecided())),
            Err(error) => Err(SendError::unsent(error)),
        }
    }
}

impl SendError {
    fn unsent(error: UpstreamError) -> Self {
        Self { error, unprocessed: true }
    }

    fn of(mut failure: hyper::client::conn::TrySendError<Request<RequestBody>>) -> Self {
        let unsent = failure.take_message().is_some();
        let error = failure.into_error();
        // What it was to send could not be had, or broke off: a client's doing, not the upstream's.
        if error.is_user() {
            let error = UpstreamError::Request(chain(&error));
            return Self { error, unprocessed: false };
        }
        let unprocessed = unsent || is_unprocessed(&error);
        Self { error: UpstreamError::Lost(chain(&error)), unprocessed }
    }
}

/// RFC 9113 §8.7: REFUSED_STREAM, and any stream above the last one that GOAWAY names. h2 gives the GOAWAY as a stream's error only to
/// those above; what is at or below goes on, or ends with an I/O error.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (refused || error.is_go_away());
        }
        source = cause.source();
    }
    false
}

/// HTTP/2 has the authority in a pseudo-header.
fn http2_form(mut request: Request<RequestBody>) -> Request<RequestBody> {
    *request.version_mut() = http::Version::HTTP_2;
    request.headers_mut().remove(http::header::HOST);
    request
}

/// HTTP/1.1 has the path alone in the request line, and the authority in `Host`.
fn http1_form(mut request: Request<RequestBody>) -> Request<RequestBody> {
    *request.version_mut() = http::Version::HTTP_11;
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if let Some(authority) = &uri.authority
        && let Ok(host) = http::HeaderValue::try_from(authority.as_str())
    {
        request.headers_mut().insert(http::header::HOST, host);
    }
    let path = uri.path_and_query.unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"));
    *request.uri_mut() = http::Uri::from(path);
    request
}
