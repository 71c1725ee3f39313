//! Discovery and OpenAPI documents in memory, revalidated by the upstream with their ETags
//! (`docs/semantics.md` §10.2, §10.3). Every kubectl requests them, and they are large.
//!
//! A stored document is served only after the upstream's 304 to the same request, sent with the
//! identity of its client. The response is therefore as fresh, and its reader as authorized, as
//! without Weir. This is why one copy can serve all clients: the upstream authorizes each client
//! before it compares the ETag, its 401 or 403 is relayed, and a strong ETag identifies the bytes,
//! whichever client fetched them first. The same applies to documents that are requested by their
//! hash and marked immutable: their bytes cannot differ, but when the hash is no longer current the
//! upstream returns 301 (`docs/decisions/uncached-resources.md`).
//!
//! Of concurrent requests for a document that is not in memory a few fetch and store it, and the
//! others are forwarded: none waits for the place of another in flow control. Responses other than
//! 200 and 304 are relayed unchanged.
//!
//! While no API server is usable, a stored document is served to clients that Weir may authorize
//! itself, with its age (`docs/decisions/upstream-away.md`).

mod document;
mod request;

use std::sync::Arc;
use std::time::Duration;

use http::header::ETAG;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use moka::sync::Cache;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::status::Status;
use crate::cache::registry::Registry;
use crate::codec::held_bytes::HeldBytes;
use crate::server::delegate::Reason;
use crate::server::forward::documents::document::StoredDocument;
pub(crate) use crate::server::forward::documents::request::DocumentRequest;
use crate::server::forward::documents::request::Key;
use crate::server::forward::forwarder::{Forwarder, PreparedRequest};
use crate::server::forward::relay::relay_response;
use crate::server::http::audit_id::audit_id;
use crate::server::http::body::Body;
use crate::server::http::headers::{self, StateAge};
use crate::server::http::response::Reply;
use crate::server::metrics::ServerMetrics;
use crate::server::request::context::RequestContext;
use crate::server::request::holds::Holds;
use crate::upstream::bounded::read_body;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool;

pub(crate) struct Documents {
    documents: Cache<Key, Arc<StoredDocument>>,
    /// The requests whose responses have no ETag, or are too large. They are forwarded for a while.
    uncacheable: Cache<Key, ()>,
    fetches: Semaphore,
    /// Counts documents that are no longer stored and that clients still read.
    held: HeldBytes,
    metrics: ServerMetrics,
    /// Knows the largest age of a document that is not revalidated (`cache.maxStaleness`).
    registry: Registry,
}

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

/// The result of the upstream's response to a request without a condition.
enum FetchOutcome {
    /// A document to store, and the reply to the request that fetched it.
    Stored(Arc<StoredDocument>, Reply),
    /// A response that cannot be stored. It is relayed, unless it was too large to be read.
    Uncacheable(Option<Reply>),
    /// A response that was relayed, or an error.
    Other(Reply),
}

impl Documents {
    pub(crate) fn new(held: HeldBytes, metrics: ServerMetrics, registry: Registry) -> Self {
        let weigh = |key: &Key, document: &Arc<StoredDocument>| {
            u32::try_from(key.weight() + document.weight()).unwrap_or(u32::MAX)
        };
        let documents = Cache::builder()
            .name("documents")
            .max_capacity(DOCUMENTS_BYTES_MAX)
            .weigher(weigh)
            .time_to_idle(UNUSED_TIME_MAX)
            .eviction_listener(|_, document: Arc<StoredDocument>, _| document.count_as_held())
            .build();
        let uncacheable = Cache::builder()
            .name("uncacheable-documents")
            .max_capacity(UNCACHEABLE_MAX)
            .time_to_live(UNCACHEABLE_FOR)
            .build();
        let fetches = Semaphore::new(FETCHES_MAX);
        Self { documents, uncacheable, fetches, held, metrics, registry }
    }

    /// Replies from memory if the upstream revalidates the document, else with the upstream's
    /// response.
    pub(crate) async fn serve(
        &self,
        forwarder: &Forwarder,
        prepared: PreparedRequest<'_>,
        context: &mut RequestContext<'_>,
        body: Incoming,
        request: DocumentRequest,
    ) -> Reply {
        let fetcher = Fetcher { forwarder, prepared: &prepared, context };
        let reply = if self.uncacheable.contains_key(&request.key) {
            None
        } else {
            let document = self.documents.get(&request.key);
            self.ask(&fetcher, &request, document.as_deref()).await
        };
        match reply {
            Some(reply) => reply,
            None => forwarder.forward(context, body.into(), prepared, (REASON, None)).await,
        }
    }

