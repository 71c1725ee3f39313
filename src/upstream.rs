//! The upstream kube-apiserver: credentials, connection pools, lists and watches, discovery.

mod attempts;
pub mod availability;
pub(crate) mod bounded;
pub(crate) mod capacity;
mod connect;
pub mod credentials;
pub mod discovery;
mod endpoint_slices;
pub mod endpoints;
pub mod error;
pub(crate) mod fetch;
pub(crate) mod hops;
pub mod lister_watcher;
pub mod metrics;
mod one_server;
pub mod pool;
mod pools;
mod proxy;
mod reached;
pub(crate) mod recent_count;
mod replay;
pub mod request_body;
mod retry_budget;
pub(crate) mod review;
pub(crate) mod self_review;
pub mod send_options;
pub(crate) mod shard_support;
pub(crate) mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod version;

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::pools::Pools;
use self::retry_budget::RetryBudget;
use crate::config::seams::Dial;
use crate::config::{FrontProxyConfig, UpstreamConfig};
use crate::upstream::availability::Availability;
use crate::upstream::credentials::{CertificateExpiries, Credentials, PoolIdentity};
use crate::upstream::endpoints::Endpoints;
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::UpstreamMetrics;
use crate::upstream::pool::Pool;
pub use crate::upstream::request_body::{RequestBody, empty_body, full_body};
pub(crate) use crate::upstream::send_options::{Choice, RequestPurpose};
pub use crate::upstream::send_options::{SendOptions, TrafficClass};

/// The connections to the upstream with one identity. Identities never share connections. Cheap to
/// clone.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

struct Inner {
    credentials: Arc<Credentials>,
    pools: Pools,
    metrics: UpstreamMetrics,
    /// Shared by all identities.
    availability: Availability,
    retries: Arc<RetryBudget>,
    /// Stops the tasks of this identity when the last clone is dropped.
    _tasks: DropGuard,
}

impl Upstream {
    /// Creates the pool with Weir's own identity. Reads the credentials, but opens no connection
    /// yet. Errors name what to check (file, context, plugin).
    pub async fn new(
        config: &UpstreamConfig,
        metrics: UpstreamMetrics,
    ) -> Result<Self, UpstreamError> {
        Self::with_dial(config, None, metrics).await
    }

    /// The same, with what opens its connections; `None` for TCP.
    pub async fn with_dial(
        config: &UpstreamConfig,
        dial: Option<Dial>,
        metrics: UpstreamMetrics,
    ) -> Result<Self, UpstreamError> {
        let credentials = Credentials::load(config).await?;
        let configured = credentials.current().endpoint.clone();
        let endpoints = metrics.endpoints().clone();
        let endpoints = Endpoints::new(&configured, &config.endpoints, endpoints)?;
        let availability = Availability::new(metrics.availability().clone());
        let retries = Arc::new(RetryBudget::new(Instant::now()));
        let cancel = CancellationToken::new();
        tokio::spawn(availability.clone().report(cancel.clone()));
        let pools =
            Pools::new(Arc::new(endpoints), (config, dial), credentials.clone(), metrics.clone());
        Ok(Self::start(credentials, pools, metrics, availability, retries, cancel))
    }

    /// Creates a pool for the same upstream without Weir's own credentials: no client certificate,
    /// no `Authorization`, no impersonation, whatever the kubeconfig contains. It follows changes
    /// of the upstream's certificate authority. Each request carries its client's credential.
    pub async fn bare(&self) -> Result<Self, UpstreamError> {
        self.with_identity(PoolIdentity::Bare).await
    }

    /// Creates a pool for the same upstream with only the certificate of a front proxy. Each
    /// request names its client in the headers that a front proxy may set. The files are read again
    /// when their content changes. Fails for an upstream without TLS.
    pub async fn front_proxy(&self, certificate: &FrontProxyConfig) -> Result<Self, UpstreamError> {
        self.with_identity(PoolIdentity::FrontProxy(certificate.clone())).await
    }

    async fn with_identity(&self, identity: PoolIdentity) -> Result<Self, UpstreamError> {
        let Inner { credentials, pools, metrics, availability, retries, .. } = &*self.inner;
        let credentials = Credentials::derive(credentials, identity).await?;
        let metrics = metrics.for_identity(credentials.pool_identity().as_str());
        let pools = pools.for_identity(credentials.clone(), metrics.clone());
        let (availability, retries) = (availability.clone(), retries.clone());
        let cancel = CancellationToken::new();
        Ok(Self::start(credentials, pools, metrics, availability, retries, cancel))
    }

