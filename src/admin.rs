//! The admin listener: `/livez`, `/readyz`, `/healthz`, `/metrics`, and for local clients a live
//! page with `/api/…` and the z-pages, on an address of its own.
//!
//! It serves plain HTTP/1.1 (and HTTP/2 with prior knowledge). Health and metrics are Weir's own
//! state, without data of the cluster. So it may listen on any address, for the kubelet's probes
//! and for Prometheus. The page and its data name users, the z-pages ([`zpages`]) show the
//! configuration, and all have a rule of their own ([`detail`]).
//!
//! It serves until the end of a shutdown, so that `/readyz` can fail while connections drain.

mod api;
mod connections;
mod detail;
mod details;
mod figures;
mod gate;
pub mod health;
mod index;
mod local;
mod page;
pub(crate) mod ready_metric;
mod respond;
mod scrape;
mod serve;
mod slis;
mod totals;
mod zpages;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{ACCEPT, ALLOW, VARY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use prometheus::Registry;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::admin::api::Details;
use crate::admin::api::{Api, Kind};
use crate::admin::connections::OpenConnections;
pub use crate::admin::figures::{ConfigurationFigures, Figures};
use crate::admin::gate::DetailGate;
use crate::admin::health::{Checks, Endpoint};
use crate::admin::index::INDEX;
use crate::admin::local::LocalSocket;
use crate::admin::page::PageFile;
use crate::admin::respond::{detailed, method_not_allowed, not_found, respond, shared, text};
use crate::admin::serve::serve;
pub use crate::admin::zpages::{MemoryFigures, ZPages};
use crate::admin::zpages::{ZAnswer, ZPage};
use crate::server::accept::bind_error::BindError;
use crate::server::connection::activity::ConnActivity;
use crate::server::http::body::Body;
use crate::tasks::spawn_blocking;

/// The bound listener.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    socket: Option<LocalSocket>,
    pages: Arc<Pages>,
}

/// The state that it serves.
#[derive(Debug)]
struct Pages {
    checks: Arc<Checks>,
    registry: Registry,
    /// The details; `None` if nobody may see them.
    api: Option<Api>,
    gate: DetailGate,
    /// The z-pages; none if nobody may see them.
    zpages: OnceLock<ZPages>,
}

/// The connection of a request.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// The address; `None` for a Unix socket, over which only root and Weir's own user connect.
    peer: Option<IpAddr>,
    /// Whether few connections are left for probes.
    is_scarce: bool,
}

/// An accepted connection.
enum Stream {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl Admin {
    /// Binds the listener. Errors are the system's (address in use, permission denied).
    /// `details` is what local clients may see; `None` if nobody may.
    pub async fn bind(
        address: SocketAddr,
        checks: Checks,
        registry: Registry,
        details: Option<Details>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let checks = Arc::new(checks);
        ready_metric::register_ready(&registry, Arc::clone(&checks)).map_err(io::Error::other)?;
        let api = details.map(Api::new);
        Ok(Self {
            listener,
            socket: None,
            pages: Arc::new(Pages {
                checks,
                registry,
                api,
                gate: DetailGate::default(),
                zpages: OnceLock::new(),
            }),
        })
    }

