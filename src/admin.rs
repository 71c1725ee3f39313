//! The admin listener: `/livez`, `/readyz`, `/healthz`, `/metrics`, `/api/clients` and the z-pages,
//! on an address of its own.
//!
//! It serves plain HTTP/1.1 (and HTTP/2 with prior knowledge). Health and metrics are Weir's own
//! state, without data of the cluster. So it may listen on any address, for the kubelet's probes
//! and for Prometheus. `/api/clients` names users, the z-pages ([`zpages`]) show the configuration,
//! and both have a rule of their own ([`detail`]).
//!
//! It serves until the end of a shutdown, so that `/readyz` can fail while connections drain.

mod detail;
pub mod health;
pub(crate) mod ready_metric;
mod scrape;
mod slis;
mod zpages;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus::{Registry, TEXT_FORMAT};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::health::{Checks, Endpoint};
use crate::admin::scrape::Scrape;
pub use crate::admin::zpages::ZPages;
use crate::admin::zpages::{ZAnswer, ZPage};
use crate::server::FlowControl;
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
    checks: Arc<Checks>,
    registry: Registry,
    /// The costs of clients; `None` if nobody may see them, or nothing is added up.
    clients: Option<Arc<FlowControl>>,
    /// The z-pages; none if nobody may see them.
    zpages: OnceLock<ZPages>,
}

/// The connection of a request.
#[derive(Clone, Copy, Debug)]
struct Connection {
    peer: IpAddr,
    /// Whether few connections are left for probes.
    is_scarce: bool,
}

impl Admin {
    /// Binds the listener. Errors are the system's (address in use, permission denied).
    /// `clients` is what local clients may see the costs of.
    pub async fn bind(
        address: SocketAddr,
        checks: Checks,
        registry: Registry,
        clients: Option<Arc<FlowControl>>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let checks = Arc::new(checks);
        ready_metric::register_ready(&registry, Arc::clone(&checks)).map_err(io::Error::other)?;
        Ok(Self {
            listener,
            pages: Arc::new(Pages { checks, registry, clients, zpages: OnceLock::new() }),
        })
    }

    /// Lets local clients see the z-pages. Only the first call counts.
    pub fn set_zpages(&self, zpages: ZPages) {
        self.pages.zpages.get_or_init(|| zpages);
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
                Ok((stream, peer)) => {
                    // Beyond the limit a connection is closed at once, so that no prober waits.
                    if let Ok(permit) = permits.clone().try_acquire_owned() {
                        let is_scarce = permits.available_permits() < CONNECTIONS_SPARE;
                        let connection = Connection { peer: peer.ip(), is_scarce };
                        let serve = serve(stream, connection, self.pages.clone(), stop.clone());
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
    fn answer<B>(&self, connection: Connection, request: &Request<B>) -> Response<Body> {
        if let Some(page) = ZPage::of_path(request.uri().path()) {
            return self.zpage(connection, request, page);
        }
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
            ("metrics", None) => metrics(&self.registry, request.headers()),
            ("metrics", Some("slis")) => {
                metrics(self.checks.observed().registry(), request.headers())
            }
            ("api", Some("clients")) => self.clients(connection, request),
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

    /// Returns a z-page, to those who may see details.
    fn zpage<B>(
        &self,
        connection: Connection,
        request: &Request<B>,
        page: ZPage,
    ) -> Response<Body> {
        let head = (request.method(), request.uri(), request.headers());
        if let Err(refusal) = detail::check(connection.peer, request.uri(), request.headers()) {
            return text(StatusCode::FORBIDDEN, refusal);
        }
        let Some(zpages) = self.zpages.get() else {
            return text(StatusCode::NOT_FOUND, "off: see admin.detail\n");
        };
        let ZAnswer { status, content_type, body } = zpages.answer(page, head, &self.registry);
        let mut response = respond(status, content_type, body);
        detail::secure(response.headers_mut());
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        if connection.is_scarce {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Returns the clients that cost most, to those who may see details.
    fn clients<B>(&self, connection: Connection, request: &Request<B>) -> Response<Body> {
        let uri = request.uri();
        if let Err(refusal) = detail::check(connection.peer, uri, request.headers()) {
            return text(StatusCode::FORBIDDEN, refusal);
        }
        let Some(clients) = &self.clients else {
            return text(StatusCode::NOT_FOUND, "off: see admin.detail and flowControl.mode\n");
        };
        let report = clients.report(detail::limit(uri.query().unwrap_or_default()));
        let mut response = respond(StatusCode::OK, "application/json", report);
        detail::secure(response.headers_mut());
        if connection.is_scarce {
            // So that what people leave open takes no prober's place.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Returns the metrics of a registry.
fn metrics(registry: &Registry, headers: &HeaderMap) -> Response<Body> {
    match Scrape::of(registry, headers) {
        Ok(Scrape { body, is_compressed }) => {
            let mut response = respond(StatusCode::OK, TEXT_FORMAT, body);
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            if is_compressed {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(CONTENT_ENCODING, gzip);
            }
            response
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written; see the log\n")
        }
    }
}

async fn serve(stream: TcpStream, from: Connection, pages: Arc<Pages>, stop: CancellationToken) {
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
        let response = pages.answer(from, &request).map(|body| GuardedBody::new(body, None, guard));
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
/metrics/slis     the results of health checks, as Kubernetes' components show them
/api/clients      what clients cost, for local clients only; ?limit=N
/statusz          version, start and paths; and /flagz, /configz, /debug/memory, /debug/log: for
                  local clients only
";

/// Open connections. Probes, a few Prometheus servers and people need far fewer.
const CONNECTIONS_MAX: usize = 64;

/// With fewer connections left, those of people are closed after each answer.
const CONNECTIONS_SPARE: usize = 16;

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
