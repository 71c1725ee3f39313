//! The connections with one identity: a pool for each API server.
//!
//! A route is an API server and its pool. Routes follow the set of servers: a request that finds
//! another generation of the set replaces them. The pool of a server that left the set closes its
//! connections after their last exchange.
//!
//! With one API server a request loads the routes and sends: there is nothing to choose, and
//! nothing is noted.
//!
//! Lock: `updating`, held while the routes are replaced.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::retry_after::parse_retry_after;
use crate::config::UpstreamConfig;
use crate::config::seams::Dial;
use crate::upstream::credentials::Credentials;
use crate::upstream::endpoints::health::Outcome;
use crate::upstream::endpoints::{ApiServer, Endpoints, Tried};
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::UpstreamMetrics;
use crate::upstream::pool::{Attempt, Body, Pool, SendError, Single};
use crate::upstream::request_body::RequestBody;
use crate::upstream::send_options::{Choice, TrafficClass};

/// The pools of one identity.
pub(super) struct Pools {
    endpoints: Arc<Endpoints>,
    config: UpstreamConfig,
    dial: Option<Dial>,
    credentials: Arc<Credentials>,
    metrics: UpstreamMetrics,
    connections_opened: Arc<AtomicU64>,
    routes: ArcSwap<Routes>,
    updating: Mutex<()>,
}

/// The routes of one generation of the set.
pub(super) struct Routes {
    generation: u64,
    pub(super) by_server: Vec<Arc<Route>>,
}

/// An API server, and the connections to it.
pub(super) struct Route {
    pub(super) server: Arc<ApiServer>,
    pub(super) pool: Pool,
    /// Whether there are no other servers to choose from.
    is_only: AtomicBool,
}

impl Pools {
    pub(super) fn new(
        endpoints: Arc<Endpoints>,
        (config, dial): (&UpstreamConfig, Option<Dial>),
        credentials: Arc<Credentials>,
        metrics: UpstreamMetrics,
    ) -> Self {
        let routes = ArcSwap::from_pointee(Routes { generation: 0, by_server: Vec::new() });
        let connections_opened = Arc::new(AtomicU64::new(0));
        let config = config.clone();
        let updating = Mutex::default();
        Self { endpoints, config, dial, credentials, metrics, connections_opened, routes, updating }
    }

    /// Creates the pools of another identity, to the same servers.
    pub(super) fn for_identity(
        &self,
        credentials: Arc<Credentials>,
        metrics: UpstreamMetrics,
    ) -> Self {
        Self::new(self.endpoints.clone(), (&self.config, self.dial.clone()), credentials, metrics)
    }

    /// Returns the API servers, which all identities share.
    pub(super) fn endpoints(&self) -> &Arc<Endpoints> {
        &self.endpoints
    }

    /// Returns the number of connections that were ever opened.
    pub(super) fn connections_opened(&self) -> u64 {
        self.connections_opened.load(Ordering::Relaxed)
    }

    /// Chooses a route, other than to the `tried` servers; `None` if there is none.
    pub(super) fn choose(
        &self,
        choice: &Choice,
        class: TrafficClass,
        tried: &[u64],
    ) -> Option<Arc<Route>> {
        let routes = self.routes();
        if let ([only], []) = (&*routes.by_server, tried) {
            return Some(Arc::clone(only));
        }
        let servers = routes.by_server.iter().map(|route| &*route.server);
        let is_stream = matches!(class, TrafficClass::Stream | TrafficClass::Upgrade);
        let chosen = self.endpoints.choose(servers, choice, is_stream, tried)?;
        routes.by_server.get(chosen).cloned()
    }

    /// Returns the keys of the servers that are overloaded or not usable, and `key`; `None` if
    /// there are no others.
    pub(super) fn all_but_calm(&self, key: u64) -> Option<Tried> {
        let routes = self.routes();
        let is_excluded = |route: &Route| route.server.key == key || !route.server.is_calm();
        let excluded: Tried = (routes.by_server.iter())
            .filter(|route| is_excluded(route))
            .map(|route| route.server.key)
            .collect();
        (excluded.len() < routes.by_server.len()).then_some(excluded)
    }

    /// Returns the routes to all servers.
    pub(super) fn routes(&self) -> arc_swap::Guard<Arc<Routes>> {
        let routes = self.routes.load();
        if routes.generation == self.endpoints.generation() {
            return routes;
        }
        self.update();
        self.routes.load()
    }

    fn update(&self) {
        let _updating = self.updating.lock();
        let before = self.routes.load();
        // Read before the servers: routes that are too new are replaced once more.
        let generation = self.endpoints.generation();
        if before.generation == generation {
            return;
        }
        let servers = self.endpoints.servers();
        let is_only = servers.len() == 1;
        let route = |server: &Arc<ApiServer>| {
            let is_it = |route: &&Arc<Route>| Arc::ptr_eq(&route.server, server);
            if let Some(route_before) = before.by_server.iter().find(is_it) {
                route_before.is_only.store(is_only, Ordering::Relaxed);
                return route_before.clone();
            }
            let pool = Pool::new(
                server.endpoint.clone(),
                (&self.config, self.dial.clone()),
                self.credentials.clone(),
                self.metrics.clone(),
                self.connections_opened.clone(),
            );
            let is_only = AtomicBool::new(is_only);
            Arc::new(Route { server: server.clone(), pool, is_only })
        };
        let routes = servers.iter().map(route).collect();
        self.routes.store(Arc::new(Routes { generation, by_server: routes }));
    }
}

