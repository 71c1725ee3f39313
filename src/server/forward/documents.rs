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

mod ask;
mod document;

use std::sync::Arc;
use std::time::Duration;

use http::header::ETAG;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use moka::future::Cache;
use tokio::sync::Semaphore;

use crate::api::request_info::RequestInfo;
use crate::api::status::Status;
use crate::server::connection::Client;
use crate::server::delegate::Reason;
pub(crate) use crate::server::forward::documents::ask::Ask;
use crate::server::forward::documents::ask::Key;
use crate::server::forward::documents::document::Document;
use crate::server::forward::{Carried, Forwarder, relay_answer};
use crate::server::http::headers;
use crate::server::http::response::Outcome;
use crate::server::metrics::{Answer, ServerMetrics};
use crate::upstream::bounded::read_body;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool;

/// See the module.
pub(crate) struct Documents {
    kept: Cache<Key, Kept>,
    /// Who may read a document into memory.
    fetches: Semaphore,
    metrics: ServerMetrics,
}

/// A request and whom it is from.
struct From<'a> {
    forwarder: &'a Forwarder,
    carried: &'a Carried<'a>,
    parts: &'a Parts,
}

impl From<'_> {
    async fn ask(&self, known: Option<&HeaderValue>) -> Result<Response<pool::Body>, Outcome> {
        self.forwarder.ask(self.carried, self.parts, known, REASON).await
    }
}

/// What is known of a key.
#[derive(Clone)]
enum Kept {
    Document(Arc<Document>),
    /// The upstream's answer has no ETag, or is too large: not worth trying again for a while.
    Passed,
}

/// What became of the upstream's answer to a request without a condition.
enum Taken {
    /// Kept; the outcome is for the request that it answers.
    Document(Arc<Document>, Outcome),
    /// Never to be kept; relayed, unless it was too large to be read.
    Passed(Option<Outcome>),
    /// Relayed, or an error.
    Other(Outcome),
}

/// Nothing was kept by a fetch.
#[derive(Debug)]
struct NotKept;

impl Documents {
    pub(crate) fn new(metrics: ServerMetrics) -> Self {
        let weigh = |key: &Key, kept: &Kept| {
            let document = match kept {
                Kept::Document(document) => document.weight(),
                Kept::Passed => 0,
            };
            u32::try_from(key.weight() + document).unwrap_or(u32::MAX)
        };
        let kept = Cache::builder()
            .name("documents")
            .max_capacity(KEPT_BYTES_MAX)
            .weigher(weigh)
            .time_to_live(KEPT_MAX)
            .build();
        Self { kept, fetches: Semaphore::new(FETCHES_MAX), metrics }
    }

    /// Answers from memory as far as the upstream confirms it, else from the upstream.
    pub(crate) async fn serve(
        &self,
        forwarder: &Forwarder,
        client: &Client,
        carried: Carried<'_>,
        request: Request<Incoming>,
        info: &RequestInfo,
        ask: Ask,
    ) -> Outcome {
        let (parts, body) = request.into_parts();
        let from = From { forwarder, carried: &carried, parts: &parts };
        let answered = match self.kept.get(&ask.key).await {
            Some(Kept::Passed) => None,
            Some(Kept::Document(document)) => self.revalidate(&from, &ask, &document).await,
            None => self.fetch(&from, &ask).await,
        };
        match answered {
            Some(outcome) => outcome,
            None => {
                let request = Request::from_parts(parts, body);
                forwarder.forward(client, carried, request, info, REASON, None).await
            }
        }
    }

    /// Asks whether a document is still the current one. `None`: to be forwarded.
    async fn revalidate(&self, from: &From<'_>, ask: &Ask, document: &Document) -> Option<Outcome> {
        let known = ask.known.as_ref() == Some(&document.etag);
        let mut answer = match from.ask(Some(&document.etag)).await {
            Ok(answer) => answer,
            Err(outcome) => return Some(outcome),
        };
        if answer.status() == StatusCode::NOT_MODIFIED {
            if answer.headers().get(ETAG).is_some_and(|etag| *etag != document.etag) {
                return None;
            }
            let mut fresh = std::mem::take(answer.headers_mut());
            let _kept = headers::remove_hop_by_hop(&mut fresh);
            let response = document.confirmed(fresh, known);
            return Some(Outcome { response, answer: Answer::Hit, reason: "revalidated" });
        }
        match self.take(from, answer, ask).await {
            Taken::Document(document, outcome) => {
                self.keep(&ask.key, Kept::Document(document)).await;
                Some(outcome)
            }
            Taken::Passed(outcome) => {
                self.keep(&ask.key, Kept::Passed).await;
                outcome
            }
            Taken::Other(outcome) => Some(outcome),
        }
    }

