//! [`ListWatch`] over HTTP.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::list_watch::{ListRequest, ListWatch, WatchRequest};
use super::stream::HttpWatch;
use crate::api::resource::{ApiResource, Representation, Scope};
use crate::codec::list::{self, ListPage};
use crate::upstream::bounded::read_body;
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::{self, Get, encode_query};
use crate::upstream::version::UpstreamVersion;
use crate::upstream::{TrafficClass, Upstream, pool};

/// The time-out of a watch's response head. The upstream responds at once, or after waiting up to 3
/// s for freshness. After ten times as long, it hangs.
const WATCH_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Larger lists are parsed on a blocking thread, so that no runtime worker stalls for milliseconds.
const PARSE_INLINE_MAX_BYTES: usize = 1024 * 1024;
/// The most warnings that are kept of a response. The upstream sends one for a deprecated API.
const WARNINGS_MAX: usize = 16;

/// Lists and watches one resource in one representation and scope.
pub struct HttpListWatch {
    upstream: Upstream,
    resource: Arc<ApiResource>,
    path: String,
    representation: Representation,
    max_list_bytes: usize,
    version: watch::Receiver<Option<UpstreamVersion>>,
    warnings: Mutex<Vec<String>>,
}

impl HttpListWatch {
    /// A list or page of more than `max_list_bytes` is an [`UpstreamError::TooLong`]. `version` is
    /// the upstream's, once known.
    pub fn new(
        upstream: Upstream,
        resource: Arc<ApiResource>,
        scope: &Scope,
        representation: Representation,
        max_list_bytes: usize,
        version: watch::Receiver<Option<UpstreamVersion>>,
    ) -> Self {
        let path = resource.gvr.collection_path(scope);
        let warnings = Mutex::default();
        Self { upstream, resource, path, representation, max_list_bytes, version, warnings }
    }

    async fn get(
        &self,
        query: &str,
        class: TrafficClass,
        timeout: Duration,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let separator = if query.is_empty() { "" } else { "?" };
        let path_and_query = format!("{}{separator}{query}", self.path);
        let accept = accept(self.representation, class);
        let get = Get { accept, class, timeout, ..Get::json(&path_and_query) };
        let response = get.send(&self.upstream).await?;
        *self.warnings.lock() = warnings_of(response.headers());
        Ok(response)
    }
}

impl ListWatch for HttpListWatch {
    type Watch = HttpWatch;

    async fn list(&self, request: ListRequest) -> Result<ListPage, UpstreamError> {
        let query = list_query(&request);
        let response = self.get(&query, TrafficClass::Request, fetch::HEAD_TIMEOUT).await?;
        let body = read_body(response.into_body(), self.max_list_bytes).await?;
        let length = body.len();
        let malformed = |error: &dyn std::fmt::Display| UpstreamError::Malformed(error.to_string());
        let (resource, representation) = (self.resource.clone(), self.representation);
        let parse = move || list::parse(&body, &resource, representation);
        let parsed = if length <= PARSE_INLINE_MAX_BYTES {
            parse()
        } else {
            let work = tokio::task::spawn_blocking(parse);
            work.await.map_err(|error| malformed(&error))?
        };
        parsed.map_err(|error| malformed(&error))
    }

    /// Protobuf is excluded: a watch-list is faster there.
    fn streams_lists(&self) -> bool {
        let version = self.version.borrow();
        self.representation == Representation::Json
            && version.as_ref().is_some_and(UpstreamVersion::streams_lists)
    }

    async fn stream_list(&self, request: ListRequest) -> Result<HttpWatch, UpstreamError> {
        let query = list_query(&request);
        let response = self.get(&query, TrafficClass::List, fetch::HEAD_TIMEOUT).await?;
        Ok(HttpWatch::list(response.into_body(), self.resource.clone()))
    }

    async fn watch(&self, request: WatchRequest) -> Result<HttpWatch, UpstreamError> {
        let query = watch_query(&request);
        let response = self.get(&query, TrafficClass::Stream, WATCH_HEAD_TIMEOUT).await?;
        let resource = self.resource.clone();
        Ok(HttpWatch::watch(response.into_body(), resource, self.representation))
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }
}

/// Returns the `Accept` header. The kind of a metadata-only response differs between lists and
/// watches (`docs/semantics.md` §8.1).
fn accept(representation: Representation, class: TrafficClass) -> &'static str {
    let watch = matches!(class, TrafficClass::Stream);
    match (representation, watch) {
        (Representation::Json, _) => "application/json",
        (Representation::Protobuf, _) => "application/vnd.kubernetes.protobuf",
        (Representation::MetadataJson, false) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        }
        (Representation::MetadataJson, true) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
        (Representation::MetadataProtobuf, false) => {
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        }
        (Representation::MetadataProtobuf, true) => {
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
    }
}

fn list_query(request: &ListRequest) -> String {
    let mut query = Vec::new();
    if let Some(limit) = request.limit {
        query.push(format!("limit={limit}"));
    }
    if !request.continue_token.is_empty() {
        query.push(format!("continue={}", encode_query(&request.continue_token)));
    }
    if let Some(resource_version) = request.resource_version {
        query.push(format!("resourceVersion={resource_version}"));
    }
    if !request.resource_version_match.is_empty() {
        query.push(format!("resourceVersionMatch={}", request.resource_version_match));
    }
    query.join("&")
}

fn watch_query(request: &WatchRequest) -> String {
    let mut query =
        format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}", request.timeout_seconds);
    if let Some(resource_version) = request.resource_version {
        query.push_str(&format!("&resourceVersion={resource_version}"));
    }
    if request.send_initial_events {
        query.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    }
    if request.match_nothing {
        query.push_str(MATCH_NOTHING);
    }
    query
}

fn warnings_of(headers: &HeaderMap) -> Vec<String> {
    let mut warnings = Vec::new();
    for value in headers.get_all(http::header::WARNING) {
        if let Ok(text) = value.to_str()
            && warnings.len() < WARNINGS_MAX
            && !warnings.iter().any(|known| known == text)
        {
            warnings.push(text.to_owned());
        }
    }
    warnings
}

/// `weir.dev/none,!weir.dev/none`: a selector that no object matches.
const MATCH_NOTHING: &str = "&labelSelector=weir.dev%2Fnone%2C%21weir.dev%2Fnone";
