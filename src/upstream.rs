//! The upstream kube-apiserver: credentials, connection pools, lists and watches, discovery.

pub(crate) mod bounded;
mod connect;
pub mod credentials;
pub mod discovery;
pub mod error;
pub(crate) mod fetch;
pub mod lister_watcher;
pub mod metrics;
mod one_server;
pub mod pool;
pub(crate) mod recent_count;
mod replay;
pub mod request_body;
pub(crate) mod review;
pub(crate) mod self_review;
pub mod send_options;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod traffic_class;
pub mod version;

use std::sync::Arc;

use http::uri::Scheme;
use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::replay::Replay;
use crate::config::{FrontProxyConfig, UpstreamConfig};
use crate::upstream::credentials::{Credentials, PoolIdentity};
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::UpstreamMetrics;
use crate::upstream::pool::{Pool, Single};
pub use crate::upstream::request_body::{RequestBody, empty_body, full_body};
pub use crate::upstream::send_options::SendOptions;
pub use crate::upstream::traffic_class::TrafficClass;

/// The connections to the upstream with one identity. Identities never share connections. Cheap to
/// clone.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

struct Inner {
    credentials: Arc<Credentials>,
    config: UpstreamConfig,
    pool: Pool,
    metrics: UpstreamMetrics,
    /// Stops the task that reloads the credentials when the last clone is dropped.
    _reloader: DropGuard,
}

impl Upstream {
    /// Creates the pool with Weir's own identity. Reads the credentials, but opens no connection
    /// yet. Errors name what to check (file, context, plugin).
    pub async fn new(
        config: &UpstreamConfig,
        metrics: UpstreamMetrics,
    ) -> Result<Self, UpstreamError> {
        Ok(Self::with_credentials(Credentials::load(config).await?, config, &metrics))
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
        let Inner { credentials, config, metrics, .. } = &*self.inner;
        Ok(Self::with_credentials(
            Credentials::derive(credentials, identity).await?,
            config,
            metrics,
        ))
    }

    fn with_credentials(
        credentials: Arc<Credentials>,
        config: &UpstreamConfig,
        metrics: &UpstreamMetrics,
    ) -> Self {
        let metrics = metrics.for_identity(credentials.pool_identity().as_str());
        let cancel = CancellationToken::new();
        tokio::spawn(credentials.clone().follow(cancel.clone()));
        let pool = Pool::new(config, credentials.clone(), metrics.clone());
        let (config, reloader) = (config.clone(), cancel.drop_guard());
        let inner = Inner { credentials, config, pool, metrics, _reloader: reloader };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a request whose URI has only path and query. Sets `Host`/authority and, with Weir's
    /// own identity, its `Authorization`. Removes no headers: the caller removes hop-by-hop
    /// headers, and adds `Connection` and `Upgrade` for [`TrafficClass::Upgrade`].
    ///
    /// Never repeats a request that may have been processed, unless that is harmless
    /// ([`TrafficClass::Read`]). An error shows whether anything was sent. A request that HTTP
    /// marks as not processed (REFUSED_STREAM, a stream above GOAWAY's last one, a connection that
    /// is dead before use) is sent again, if its body is still buffered ([`replay`]).
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
        let sent = self.send_until_processed(class, request, options).await;
        self.count(class, &sent, started);
        sent
    }

    /// Returns the number of connections with this identity that were ever opened.
    pub(crate) fn connections_opened(&self) -> u64 {
        self.inner.pool.connections_opened()
    }

    /// Returns how many exchanges of a class can be in progress at once, if the peer allows as
    /// many. Those with an [`unproven`](SendOptions::unproven) credential are counted apart.
    pub fn streams_max(&self, class: TrafficClass, unproven: bool) -> usize {
        self.inner.pool.streams_max(class, unproven)
    }

    /// Returns how many requests of a class clients can cancel within half a minute before the
    /// connections are worn.
    pub fn resets_max(class: TrafficClass) -> usize {
        Pool::resets_max(class)
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

    /// Returns the upstream's address, for messages.
    pub fn address(&self) -> String {
        self.inner.credentials.current().endpoint.to_string()
    }

    /// Opens a connection of its own for requests in a row.
    async fn single(&self) -> Result<Single, UpstreamError> {
        self.inner.pool.single().await.map_err(|failure| {
            self.inner.metrics.error(failure.error.cause());
            failure.error
        })
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
                if status == StatusCode::UNAUTHORIZED {
                    self.inner.credentials.unauthorized();
                }
            }
            Err(error) => self.inner.metrics.error(error.cause()),
        }
    }

    async fn send_until_processed(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        options: &SendOptions,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let request = self.prepare(request).await?;
        let (request, replay) = Replay::new(request);
        let mut sent = self.inner.pool.send(class, request, options).await;
        for _ in 1..ATTEMPTS_MAX {
            let failure = match sent {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            // An upstream that was unreachable just now still is. Only a request that was lost on
            // an existing connection is repeated.
            if failure.error.is_not_sent() || !failure.unprocessed {
                return Err(failure.error);
            }
            let Some(request) = replay.next_request() else { return Err(failure.error) };
            tracing::debug!(error = %failure.error, "the upstream did not process a request; sending it again");
            sent = self.inner.pool.send(class, request, options).await;
        }
        sent.map_err(|failure| failure.error)
    }

    /// Adds authority, path prefix and credentials to a request.
    async fn prepare(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Request<RequestBody>, UpstreamError> {
        let identity = self.inner.credentials.current();
        let endpoint = &identity.endpoint;
        let path = endpoint
            .path_and_query(request.uri().path_and_query())
            .map_err(|problem| UpstreamError::Request(problem.to_owned()))?;
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if endpoint.https { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(endpoint.authority.clone());
        uri.path_and_query = Some(path);
        *request.uri_mut() = http::Uri::from_parts(uri)
            .map_err(|_| UpstreamError::Request("its path is not valid in a URI".to_owned()))?;
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
        Ok(request)
    }
}

/// The most attempts to send a request. An API server sends a GOAWAY with each response to an
/// unknown user, so that the next connection may get one, too.
const ATTEMPTS_MAX: usize = 3;
