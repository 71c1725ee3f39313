//! [`ListWatch`] over HTTP.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::exact::{self, EXACT_BYTES_MAX};
use super::list_watch::{
    Answer, ExactRequest, ExactServer, ListRequest, ListWatch, WatchRequest, WatchStream,
};
use super::query::{accept, list_query, watch_query};
use super::responses::{newest, warnings_of};
use super::stream::HttpWatch;
use crate::api::resource::{ApiResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::codec::list::{self, ListPage};
use crate::tasks::spawn_blocking;
use crate::upstream::bounded::{read_decompressed, with_timeout};
use crate::upstream::discovery::Discovery;
use crate::upstream::endpoints::ApiServer;
use crate::upstream::endpoints::pin::Pin;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::{self, Get};
use crate::upstream::one_server::OneServer;
use crate::upstream::reached::{REACH_TIMEOUT, server_at};
use crate::upstream::self_review::may_list_and_watch;
use crate::upstream::version::{self, UpstreamVersion};
use crate::upstream::{Choice, RequestPurpose, TrafficClass, Upstream, pool};

/// The time-out of a watch's response head. The upstream responds at once, or after waiting up to 3
/// s for freshness. After ten times as long, it hangs.
const WATCH_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a part of a collection may take that is read to check a cache. A slow one proves
/// nothing.
const EXACT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait until an API server has caught up: it asks etcd for its progress at once, and
/// every 100 ms from then on.
const CATCH_UP_TIMEOUT: Duration = Duration::from_millis(500);
/// How many API servers may be asked to catch up, one after the other.
const CATCH_UP_ATTEMPTS: u32 = 2;
/// Larger lists are parsed on a blocking thread, so that no runtime worker stalls for milliseconds.
const PARSE_INLINE_MAX_BYTES: usize = 1024 * 1024;

/// Lists and watches one resource in one representation and scope.
pub struct HttpListWatch {
    pub(super) upstream: Upstream,
    /// The API server that the reflector uses.
    pub(super) pin: Arc<Pin>,
    resource: Arc<ApiResource>,
    path: String,
    scope: Scope,
    representation: Representation,
    pub(super) max_list_bytes: Box<dyn Fn() -> usize + Send + Sync>,
    version: watch::Receiver<Option<UpstreamVersion>>,
    warnings: Mutex<Vec<HeaderValue>>,
    /// Knows whether the API server itself answers for the resource.
    discovery: Option<Discovery>,
}

impl HttpListWatch {
    /// A list or page of more than `max_list_bytes` returns when it is read is an
    /// [`UpstreamError::TooLong`]. `version` is the upstream's, once known.
    pub fn new(
        upstream: Upstream,
        resource: Arc<ApiResource>,
        scope: &Scope,
        representation: Representation,
        max_list_bytes: impl Fn() -> usize + Send + Sync + 'static,
        version: watch::Receiver<Option<UpstreamVersion>>,
    ) -> Self {
        let path = resource.gvr.collection_path(scope);
        Self {
            upstream,
            pin: Arc::new(Pin::new(&path)),
            resource,
            path,
            scope: scope.clone(),
            representation,
            max_list_bytes: Box::new(max_list_bytes),
            version,
            warnings: Mutex::default(),
            discovery: None,
        }
    }

    /// Lets discovery say whether the API server itself answers for the resource.
    pub(crate) fn with_discovery(self, discovery: Discovery) -> Self {
        Self { discovery: Some(discovery), ..self }
    }

    async fn get(
        &self,
        query: &str,
        class: TrafficClass,
        timeout: Duration,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let path_and_query = self.path_and_query(query);
        self.send(self.request(&path_and_query, class, timeout)).await
    }

    async fn send(&self, get: Get<'_>) -> Result<Response<pool::Body>, UpstreamError> {
        let response = get.send_by(&self.upstream, self.choice()).await?;
        *self.warnings.lock() = warnings_of(response.headers());
        Ok(response)
    }

    pub(super) fn choice(&self) -> Choice {
        Choice::Pinned(self.pin.clone())
    }

    pub(super) fn path_and_query(&self, query: &str) -> String {
        let separator = if query.is_empty() { "" } else { "?" };
        format!("{}{separator}{query}", self.path)
    }

    pub(super) fn request<'a>(
        &self,
        path_and_query: &'a str,
        class: TrafficClass,
        timeout: Duration,
    ) -> Get<'a> {
        let accept = accept(self.representation, class);
        Get {
            accept,
            // The API server compresses lists of more than 128 KiB, and watch-lists since 1.37.
            accepts_gzip: self.upstream.accepts_gzip(),
            class,
            purpose: RequestPurpose::Cache,
            timeout,
            ..Get::json(path_and_query)
        }
    }

    /// Returns a connection to an API server that has reached `resource_version`.
    async fn caught_up(
        &self,
        resource_version: ResourceVersion,
    ) -> Result<OneServer, UpstreamError> {
        let choice = self.choice();
        let mut failure = UpstreamError::Timeout(CATCH_UP_TIMEOUT);
        for _ in 0..CATCH_UP_ATTEMPTS {
            let connect = OneServer::connect_by(&self.upstream, &choice);
            let (path, purpose) = (&self.path, RequestPurpose::Cache);
            match server_at(connect, path, resource_version, purpose, CATCH_UP_TIMEOUT).await {
                Ok(Some(server)) => return Ok(server),
                Ok(None) => {}
                Err(error) => failure = error,
            }
            tracing::debug!(%failure, "an API server does not catch up");
        }
        Err(failure)
    }

    /// Parses the body of a list.
    async fn parse_list(&self, response: Response<pool::Body>) -> Result<ListPage, UpstreamError> {
        self.parse_as(response, self.representation, (self.max_list_bytes)()).await
    }

    /// Parses the body of a list in a representation.
    async fn parse_as(
        &self,
        response: Response<pool::Body>,
        representation: Representation,
        bytes_max: usize,
    ) -> Result<ListPage, UpstreamError> {
        let body = read_decompressed(response, bytes_max).await?;
        let length = body.len();
        let malformed = |error: &dyn std::fmt::Display| UpstreamError::Malformed(error.to_string());
        let resource = self.resource.clone();
        let parse = move || list::parse(&body, &resource, representation);
        let parsed = if length <= PARSE_INLINE_MAX_BYTES {
            parse()
        } else {
            let work = spawn_blocking(parse);
            work.await.map_err(|error| malformed(&error))?
        };
        parsed.map_err(|error| malformed(&error))
    }

    /// Fetches a list from one API server.
    async fn list_at(
        &self,
        mut server: OneServer,
        path_and_query: &str,
    ) -> Result<ListPage, UpstreamError> {
        let get = self.request(path_and_query, TrafficClass::Request, fetch::HEAD_TIMEOUT);
        let response = get.send_to(&mut server).await?;
        self.parse_list(response).await
    }

    /// Returns the API servers in use, without that of the last request.
    fn other_servers(&self) -> Vec<Arc<ApiServer>> {
        let current = self.pin.current();
        let mut servers = self.upstream.endpoints().in_use();
        match servers.len() {
            1 => servers.clear(),
            _ => servers.retain(|server| Some(server.key) != current),
        }
        servers
    }
}