    /// Listens on a Unix socket as well.
    pub fn bind_socket(&mut self, path: &Path) -> Result<(), BindError> {
        self.socket = Some(LocalSocket::bind(path)?);
        Ok(())
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
        let mut open = OpenConnections::default();
        let mut samples = tokio::time::interval(SAMPLE_INTERVAL);
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => {
                    accepted.map(|(stream, peer)| (Stream::Tcp(stream), Some(peer.ip())))
                }
                accepted = local::accept(self.socket.as_ref()) => {
                    accepted.map(|stream| (Stream::Local(stream), None))
                }
                _ = samples.tick() => {
                    let pages = Arc::clone(&self.pages);
                    spawn_blocking(move || pages.sample());
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Beyond the limit a connection is closed at once, so that no prober waits.
                    let Some(left) = open.make_room() else { continue };
                    let from = Connection { peer, is_scarce: left < CONNECTIONS_SPARE };
                    let (pages, stop) = (Arc::clone(&self.pages), stop.clone());
                    let activity = ConnActivity::new();
                    let served = activity.clone();
                    let task = connections.spawn(async move {
                        let answer = move |request: Request<Incoming>| {
                            let (pages, request) = (Arc::clone(&pages), request.map(drop));
                            async move { pages.respond(from, &request).await }
                        };
                        match stream {
                            Stream::Tcp(stream) => serve(stream, answer, served, stop).await,
                            Stream::Local(stream) => serve(stream, answer, served, stop).await,
                        }
                    });
                    open.add(task.abort_handle(), activity);
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
    /// Answers a request, after a while if it is for details.
    async fn respond<B>(
        self: &Arc<Self>,
        connection: Connection,
        request: &Request<B>,
    ) -> Response<Body> {
        match request.uri().path().strip_prefix(API).and_then(Kind::from_path) {
            Some(kind) => Box::pin(self.details(connection, request, kind)).await,
            None => self.answer(connection, request),
        }
    }

    fn answer<B>(&self, connection: Connection, request: &Request<B>) -> Response<Body> {
        if let Some(page) = ZPage::from_path(request.uri().path()) {
            return self.zpage(connection, request, page);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed("GET, HEAD");
        }
        let query = request.uri().query().unwrap_or_default();
        let path = request.uri().path();
        let (page, check) = match path.get(1..).unwrap_or_default().split_once('/') {
            Some((page, check)) => (page, Some(check)),
            None => (path.get(1..).unwrap_or_default(), None),
        };
        match (page, check) {
            ("", None) => self.index(connection, request),
            ("livez", check) => self.health(Endpoint::Live, check, query),
            // kube-apiserver keeps this older name, from before it had two endpoints.
            ("healthz" | "readyz", check) => self.health(Endpoint::Ready, check, query),
            ("metrics", None) => scrape::answer(&self.registry, request.headers()),
            ("metrics", Some("slis")) => {
                scrape::answer(self.checks.observed.registry(), request.headers())
            }
            (name, None) => match page::find(name) {
                Some(file) => self.page(connection, request, file),
                None => not_found(),
            },
            _ => not_found(),
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
            None => not_found(),
        }
    }

    /// Returns a z-page, to those who may see details.
    fn zpage<B>(
        &self,
        connection: Connection,
        request: &Request<B>,
        page: ZPage,
    ) -> Response<Body> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        if let Err(refusal) = detail::check(connection.peer, uri, headers) {
            return text(StatusCode::FORBIDDEN, refusal);
        }
        let Some(zpages) = self.zpages.get() else {
            return text(StatusCode::NOT_FOUND, "off: see admin.detail\n");
        };
        let ZAnswer { status, content_type, body } = zpages.answer(page, method, uri, headers);
        let mut response = respond(status, content_type, body);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(page.methods()));
        }
        detailed(connection.is_scarce, response)
    }

    /// Returns the page to a browser that may see details, and otherwise a list of the paths.
    fn index<B>(&self, connection: Connection, request: &Request<B>) -> Response<Body> {
        let accepted = request.headers().get_all(ACCEPT).iter();
        let mut accepted = accepted.filter_map(|accept| accept.to_str().ok());
        let may_see = detail::check(connection.peer, request.uri(), request.headers()).is_ok();
        if self.api.is_some() && may_see && accepted.any(|accept| accept.contains("text/html")) {
            return self.page(connection, request, &page::HTML);
        }
        let mut response = text(StatusCode::OK, INDEX);
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Returns a file of the page, to those who may see details.
    fn page<B>(
        &self,
        connection: Connection,
        request: &Request<B>,
        file: &PageFile,
    ) -> Response<Body> {
        if let Err(refusal) = self.check_detail(connection, request) {
            return *refusal;
        }
        let response = shared(request, file.content_type, file.answer());
        detailed(connection.is_scarce, response)
    }

    /// Returns the details if the client may see them, or the refusal.
    fn check_detail<B>(
        &self,
        connection: Connection,
        request: &Request<B>,
    ) -> Result<&Api, Box<Response<Body>>> {
        detail::check(connection.peer, request.uri(), request.headers())
            .map_err(|refusal| text(StatusCode::FORBIDDEN, refusal))?;
        Ok(self.api.as_ref().ok_or_else(|| text(StatusCode::NOT_FOUND, OFF))?)
    }

    fn sample(&self) {
        if let Some(api) = &self.api {
            api.sample(&self.checks);
        }
    }
}

/// The beginning of the paths of details.
const API: &str = "/api/";

const OFF: &str = "off: see admin.detail and flowControl.mode\n";

/// The interval of samples for rates, while nobody asks for details.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// With fewer connections left, those of people are closed after each answer.
const CONNECTIONS_SPARE: usize = 16;

/// Responses are small; only a peer that does not read takes longer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a failed accept, which happens when no file descriptor is left. An immediate
/// retry would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
