//! Shadow mode: which reads are copied, and the answers of caches that they are compared with.
//!
//! A comparison runs beside the client's request, with a head of its own and the same sender. It
//! goes the way of a request for a cache: the resource, the user and the permission, the cache. It
//! is not logged to the audit log, and takes nothing from its client's limits.

mod answer;
mod confirm;
mod frames;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Router;
use crate::api::request_info::{RequestInfo, Verb};
use crate::codec::held_bytes::HeldBytes;
use crate::config::ConsistentLists;
use crate::server::cached::at_state::NoAnswer;
use crate::server::cached::read::CachedRead;
use crate::server::delegate::{self, CachedDecision, Freshness, Reason, Target};
use crate::server::forward::documents::DocumentRequest;
use crate::server::http::body::Body;
use crate::server::http::headers;
use crate::server::http::response::error_response;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::Bypass;
use crate::server::request::resolved::Resolved;
use crate::server::shadow::comparison::Comparison;
use crate::server::shadow::copy::AnswerCopy;
use crate::server::shadow::ledger::{DifferingPart, Measured};
use crate::server::shadow::outcome::{Cause, Outcome};
use crate::server::shadow::request::{ReadKind, ShadowRequest, head_of};
use crate::server::shadow::{Charged, Shadow};

impl Router {
    /// Prepares the copy of a read's answer, if it is to be compared. Returns the reason to forward
    /// the request, which every one is in shadow mode; `None` in others.
    pub(super) fn copy_answer(&self, context: &mut RequestContext<'_>) -> Option<Reason> {
        let shadow = self.shadow.as_ref()?;
        let (parts, info) = (&*context.parts, &context.info);
        let is_read = matches!(info.verb, Verb::Get | Verb::List | Verb::Watch);
        let forwards = context.decision.as_ref().err().copied();
        let decision = match forwards {
            // A cache has the same states, and lacks only the proof that they are fresh.
            Some(Reason::Consistent) if info.verb == Verb::Get => {
                Ok(CachedDecision::Get(Freshness::Any))
            }
            Some(Reason::Consistent) => {
                delegate::decide(parts, context.has_body, info, ConsistentLists::Always)
            }
            _ => context.decision.clone(),
        };
        let forwards = forwards.filter(|reason| *reason == Reason::Consistent);
        let is_document = DocumentRequest::parse(parts, context.has_body, info).is_some();
        if let Err(reason) = decision
            && !is_document
        {
            let is_counted =
                !matches!(reason, Reason::Write | Reason::NonResource | Reason::Subresource);
            if is_counted && is_read {
                let kind = ReadKind::from_request(info, &parts.headers);
                shadow.record(&kind, Outcome::NotHeld(reason), &Measured::default());
            }
            return Some(reason);
        }
        let request = ShadowRequest {
            client: Arc::clone(context.client),
            parts: head_of(parts),
            decision,
            forwards,
            began: context.started,
            kind: ReadKind::from_request(info, &parts.headers),
        };
        match headers::upgrade(&parts.headers) {
            Some(_) => shadow.count(&request, Cause::WebSocket.into()),
            None => {
                let copy = AnswerCopy::new(Arc::clone(shadow), Box::new(request));
                context.holds.copy = Some(Box::new(copy));
            }
        }
        Some(match is_document {
            true => Reason::NonResource,
            false => forwards.unwrap_or(Reason::Shadow),
        })
    }
}

/// Compares answers as they arrive. Ends when it is dropped, with all its comparisons.
pub(crate) async fn run(
    router: Arc<Router>,
    shadow: Arc<Shadow>,
    mut queue: mpsc::Receiver<Comparison>,
) {
    let mut open = JoinSet::new();
    loop {
        let comparison = tokio::select! {
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            comparison = queue.recv() => comparison,
        };
        let Some(comparison) = comparison else { return };
        if open.len() >= OPEN_MAX || router.caches.overload.is_saving() {
            let (Comparison::Answer(request, _) | Comparison::Watch(request, ..)) = &comparison;
            shadow.count(request, Cause::Busy.into());
            shadow.end_comparison();
            continue;
        }
        let compared = compare(Arc::clone(&router), Arc::clone(&shadow), comparison);
        open.spawn(Charged::new(Arc::clone(&shadow), compared));
    }
}

