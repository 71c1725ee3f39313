//! Discovery and OpenAPI from memory, where the upstream says by an ETag what it would send (semantics.md §10.2, §10.3): every
//! kubectl asks for them, and they are large.
//!
//! A kept document is served only after the upstream's 304 to this very request, sent in the name of its own client, so that it is as fresh,
//! and its reader as authorized, as without Weir. That is why one copy may serve all clients: the upstream judges each before it looks at
//! the ETag, its 401 or 403 is relayed, and a strong ETag names the bytes, whoever got them first. So it is with what is asked for by its hash and marked immutable too: the bytes can't be others, but once
//! the hash is no longer the current one the upstream answers 301.
//!
//! Requests that miss together share one fetch; all but the first then ask for a 304 of their own, since the fetch may
//! have been answered before they came. What the upstream answers but 200 and 304 is relayed as it is.

mod document;
mod request;

use std::sync::Arc;
use std::time::Duration;

use http::header::ETAG;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use moka::future::Cache;
use tokio::sync::Semaphore;

use crate::api::status::Status;
use crate::server::delegate::Reason;
use crate::server::forward::documents::document::StoredDocument;
pub(crate) use crate::server::forward::documents::request::DocumentRequest;
use crate::server::forward::documents::request::Key;
use crate::server::forward::forwarder::{Forwarder, PreparedRequest};
use crate::server::forward::relay::relay_response;
use crate::server::http::headers;
use crate::server::http::response::Reply;
use crate::server::metrics::{CacheStatus, ServerMetrics};
use crate::server::request::context::RequestContext;
use crate::upstream::bounded::read_body;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool;

/// The discovery and OpenAPI documents in memory.
pub(crate) struct Documents {
    documents: Cache<Key, Document>,
    /// Permits to read a document into memory.
    fetches: Semaphore,
    metrics: ServerMetrics,
}

/// Fetches a document with the identity of a request.
struct Fetcher<'a> {
    forwarder: &'a Forwarder,
    prepared: &'a PreparedRequest<'a>,
    context: &'a RequestContext<'a>,
}

impl Fetcher<'_> {
    async fn fetch(&self, etag: Option<&HeaderValue>) -> Result<Response<pool::Body>, Reply> {
        self.forwarder.fetch(self.prepared, self.context, etag, REASON).await
    }
}

/// The value of a key.
#[derive(Clone)]
enum Document {
    Stored(Arc<StoredDocument>),
    /// The upstream's response has no ETag, or is too large. It is not fetched again for a while.
    Uncacheable,
}

/// The result of the upstream's response to a request without a condition.
enum FetchOutcome {
    /// A document to store, and the reply to the request that fetched it.
    Stored(Arc<StoredDocument>, Reply),
    /// A response that cannot be stored. It is relayed, unless it was too large to be read.
    Uncacheable(Option<Reply>),
    /// A response that was relayed, or an error.
    Other(Reply),
}

/// The error of a fetch that stored nothing.
#[derive(Debug)]
struct NotStored;

impl Documents {
    pub(crate) fn new(metrics: ServerMetrics) -> Self {
        let weigh = |key: &Key, document: &Document| {
            let document = match document {
                Document::Stored(document) => document.weight(),
                Document::Uncacheable => 0,
            };
            u32::try_from(key.weight() + document).unwrap_or(u32::MAX)
        };
        let documents = Cache::builder()
            .name("documents")
            .max_capacity(DOCUMENTS_BYTES_MAX)
            .weigher(weigh)
            .time_to_live(TIME_TO_LIVE)
            .build();
        Self { documents, fetches: Semaphore::new(FETCHES_MAX), metrics }
    }

    /// Replies from memory if the upstream revalidates the document, else with the upstream's response.
    pub(crate) async fn serve(
        &self,
        forwarder: &Forwarder,
        prepared: PreparedRequest<'_>,
        context: &mut RequestContext<'_>,
        body: Incoming,
        request: DocumentRequest,
    ) -> Reply {
        let fetcher = Fetcher { forwarder, prepared: &prepared, context };
        let reply = match self.documents.get(&request.key).await {
            Some(Document::Uncacheable) => None,
            Some(Document::Stored(document)) => {
                self.revalidate(&fetcher, &request, &document).await
            }
            None => self.fetch(&fetcher, &request).await,
        };
        match reply {
            Some(reply) => reply,
            None => forwarder.forward(context, body, prepared, REASON, None).await,
        }
    }