impl ListWatch for HttpListWatch {
    fn list(&self, request: ListRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            let query = list_query(&request);
            let response = self.get(&query, TrafficClass::Request, fetch::HEAD_TIMEOUT).await?;
            self.parse_list(response).await
        })
    }

    fn list_elsewhere(&self, request: ListRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            let path_and_query = self.path_and_query(&list_query(&request));
            let other_servers = self.other_servers();
            if other_servers.is_empty() {
                let server = OneServer::connect_elsewhere(&self.upstream, &self.pin).await?;
                return self.list_at(server, &path_and_query).await;
            }
            let lists = other_servers.iter().map(async |server| {
                let server = OneServer::connect_to(&self.upstream, server).await?;
                self.list_at(server, &path_and_query).await
            });
            newest(futures_util::future::join_all(lists).await)
        })
    }

    fn exact(&self, request: ExactRequest) -> Answer<'_, ListPage> {
        Box::pin(async move {
            let path_and_query = exact::path_and_query(&request, &self.resource, &self.scope);
            let representation = exact::representation(&request, self.representation);
            let class = TrafficClass::Request;
            let get = Get {
                accept: accept(representation, class),
                ..self.request(&path_and_query, class, EXACT_TIMEOUT)
            };
            let read = async {
                let other_servers = self.other_servers();
                let other = fastrand::choice(&other_servers).map(|server| Choice::Only(server.key));
                let response = match (request.server, other) {
                    (ExactServer::OtherIfKnown | ExactServer::Elsewhere, Some(other)) => {
                        get.send_by(&self.upstream, other).await?
                    }
                    (ExactServer::Elsewhere, None) => {
                        let elsewhere = OneServer::connect_elsewhere(&self.upstream, &self.pin);
                        get.send_to(&mut elsewhere.await?).await?
                    }
                    (ExactServer::Own | ExactServer::OtherIfKnown, _) => {
                        get.send_by(&self.upstream, self.choice()).await?
                    }
                };
                self.parse_as(response, representation, EXACT_BYTES_MAX).await
            };
            with_timeout(EXACT_TIMEOUT, read).await
        })
    }

    fn has_reached(&self, resource_version: ResourceVersion) -> Answer<'_, bool> {
        Box::pin(async move {
            let Some(key) = self.pin.unconfirmed() else { return Ok(true) };
            let choice = Choice::Only(key);
            let connect = OneServer::connect_by(&self.upstream, &choice);
            let (path, purpose) = (&self.path, RequestPurpose::Cache);
            let server = server_at(connect, path, resource_version, purpose, REACH_TIMEOUT).await?;
            Ok(server.is_some() && self.pin.confirm(key))
        })
    }

    fn leave_server(&self) -> bool {
        self.pin.leave(Instant::now());
        self.upstream.endpoints().in_use().len() > 1
    }

    fn leave_server_of_watch(&self) -> bool {
        self.pin.leave_watched(Instant::now());
        self.upstream.endpoints().in_use().len() > 1
    }

    fn cluster_uid(&self) -> Answer<'_, Option<String>> {
        Box::pin(version::cluster_uid(&self.upstream))
    }

    fn connections_opened(&self) -> u64 {
        self.upstream.connections_opened()
    }

    fn is_local(&self) -> BoxFuture<'_, bool> {
        match &self.discovery {
            Some(discovery) => Box::pin(discovery.is_local(&self.resource.gvr)),
            None => Box::pin(std::future::ready(true)),
        }
    }

    /// Protobuf is excluded: a watch-list is faster there.
    fn streams_lists(&self) -> bool {
        let version = self.version.borrow();
        self.representation == Representation::Json
            && version.as_ref().is_some_and(UpstreamVersion::streams_lists)
    }

    fn stream_list(&self, request: ListRequest) -> Answer<'_, Box<dyn WatchStream>> {
        Box::pin(async move {
            let query = list_query(&request);
            let response = self.get(&query, TrafficClass::List, fetch::HEAD_TIMEOUT).await?;
            let list = HttpWatch::list(response, self.resource.clone());
            Ok(Box::new(list) as Box<dyn WatchStream>)
        })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Box<dyn WatchStream>> {
        Box::pin(async move {
            let query = watch_query(&request);
            let path_and_query = self.path_and_query(&query);
            let mut get = self.request(&path_and_query, TrafficClass::Stream, WATCH_HEAD_TIMEOUT);
            // A watch-list of nothing shows whether the API server compresses them.
            get.accepts_gzip |= request.send_initial_events && request.match_nothing;
            let accepts_gzip = get.accepts_gzip;
            let response = match request.after_reaching {
                None => self.send(get).await?,
                Some(resource_version) => {
                    let mut server = self.caught_up(resource_version).await?;
                    get.send_to(&mut server).await?
                }
            };
            let resource = self.resource.clone();
            // A probe may have moved the pin meanwhile.
            let server = response.body().server();
            let watch = HttpWatch::watch(response, resource, self.representation, accepts_gzip);
            if let Some(server) = server {
                self.pin.opened(server);
            }
            let server = server.and_then(|key| self.upstream.endpoints().one_of_several(key));
            Ok(Box::new(watch.leaving(server)) as Box<dyn WatchStream>)
        })
    }

    fn is_allowed(&self) -> Answer<'_, bool> {
        Box::pin(async move {
            let gvr = &self.resource.gvr;
            let namespace = match &self.scope {
                Scope::Cluster => "",
                Scope::Namespace(namespace) => namespace,
            };
            may_list_and_watch(&self.upstream, &gvr.group, &gvr.resource, namespace).await
        })
    }

    fn warnings(&self) -> Vec<HeaderValue> {
        self.warnings.lock().clone()
    }
}