    fn start(
        credentials: Arc<Credentials>,
        pools: Pools,
        metrics: UpstreamMetrics,
        availability: Availability,
        retries: Arc<RetryBudget>,
        cancel: CancellationToken,
    ) -> Self {
        tokio::spawn(credentials.clone().follow(cancel.clone()));
        let _tasks = cancel.drop_guard();
        let inner = Inner { credentials, pools, metrics, availability, retries, _tasks };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a request whose URI has only path and query. Sets `Host`/authority and, with Weir's
    /// own identity, its `Authorization`. Removes no headers: the caller removes hop-by-hop
    /// headers, and adds `Connection` and `Upgrade` for [`TrafficClass::Upgrade`].
    ///
    /// Never repeats a write that may have been processed. An error shows whether anything was
    /// sent. A request that HTTP marks as not processed (REFUSED_STREAM, a stream above GOAWAY's
    /// last one, a connection that is dead before use) is sent again, if its body is still buffered
    /// ([`replay`]).
    ///
    /// There is no time-out for the response's head. Dropping the future cancels the request
    /// upstream.
    pub async fn send(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        self.send_with(class, request, &SendOptions::default()).await
    }

    /// [`send`](Self::send)s a client's request.
    pub async fn send_with(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        options: &SendOptions,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let started = Instant::now();
        let waiting = self.inner.availability.waiting();
        let bytes = self.inner.metrics.bytes(options.purpose);
        let request = request_body::counted(request, &bytes.sent);
        let sent = self.send_until_processed(class, request, options).await;
        if sent.is_ok() {
            waiting.responded();
        }
        self.count(class, &sent, started);
        sent.map(|response| response.map(|body| body.received_by(&bytes.received)))
    }

    /// Returns whether the upstream is away. All identities share it.
    pub fn availability(&self) -> &Availability {
        &self.inner.availability
    }

    /// Returns the number of connections with this identity that were ever opened.
    pub(crate) fn connections_opened(&self) -> u64 {
        self.inner.pools.connections_opened()
    }

    /// Returns how many exchanges of a class can be in progress at once, if the API servers allow
    /// as many. Those with an [`unproven`](SendOptions::unproven) credential are counted apart.
    pub fn streams_max(&self, class: TrafficClass, unproven: bool) -> usize {
        let routes = self.inner.pools.routes();
        routes.by_server.iter().map(|route| route.pool.streams_max(class, unproven)).sum()
    }

    /// Returns how many requests the connections to one API server carry at once, to the one with
    /// the fewest.
    pub(crate) fn places_of_one(&self) -> usize {
        let routes = self.inner.pools.routes();
        let routes = routes.by_server.iter();
        let places = routes.map(|route| route.pool.streams_max(TrafficClass::Request, false));
        places.min().unwrap_or(usize::MAX)
    }

    /// Returns how many requests of a class clients can cancel within half a minute before the
    /// connections are worn.
    pub fn resets_max(class: TrafficClass) -> usize {
        Pool::resets_max(class)
    }

    /// Returns whether what fills caches should be compressed.
    pub(crate) fn accepts_gzip(&self) -> bool {
        self.inner.credentials.current().accepts_gzip()
    }

    /// Returns the namespace of the kubeconfig's context, or of the pod. An identity with
    /// permissions in only one namespace has them there.
    pub fn default_namespace(&self) -> String {
        self.inner.credentials.current().default_namespace.clone()
    }

    /// Returns whether Weir's own kubeconfig impersonates a user (`as`). Weir then cannot
    /// impersonate its clients.
    pub fn impersonates(&self) -> bool {
        !self.inner.credentials.current().impersonation.is_empty()
    }

    /// Returns the configured address, for messages.
    pub fn address(&self) -> String {
        self.inner.credentials.current().endpoint.to_string()
    }

    /// Returns when the certificates of this identity expire.
    pub(crate) fn certificate_expiries(&self) -> CertificateExpiries {
        self.inner.credentials.current().expiries
    }

    /// Returns the API servers.
    pub(crate) fn endpoints(&self) -> &Arc<Endpoints> {
        self.inner.pools.endpoints()
    }

    /// Counts the outcome of a request. A 401 makes Weir read its credential again.
    fn count(
        &self,
        class: TrafficClass,
        sent: &Result<Response<pool::Body>, UpstreamError>,
        started: Instant,
    ) {
        match sent {
            Ok(response) => {
                let status = response.status();
                self.inner.metrics.response(class, status.as_u16(), started.elapsed());
                self.inner.availability.note_response(started, status);
                if status == StatusCode::UNAUTHORIZED {
                    self.inner.credentials.unauthorized();
                }
            }
            Err(error) => {
                self.inner.metrics.error(error.cause());
                if error.may_be_outage() {
                    self.inner.availability.suspect();
                }
            }
        }
    }

    /// Adds the credentials and this Weir's hop to a request.
    async fn authenticate(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Request<RequestBody>, UpstreamError> {
        let identity = self.inner.credentials.current();
        if !identity.impersonation.is_empty() {
            let headers = request.headers_mut();
            if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
                // The upstream would impersonate the client's choice by Weir's own permissions, and
                // not by those of the user whom Weir impersonates.
                return Err(UpstreamError::Request(
                    "it impersonates a user, and Weir's own kubeconfig already does (as)"
                        .to_owned(),
                ));
            }
            for (name, value) in &identity.impersonation {
                headers.append(name.clone(), value.clone());
            }
        }
        if let Some(value) = identity.token_source.header().await? {
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        self.endpoints().hop.add_to(request.headers_mut());
        Ok(request)
    }
}