    /// Asks the upstream whether a document is current. `None`: the request must be forwarded.
    async fn revalidate(
        &self,
        fetcher: &Fetcher<'_>,
        request: &DocumentRequest,
        document: &StoredDocument,
    ) -> Option<Reply> {
        let not_modified = request.client_etag.as_ref() == Some(&document.etag);
        let mut response = match fetcher.fetch(Some(&document.etag)).await {
            Ok(response) => response,
            Err(reply) => return Some(reply),
        };
        if response.status() == StatusCode::NOT_MODIFIED {
            if response.headers().get(ETAG).is_some_and(|etag| *etag != document.etag) {
                return None;
            }
            let mut fresh = std::mem::take(response.headers_mut());
            let _kept = headers::remove_hop_by_hop(&mut fresh);
            let response = document.revalidated(fresh, not_modified);
            let (cache_status, reason) = (CacheStatus::Hit, "revalidated");
            return Some(Reply { response, cache_status, reason });
        }
        match self.read(fetcher, response, request).await {
            FetchOutcome::Stored(document, reply) => {
                self.store(&request.key, Document::Stored(document)).await;
                Some(reply)
            }
            FetchOutcome::Uncacheable(reply) => {
                self.store(&request.key, Document::Uncacheable).await;
                reply
            }
            FetchOutcome::Other(reply) => Some(reply),
        }
    }

    /// Fetches a document that is not in memory, once for all concurrent requests. `None`: the request must be forwarded.
    async fn fetch(&self, fetcher: &Fetcher<'_>, request: &DocumentRequest) -> Option<Reply> {
        // The reply to this request, if it is the one that fetches.
        let mut own = None;
        let fetch = async {
            match fetcher.fetch(None).await {
                Err(reply) => own = Some(reply),
                Ok(response) => match self.read(fetcher, response, request).await {
                    FetchOutcome::Stored(document, reply) => {
                        own = Some(reply);
                        return Ok(Document::Stored(document));
                    }
                    FetchOutcome::Uncacheable(reply) => {
                        own = reply;
                        return Ok(Document::Uncacheable);
                    }
                    FetchOutcome::Other(reply) => own = Some(reply),
                },
            }
            Err(NotStored)
        };
        let fetched = Box::pin(self.documents.try_get_with_by_ref(&request.key, fetch)).await;
        if own.is_some() {
            self.metrics.documents(self.documents.weighted_size());
            return own;
        }
        match fetched {
            Ok(Document::Stored(document)) => self.revalidate(fetcher, request, &document).await,
            Ok(Document::Uncacheable) | Err(_) => None,
        }
    }

    /// Reads a response that is not a 304 into memory, if it may be stored.
    async fn read(
        &self,
        fetcher: &Fetcher<'_>,
        response: Response<pool::Body>,
        request: &DocumentRequest,
    ) -> FetchOutcome {
        let relay = |response| {
            let response = relay_response(response, fetcher.prepared.guards(), None);
            Reply::forwarded(response, REASON.as_str())
        };
        let large = response.body().size_hint().lower() > DOCUMENT_BYTES_MAX as u64;
        let etag = StoredDocument::etag(response.status(), response.headers()).cloned();
        let Some(etag) = etag.filter(|_| !large) else {
            let is_ok = response.status() == StatusCode::OK;
            let reply = relay(response);
            return if is_ok {
                FetchOutcome::Uncacheable(Some(reply))
            } else {
                FetchOutcome::Other(reply)
            };
        };
        let Ok(_permit) = self.fetches.try_acquire() else {
            return FetchOutcome::Other(relay(response));
        };
        let (mut parts, body) = response.into_parts();
        let _kept = headers::remove_hop_by_hop(&mut parts.headers);
        match read_body(body, DOCUMENT_BYTES_MAX).await {
            Ok(bytes) => {
                let not_modified = request.client_etag.as_ref() == Some(&etag);
                let document = Arc::new(StoredDocument::new(etag, &parts.headers, bytes));
                let response = document.fetched(parts.headers, not_modified);
                FetchOutcome::Stored(document, Reply::forwarded(response, REASON.as_str()))
            }
            Err(UpstreamError::TooLong(_)) => FetchOutcome::Uncacheable(None),
            Err(error) => {
                tracing::debug!(%error, "a document broke off");
                let status = Status::upstream_lost();
                FetchOutcome::Other(Reply::error(&parts.headers, &status, REASON.as_str()))
            }
        }
    }

    async fn store(&self, key: &Key, document: Document) {
        self.documents.insert(key.clone(), document).await;
        self.metrics.documents(self.documents.weighted_size());
    }
}

/// Documents are of no resource.
const REASON: Reason = Reason::NonResource;

/// kubectl, client-go and a few others each ask in their own form: some megabytes for each in an ordinary cluster.
const DOCUMENTS_BYTES_MAX: u64 = 64 << 20;
/// `/openapi/v2` of a cluster with hundreds of CRDs; a larger document is forwarded.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// What reads into memory at a time; whoever comes beyond is forwarded, as a stream.
const FETCHES_MAX: usize = 4;
/// How long what nobody asks for is kept at most, and how long what was too large is not tried again.
const TIME_TO_LIVE: Duration = Duration::from_secs(600);
