//! The admin listener: `/livez`, `/readyz`, `/healthz` and `/metrics`, on an address of its own.
//!
//! It serves plain HTTP/1.1 (and HTTP/2 with prior knowledge), and only Weir's own state, no data
//! of the cluster. So it may listen on any address, for the kubelet's probes and for Prometheus. It
//! serves until the end of a shutdown, so that `/readyz` can fail while connections drain.

pub mod health;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::health::{Checks, Endpoint};
use crate::server::connection::activity::ConnActivity;
use crate::server::connection::cork::Cork;
use crate::server::connection::guarded_body::GuardedBody;
use crate::server::http::body::Body;

/// The bound listener.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    pages: Arc<Pages>,
}

/// The state that it serves.
#[derive(Debug)]
struct Pages {
    checks: Checks,
    registry: Registry,
}

impl Admin {
    /// Binds the listener. Errors are the system's (address in use, permission denied).
    pub async fn bind(address: SocketAddr, checks: Checks, registry: Registry) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, pages: Arc::new(Pages { checks, registry }) })
    }

    /// Returns the bound address, with the port that the system chose.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled, then waits up to [`DRAIN_TIMEOUT`] for open responses.
    pub async fn run(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    // Beyond the limit a connection is closed at once, so that no prober waits.
                    if let Ok(permit) = permits.clone().try_acquire_owned() {
                        let serve = serve(stream, self.pages.clone(), stop.clone());
                        connections.spawn(async move {
                            serve.await;
                            drop(permit);
                        });
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "admin listener cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        connections.close();
        if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
            tracing::debug!("admin connections were still open at the end");
        }
    }
}

impl Pages {
    fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let query = request.uri().query().unwrap_or_default();
        let path = request.uri().path();
        let (page, check) = match path.get(1..).unwrap_or_default().split_once('/') {
            Some((page, check)) => (page, Some(check)),
            None => (path.get(1..).unwrap_or_default(), None),
        };
        match (page, check) {
            ("", None) => text(StatusCode::OK, INDEX),
            ("livez", check) => self.health(Endpoint::Live, check, query),
            // kube-apiserver keeps this older name, from before it had two endpoints.
            ("healthz" | "readyz", check) => self.health(Endpoint::Ready, check, query),
            ("metrics", None) => self.metrics(),
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn health(&self, endpoint: Endpoint, check: Option<&str>, query: &str) -> Response<Body> {
        match self.checks.report(endpoint, check, query) {
            Some(report) => {
                let ok = StatusCode::OK;
                text(
                    if report.passed { ok } else { StatusCode::INTERNAL_SERVER_ERROR },
                    report.text,
                )
            }
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn metrics(&self) -> Response<Body> {
        match TextEncoder::new().encode_to_string(&self.registry.gather()) {
            Ok(metrics) => respond(StatusCode::OK, TEXT_FORMAT, metrics),
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written");
                text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written; see the log\n")
            }
        }
    }
}

async fn serve(stream: TcpStream, pages: Arc<Pages>, stop: CancellationToken) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(STREAMS_MAX);
    let activity = ConnActivity::new();
    let requests = activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let guard = requests.begin_request(!request.body().is_end_stream());
        let response = pages.answer(&request).map(|body| GuardedBody::new(body, None, guard));
        async move { Ok::<_, Infallible>(response) }
    });
    let io = TokioIo::new(Cork::new(stream, activity.clone()));
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        // Connections are limited, and probes need them.
        () = activity.header_timeout(HEADER_READ_TIMEOUT) => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, "admin connection ended");
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::chunks(vec![body.into()]));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The page for browsers.
const INDEX: &str = "\
Weir, a caching read-through proxy for the Kubernetes API

/livez            the process is alive
/readyz           it can serve; ?verbose names each check, ?exclude=NAME leaves one out
/readyz/NAME      one check
/metrics          in Prometheus' text format
";

/// Open connections. Probes, a few Prometheus servers and people need far fewer.
const CONNECTIONS_MAX: usize = 64;

/// Concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 16;

/// Time-out for the head of a request, from its first byte or from the start of the connection.
/// Probers send it at once.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The idle time-out of a connection: longer than Prometheus' usual scrape interval of a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The interval of HTTP/2 pings, which detect dead peers.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Probes and scrapes have small heads.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Responses are small; only a peer that does not read takes longer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a failed accept, which happens when no file descriptor is left. An immediate
/// retry would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