async fn compare(router: Arc<Router>, shadow: Arc<Shadow>, comparison: Comparison) {
    let (request, compared) = match comparison {
        Comparison::Answer(request, answer) => {
            let beside = Beside { router: &router, shadow: &shadow, request: &request };
            let compared = Box::pin(beside.compare_answer(answer)).await;
            (request, compared)
        }
        Comparison::Watch(request, head, chunks) => {
            let beside = Beside { router: &router, shadow: &shadow, request: &request };
            let compared = Box::pin(beside.compare_watch(head, chunks)).await;
            (request, compared)
        }
    };
    let Compared { outcome, what, mut measured } = compared;
    measured.forwards = measured.forwards.or(request.forwards);
    if let Some(what) = what {
        shadow.keep(&request, outcome, what);
    }
    shadow.record(&request.kind, outcome, &measured);
}

/// The result of a comparison.
struct Compared {
    outcome: Outcome,
    what: Option<DifferingPart>,
    measured: Measured,
}

impl Compared {
    fn new(outcome: impl Into<Outcome>) -> Self {
        Self { outcome: outcome.into(), what: None, measured: Measured::default() }
    }

    fn with(self, measured: Measured) -> Self {
        Self { measured, ..self }
    }
}

impl From<NoAnswer> for Outcome {
    fn from(missing: NoAnswer) -> Self {
        match missing {
            NoAnswer::Forwards(reason) => Self::NotHeld(reason),
            NoAnswer::Late => Cause::Slow.into(),
            NoAnswer::BeforeCache => Cause::BeforeCache.into(),
        }
    }
}

/// A request beside that of a client.
struct Beside<'a> {
    router: &'a Router,
    shadow: &'a Shadow,
    request: &'a ShadowRequest,
}

impl<'a> Beside<'a> {
    /// Returns what the path and the query say.
    fn info(&self) -> RequestInfo {
        let parts = &self.request.parts;
        let query = parts.uri.query().unwrap_or_default();
        RequestInfo::parse(&parts.method, parts.uri.path(), query)
    }

    /// Returns the context of the request, with the resource.
    async fn context<'b>(&self, parts: &'b mut Parts) -> Result<RequestContext<'b>, Reason>
    where
        'a: 'b,
    {
        let client = &self.request.client;
        let resolved = Resolved::new(client, parts, false, ConsistentLists::Always);
        // Comparisons are not the work that the metrics of a resource count.
        let metrics = self.router.metrics.resource(None);
        let mut context = RequestContext::new(resolved, parts, metrics);
        self.router.find_resource(&mut context).await?;
        Ok(context)
    }

    /// Returns the sender.
    fn caller(&self, context: &mut RequestContext<'_>) -> Result<Caller, Outcome> {
        self.router.caller(context).map_err(|_| Cause::Refused.into())
    }

    /// Authenticates and authorizes the request as one for a cache. Returns Weir's own refusal,
    /// which the upstream would send as well; `None` if the sender may read.
    async fn refusal(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Response<Body>>, Outcome> {
        match self.router.review(context, caller).await {
            Ok(_) => Ok(None),
            Err(Bypass::Forward(reason)) => Err(Outcome::NotHeld(reason)),
            Err(Bypass::Refuse(rejection)) if rejection.shed().is_some() => {
                Err(Cause::Refused.into())
            }
            Err(Bypass::Refuse(rejection)) => {
                let (headers, query) = (&context.parts.headers, &context.info.query);
                Ok(Some(error_response(headers, query, &rejection.status)))
            }
        }
    }

    /// Returns the read from a cache.
    fn read<'b>(
        &'b self,
        context: &'b RequestContext<'b>,
        held: &'b HeldBytes,
    ) -> Result<CachedRead<'b>, Reason> {
        let options = self.request.decision.as_ref().ok().and_then(CachedDecision::options);
        let resource = context.resource.as_ref().ok_or(Reason::NonResource)?;
        let mut target = Target::resolve(context.parts, &context.info, options, resource)?;
        // The upstream's answers have them.
        target.form.view = target.form.view.with_managed_fields();
        Ok(CachedRead {
            context,
            services: &self.router.caches,
            request: context.info.resource.as_ref().ok_or(Reason::NonResource)?,
            resource,
            target,
            held,
            lane: None,
            reauthorization: None,
        })
    }
}

/// Open comparisons, most of them of watches.
const OPEN_MAX: usize = 4_096;
/// The longest wait for the upstream to repeat an answer.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