impl Route {
    /// Returns the URI of a request to this server.
    pub(super) fn uri(&self, path: Option<&PathAndQuery>) -> Result<Uri, UpstreamError> {
        let uri = self.server.endpoint.uri(path);
        uri.map_err(|problem| UpstreamError::Request(problem.to_owned()))
    }

    /// Opens a connection of its own for requests in a row.
    pub(super) async fn single(&self) -> Result<Single, SendError> {
        let started = Instant::now();
        let opened = self.pool.single().await;
        if let Err(failure) = &opened
            && failure.is_transport_failure()
            && !self.is_only()
        {
            self.server.note(Outcome::TransportFailure, started);
        }
        opened
    }

    /// Returns whether there are no other servers.
    pub(super) fn is_only(&self) -> bool {
        self.is_only.load(Ordering::Relaxed)
    }

    /// Sends a request with its final URI, and notes the outcome.
    pub(super) async fn send(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
    ) -> Result<Response<Body>, SendError> {
        let Some(observer) = &attempt.options.attempt_observer else {
            return self.send_and_note(class, request, attempt).await;
        };
        observer.began(self.server.key);
        let sent = self.send_and_note(class, request, attempt).await;
        if let Ok(response) = &sent {
            observer.answered(response.status(), response.headers());
        }
        sent
    }

    async fn send_and_note(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
    ) -> Result<Response<Body>, SendError> {
        self.server.metrics.sent();
        if self.is_only() {
            let sent = self.pool.send(class, request, attempt).await;
            return sent.map(|response| response.map(|body| body.sent_by(self.server.key)));
        }
        let options = attempt.options;
        let is_stream = matches!(class, TrafficClass::Stream | TrafficClass::Upgrade);
        let load = if is_stream { &self.server.streams } else { &self.server.requests };
        let (in_use, started) = (load.begin(), Instant::now());
        let is_get = request.method() == Method::GET;
        let is_read =
            is_get && !is_stream && (options.is_clients_read() || class == TrafficClass::List);
        let is_core_read = is_read && is_of_core(request.uri().path());
        // A second place for this large future would double the size of all that wait for it.
        let sending = Box::pin(self.pool.send(class, request, attempt));
        // The head of a log may come late.
        let may_be_late = is_stream && !options.is_read;
        let sent = if may_be_late { sending.await } else { self.suspect_if_late(sending).await };
        match &sent {
            Ok(response) => {
                if is_read && is_overload(response, is_core_read) {
                    let wait = parse_retry_after(response.headers());
                    self.server.requests.too_many_requests(wait, Instant::now());
                }
                self.note_response(response, is_stream, started);
            }
            Err(failure) if failure.is_transport_failure() => {
                self.server.note(Outcome::TransportFailure, started);
            }
            Err(failure) if failure.by_goaway => self.server.goaway(),
            Err(_) => {}
        }
        sent.map(|response| response.map(|body| body.with_load(in_use).sent_by(self.server.key)))
    }

    /// Asks for a probe of the server if there is no response soon.
    async fn suspect_if_late<T>(&self, mut sending: Pin<Box<impl Future<Output = T>>>) -> T {
        match tokio::time::timeout(LATE_AFTER, &mut sending).await {
            Ok(sent) => sent,
            Err(_) => {
                self.server.suspect();
                sending.await
            }
        }
    }

    fn note_response<B>(&self, response: &Response<B>, is_stream: bool, started: Instant) {
        let now = Instant::now();
        if !is_stream {
            self.server.requests.observe(now - started, now);
        }
        let closes = response.headers().get(CONNECTION).is_some_and(|value| value == "close");
        if closes && response.status() == StatusCode::TOO_MANY_REQUESTS {
            // kube-apiserver refuses so while it shuts down, and only then.
            self.server.shutting_down();
        }
        self.server.note(Outcome::Answered, started);
    }
}

/// How long a response may take before the server is probed. A probe may take two seconds, and the
/// two are how long a read hangs.
pub(super) const LATE_AFTER: Duration = Duration::from_millis(500);

/// Whether the API server itself answers the reads of a path, without an aggregated one.
pub(super) fn is_of_core(path: &str) -> bool {
    path.contains("/api/v1/")
}

/// Whether a response refuses a read because the API server has too much to do. Its filters write
/// plain text. A `Status`, as of a watch cache that is being filled, may come from an aggregated
/// API server instead, unless the read is of the core.
pub(super) fn is_overload<B>(response: &Response<B>, is_of_core: bool) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_text = content_type.is_some_and(|value| value.starts_with(b"text/plain"));
    response.status() == StatusCode::TOO_MANY_REQUESTS && (is_of_core || is_text)
}