    /// Returns a response from memory without asking the upstream, which is away. The client must
    /// have been authorized.
    pub(crate) fn serve_unverified(
        &self,
        headers: &HeaderMap,
        request: &DocumentRequest,
    ) -> Option<Response<Body>> {
        let document = self.documents.get(&request.key)?;
        let age = document.age();
        if self.registry.config().max_staleness.is_some_and(|max| age > max) {
            return None;
        }
        let not_modified = request.client_etag.as_ref() == Some(&document.etag);
        let mut response = document.unverified(audit_id(headers), not_modified);
        response.extensions_mut().insert(StateAge { age, is_away: true });
        Some(response)
    }

    /// Asks the upstream for a document, or whether the one in memory is current. Returns `None` if
    /// the request must be forwarded.
    async fn ask(
        &self,
        fetcher: &Fetcher<'_>,
        request: &DocumentRequest,
        document: Option<&StoredDocument>,
    ) -> Option<Reply> {
        // Without a permit the client's own condition is forwarded, and the answer may be a 304.
        let permit = match document {
            None => Some(self.permit()?),
            Some(_) => None,
        };
        let mut response = match fetcher.fetch(document.map(|document| &document.etag)).await {
            Ok(response) => response,
            Err(reply) => return Some(reply),
        };
        if let (Some(document), StatusCode::NOT_MODIFIED) = (document, response.status()) {
            if response.headers().get(ETAG).is_some_and(|etag| *etag != document.etag) {
                return None;
            }
            document.set_current();
            let mut fresh = std::mem::take(response.headers_mut());
            let _kept = headers::remove_hop_by_hop(&mut fresh);
            let not_modified = request.client_etag.as_ref() == Some(&document.etag);
            let response = document.revalidated(fresh, not_modified);
            return Some(Reply::hit(response, "revalidated"));
        }
        match self.read(fetcher, response, request, permit).await {
            FetchOutcome::Stored(document, reply) => {
                self.documents.insert(request.key.clone(), document);
                self.metrics.documents(self.documents.weighted_size());
                Some(reply)
            }
            FetchOutcome::Uncacheable(reply) => {
                self.documents.invalidate(&request.key);
                self.uncacheable.insert(request.key.clone(), ());
                reply
            }
            FetchOutcome::Other(reply) => Some(reply),
        }
    }

    /// Acquires a permit to read a document into memory, if there is room for one.
    fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.fetches.try_acquire().ok().filter(|_| !self.held.is_full())
    }

    /// Reads a response that is not a 304 into memory, if it may be stored.
    async fn read(
        &self,
        fetcher: &Fetcher<'_>,
        response: Response<pool::Body>,
        request: &DocumentRequest,
        permit: Option<SemaphorePermit<'_>>,
    ) -> FetchOutcome {
        let relay = |response| {
            let quota = fetcher.context.holds.quota.clone();
            let holds = Box::new(Holds { quota, ..Holds::default() });
            let response = relay_response(response, holds, None, None);
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
        let Some(_permit) = permit.or_else(|| self.permit()) else {
            return FetchOutcome::Other(relay(response));
        };
        let (mut parts, body) = response.into_parts();
        let _kept = headers::remove_hop_by_hop(&mut parts.headers);
        match read_body(body, DOCUMENT_BYTES_MAX).await {
            Ok(bytes) => {
                let not_modified = request.client_etag.as_ref() == Some(&etag);
                let document = StoredDocument::new(etag, &parts.headers, bytes, self.held.clone());
                let document = Arc::new(document);
                let response = document.fetched(parts.headers, not_modified);
                FetchOutcome::Stored(document, Reply::forwarded(response, REASON.as_str()))
            }
            Err(UpstreamError::TooLong(_)) => FetchOutcome::Uncacheable(None),
            Err(error) => {
                tracing::debug!(%error, "the body of a document broke off");
                let status = Status::upstream_lost();
                FetchOutcome::Other(Reply::error(&parts.headers, &status, REASON.as_str()))
            }
        }
    }
}

/// The reason in responses: documents belong to no resource.
const REASON: Reason = Reason::NonResource;

/// Limit on the bytes of all documents. kubectl, client-go and a few other clients each request
/// their own form, which takes some megabytes each in an ordinary cluster.
const DOCUMENTS_BYTES_MAX: u64 = 64 << 20;
/// Limit on the bytes of one document: `/openapi/v2` of a cluster with hundreds of CRDs. A larger
/// document is forwarded.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Limit on concurrent reads into memory. Requests beyond it are forwarded as streams, and so are
/// all while responses hold too much memory.
const FETCHES_MAX: usize = 4;
/// How long a document that no client requests stays in memory.
const UNUSED_TIME_MAX: Duration = Duration::from_secs(3600);
/// How long a document that cannot be stored is not read again.
const UNCACHEABLE_FOR: Duration = Duration::from_secs(600);
/// Limit on the requests that are remembered for it.
const UNCACHEABLE_MAX: u64 = 1_000;