    /// Fetches a document that is not kept, together with all who want it. `None`: to be forwarded.
    async fn fetch(&self, from: &From<'_>, ask: &Ask) -> Option<Outcome> {
        // What the fetch brought to this very request, if it is the one that fetched.
        let mut own = None;
        let fetch = async {
            match from.ask(None).await {
                Err(outcome) => own = Some(outcome),
                Ok(answer) => match self.take(from, answer, ask).await {
                    Taken::Document(document, outcome) => {
                        own = Some(outcome);
                        return Ok(Kept::Document(document));
                    }
                    Taken::Passed(outcome) => {
                        own = outcome;
                        return Ok(Kept::Passed);
                    }
                    Taken::Other(outcome) => own = Some(outcome),
                },
            }
            Err(NotKept)
        };
        let got = Box::pin(self.kept.try_get_with_by_ref(&ask.key, fetch)).await;
        if own.is_some() {
            self.metrics.documents(self.kept.weighted_size());
            return own;
        }
        match got {
            Ok(Kept::Document(document)) => self.revalidate(from, ask, &document).await,
            Ok(Kept::Passed) | Err(_) => None,
        }
    }

    /// Reads what may be kept of an answer that is not a 304.
    async fn take(&self, from: &From<'_>, answer: Response<pool::Body>, ask: &Ask) -> Taken {
        let relay = |answer| Outcome {
            response: relay_answer(answer, from.carried.hold(), None),
            answer: Answer::Forward,
            reason: REASON.as_str(),
        };
        let large = answer.body().size_hint().lower() > DOCUMENT_BYTES_MAX as u64;
        let etag = Document::etag(answer.status(), answer.headers()).cloned();
        let Some(etag) = etag.filter(|_| !large) else {
            let lasting = answer.status() == StatusCode::OK;
            let outcome = relay(answer);
            return if lasting { Taken::Passed(Some(outcome)) } else { Taken::Other(outcome) };
        };
        let Ok(_permit) = self.fetches.try_acquire() else { return Taken::Other(relay(answer)) };
        let (mut parts, body) = answer.into_parts();
        let _kept = headers::remove_hop_by_hop(&mut parts.headers);
        match read_body(body, DOCUMENT_BYTES_MAX).await {
            Ok(bytes) => {
                let known = ask.known.as_ref() == Some(&etag);
                let document = Arc::new(Document::new(etag, &parts.headers, bytes));
                let response = document.first(parts.headers, known);
                let outcome =
                    Outcome { response, answer: Answer::Forward, reason: REASON.as_str() };
                Taken::Document(document, outcome)
            }
            Err(UpstreamError::TooLong(_)) => Taken::Passed(None),
            Err(error) => {
                tracing::debug!(%error, "a document broke off");
                let status = Status::upstream_lost();
                Taken::Other(Outcome::error(&parts.headers, &status, REASON.as_str()))
            }
        }
    }

    async fn keep(&self, key: &Key, kept: Kept) {
        self.kept.insert(key.clone(), kept).await;
        self.metrics.documents(self.kept.weighted_size());
    }
}

/// Documents are of no resource.
const REASON: Reason = Reason::NonResource;

/// kubectl, client-go and a few others each ask in their own form: some megabytes for each in an ordinary cluster.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// `/openapi/v2` of a cluster with hundreds of CRDs; a larger document is forwarded.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// What reads into memory at a time; whoever comes beyond is forwarded, as a stream.
const FETCHES_MAX: usize = 4;
/// How long what nobody asks for is kept at most, and how long what was too large is not tried again.
const KEPT_MAX: Duration = Duration::from_secs(600);
