//! The upstream kube-apiserver: credentials, our own connection pools, lists and watches, discovery.

pub(crate) mod bounded;
mod connect;
pub mod credentials;
pub mod discovery;
pub mod error;
pub(crate) mod fetch;
pub mod lister_watcher;
pub mod metrics;
pub mod pool;
mod replay;
pub mod request_body;
pub(crate) mod review;
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
use crate::upstream::pool::Pool;
pub use crate::upstream::request_body::{RequestBody, empty_body, full_body};
pub use crate::upstream::traffic_class::TrafficClass;

/// The connections to one upstream, with one identity (design, section 8): pools of two of these are never mixed. Cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

struct Inner {
    credentials: Arc<Credentials>,
    config: UpstreamConfig,
    pool: Pool,
    metrics: UpstreamMetrics,
    /// Ends the task that follows the credentials' files with the last clone.
    _following: DropGuard,
}

impl Upstream {
    /// Connections with Weir's own identity. Reads credentials and prepares the pools; connects to nothing yet. Errors say what to check
    /// (file, context, plugin).
    pub async fn new(
        config: &UpstreamConfig,
        metrics: UpstreamMetrics,
    ) -> Result<Self, UpstreamError> {
        Ok(Self::with(Credentials::load(config).await?, config, &metrics))
    }

    /// Connections to the same upstream, trusted by the same authority now and later, that show nothing of Weir's own: no client certificate, no
    /// `Authorization`, no impersonation, whatever the kubeconfig has. Who sends is in each request.
    pub async fn bare(&self) -> Result<Self, UpstreamError> {
        self.showing(PoolIdentity::Bare).await
    }

    /// Connections to the same upstream that show the certificate of a front proxy and nothing else; who sends is in the headers that a front
    /// proxy may set. The files are read again when their content changes. Refused for an upstream without TLS.
    pub async fn front_proxy(&self, certificate: &FrontProxyConfig) -> Result<Self, UpstreamError> {
        self.showing(PoolIdentity::FrontProxy(certificate.clone())).await
    }

    async fn showing(&self, shown: PoolIdentity) -> Result<Self, UpstreamError> {
        let Inner { credentials, config, metrics, .. } = &*self.inner;
        Ok(Self::with(Credentials::derive(credentials, shown).await?, config, metrics))
    }

    fn with(
        credentials: Arc<Credentials>,
        config: &UpstreamConfig,
        metrics: &UpstreamMetrics,
    ) -> Self {
        let metrics = metrics.for_identity(credentials.pool_identity().as_str());
        let cancel = CancellationToken::new();
        tokio::spawn(credentials.clone().follow(cancel.clone()));
        let pool = Pool::new(config, credentials.clone(), metrics.clone());
        let (config, following) = (config.clone(), cancel.drop_guard());
        let inner = Inner { credentials, config, pool, metrics, _following: following };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a request whose URI has only path and query. Sets `Host`/authority and, with Weir's own identity, its `Authorization`; strips
    /// nothing else (the caller has removed hop-by-hop headers; for `TrafficClass::Upgrade` it has put `Connection` and `Upgrade` back).
    ///
    /// Never replays what may have been processed, unless that makes no difference ([`TrafficClass::Read`]): an error says whether anything was sent. What HTTP
    /// says was not processed (REFUSED_STREAM, above GOAWAY's last stream, a connection found dead before use) is sent again, if no more was read of its body than is kept ([`again`]).
    ///
    /// Waits for the response's head as long as it takes; dropping the future cancels the request upstream.
    pub async fn send(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let started = Instant::now();
        let sent = self.send_until_processed(class, request).await;
        match &sent {
            Ok(response) => {
                let status = response.status();
                self.inner.metrics.response(class, status.as_u16(), started.elapsed());
                if status == StatusCode::UNAUTHORIZED {
                    self.inner.credentials.unauthorized();
                }
            }
            Err(error) => self.inner.metrics.error(error.cause()),
        }
        sent
    }

    /// How many exchanges of a kind it carries at once, if the peer allows as many.
    pub fn streams_max(&self, class: TrafficClass) -> usize {
        self.inner.pool.streams_max(class)
    }

    /// The namespace of the kubeconfig's context, or of the pod: where an identity with rights in one namespace has them.
    pub fn default_namespace(&self) -> String {
        self.inner.credentials.current().default_namespace.clone()
    }

    /// Whether Weir's own kubeconfig impersonates somebody (`as`): then no client's identity can be carried by impersonation on top.
    pub fn impersonates(&self) -> bool {
        !self.inner.credentials.current().impersonation.is_empty()
    }

    /// The upstream's address, for messages.
    pub fn address(&self) -> String {
        self.inner.credentials.current().endpoint.to_string()
    }

    async fn send_until_processed(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let request = self.complete(request).await?;
        let (request, replay) = Replay::new(request);
        let mut sent = self.inner.pool.send(class, request).await;
        for _ in 1..TRIES_MAX {
            let failure = match sent {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            // Unreachable a moment ago is unreachable now; only what was lost on an old connection is worth another try.
            if failure.error.is_not_sent() || !failure.unprocessed {
                return Err(failure.error);
            }
            let Some(request) = replay.next_request() else { return Err(failure.error) };
            tracing::debug!(error = %failure.error, "the upstream did not process a request; sending it again");
            sent = self.inner.pool.send(class, request).await;
        }
        sent.map_err(|failure| failure.error)
    }

    /// Puts authority, path prefix and identity into a request.
    async fn complete(
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
            .map_err(|_| UpstreamError::Request("its path is not one".to_owned()))?;
        if !identity.impersonation.is_empty() {
            let headers = request.headers_mut();
            if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
                // Theirs over ours would act as somebody whom the upstream may not let Weir's user become.
                return Err(UpstreamError::Request(
                    "it impersonates, and Weir's own kubeconfig does already (as)".to_owned(),
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

/// An API server says GOAWAY with each answer to someone whom it does not know, and the next connection may be told so too.
const TRIES_MAX: usize = 3;
