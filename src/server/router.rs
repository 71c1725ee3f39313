//! One request from its head to its response's head: parsed once, judged, answered from the cache or forwarded,
//! counted.
//!
//! After an upgrade that came to nothing, whoever refused it, the client's connection is closed: it may have sent bytes of the protocol that it hoped
//! for, and they must never be taken for another request (CVE-2018-1002105).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::request_info::{RequestInfo, ResourceRequest};
use crate::api::resource::ApiResource;
use crate::api::status::Status;
use crate::auth::reauthorization::Reauthorization;
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::server::accept::listener::ListenerKind;
use crate::server::cached::compress::Compressor;
use crate::server::cached::websocket::{Handshake, Sockets};
use crate::server::cached::{get, list, watch};
use crate::server::connection::Client;
use crate::server::delegate::{self, Decision, Reason, Target};
use crate::server::forward::documents::{Ask, Documents};
use crate::server::forward::{self, Carried, Forwarder};
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::headers;
use crate::server::http::response::{self, Body, CACHE_HEADER, Outcome};
use crate::server::metrics::{Answer, ResourceMetrics, ServerMetrics};
use crate::server::request::access::{Access, Caller, Judged, NotAdmitted};
use crate::server::request::audit::{Asked, Auditor};
use crate::server::request::framing;
use crate::server::request::host::HostPolicy;

/// Answers requests. One for all connections.
pub(crate) struct Router {
    pub(crate) registry: Registry,
    pub(crate) forwarder: Forwarder,
    pub(crate) documents: Documents,
    pub(crate) sockets: Sockets,
    pub(crate) metrics: ServerMetrics,
    pub(crate) hosts: HostPolicy,
    pub(crate) access: Access,
    pub(crate) auditor: Auditor,
    pub(crate) compressor: Compressor,
    pub(crate) limits: Limits,
    /// Whether answers carry `X-Weir-Cache`.
    pub(crate) cache_header: bool,
}

/// How long a request may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For proof of freshness.
    pub(crate) freshness: Duration,
    /// For a cache that is warming.
    pub(crate) warmup: Duration,
    /// Within how much of it watches end, spread out, when Weir drains.
    pub(crate) drain: Duration,
}

/// A read on its way through the cache.
pub(crate) struct Read<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) request: &'a ResourceRequest,
    /// What the target is bound to.
    pub(crate) resource: &'a Arc<ApiResource>,
    pub(crate) target: Target,
    pub(crate) limits: Limits,
    pub(crate) registry: &'a Registry,
    pub(crate) compressor: &'a Compressor,
    pub(crate) metrics: &'a Arc<ResourceMetrics>,
    /// How the right to a watch is looked at again.
    pub(crate) recheck: Option<Reauthorization>,
}

/// Why a request is not answered from a cache.
enum NotServed {
    /// It goes to the upstream.
    Forward(Reason),
    /// It is refused here, with this word in metrics.
    Refuse(Box<Status>, &'static str),
}

impl From<Reason> for NotServed {
    fn from(reason: Reason) -> Self {
        Self::Forward(reason)
    }
}

impl From<NotAdmitted> for NotServed {
    fn from(not: NotAdmitted) -> Self {
        match not {
            NotAdmitted::Forward(reason) => Self::Forward(reason),
            NotAdmitted::Refuse(status, reason) => Self::Refuse(Box::new(status), reason),
        }
    }
}

impl Router {
    /// Answers a request. Never fails: what goes wrong is an answer too.
    pub(crate) async fn handle(
        self: Arc<Self>,
        client: Arc<Client>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let start = Instant::now();
        let in_flight = self.metrics.in_flight();
        let (parts, body) = request.into_parts();
        let info = RequestInfo::parse(
            &parts.method,
            parts.uri.path(),
            parts.uri.query().unwrap_or_default(),
        );
        let span = tracing::debug_span!("request", method = %parts.method, path = parts.uri.path());
        let known = info
            .resource
            .as_ref()
            .map(|resource| &resource.gvr)
            .filter(|gvr| self.registry.peek(gvr).is_some());
        let metrics = self.metrics.resource(known);
        let verb = info.verb.as_str();

        let mut judged = Judged::now();
        let hoped = forward::upgrade_of(&parts).is_some();
        let answered =
            self.answer(&client, parts, body, info, &metrics, &mut judged).instrument(span.clone());
        let Outcome { mut response, answer, reason } = Box::pin(answered).await;
        forward::close_if_not_upgraded(hoped, &mut response);
        let duration = start.elapsed();
        let code = response.status().as_u16();
        metrics.request(verb, answer, reason, code, duration);
        span.in_scope(|| tracing::debug!(code, answer = answer.as_str(), reason, ?duration));
        if self.cache_header {
            mark(&mut response, answer, reason, judged.is_stale());
        }
        drop(in_flight);
        Ok(response)
    }

    async fn answer(
        &self,
        client: &Client,
        parts: Parts,
        body: Incoming,
        info: RequestInfo,
        metrics: &Arc<ResourceMetrics>,
        judged: &mut Judged,
    ) -> Outcome {
        if parts.method == Method::CONNECT {
            let message = "weir is not a proxy for CONNECT".to_owned();
            let status =
                response::refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
            return Outcome::error(&parts.headers, &status, "connect");
        }
        if let Err(status) = framing::check(&parts, body.is_end_stream()) {
            return framing::refused(&parts, &status);
        }
        if client.listener != ListenerKind::Unix
            && let Err(status) = self.hosts.check(&parts)
        {
            return Outcome::error(&parts.headers, &status, "host");
        }
        let caller = match self.access.caller(client, &parts.headers) {
            Ok(caller) => caller,
            Err((status, reason)) => {
                return self.refuse(client, &parts, &info, judged, &status, reason).await;
            }
        };
        judged.identity = caller.identity().cloned();
        if let Some(ask) = Ask::of(&parts, !body.is_end_stream(), &info) {
            let carried = match self.carried(client, &caller, &parts, &info) {
                Ok(carried) => carried,
                Err((status, reason)) => {
                    return self.refuse(client, &parts, &info, judged, &status, reason).await;
                }
            };
            let request = Request::from_parts(parts, body);
            let served =
                self.documents.serve(&self.forwarder, client, carried, request, &info, ask);
            return Box::pin(served).await;
        }
        let has_body = !body.is_end_stream();
        let served = self.serve(client, &caller, &parts, has_body, &info, metrics, judged).await;
        let reason = match served {
            Ok(response) => return Outcome::hit(response),
            Err(NotServed::Refuse(status, reason)) => {
                return self.refuse(client, &parts, &info, judged, &status, reason).await;
            }
            Err(NotServed::Forward(reason)) => reason,
        };
        let carried = match self.carried(client, &caller, &parts, &info) {
            Ok(carried) => carried,
            Err((status, reason)) => {
                return self.refuse(client, &parts, &info, judged, &status, reason).await;
            }
        };
        let permit = match permit_for(&info, reason) {
            None => None,
            Some(request) => match self.registry.forward_permit(&request.gvr) {
                Some(permit) => Some(permit),
                None => {
                    let (status, reason) = (Status::initializing(), reason.as_str());
                    return self.refuse(client, &parts, &info, judged, &status, reason).await;
                }
            },
        };
        let request = Request::from_parts(parts, body);
        Box::pin(self.forwarder.forward(client, carried, request, &info, reason, permit)).await
    }

    /// Makes a request ready to go on in the name of who sent it. The error is the answer, and its word in metrics.
    fn carried(
        &self,
        client: &Client,
        caller: &Caller,
        parts: &Parts,
        info: &RequestInfo,
    ) -> Result<Carried<'_>, (Status, &'static str)> {
        let carried = self.access.carry(caller);
        let carried = carried.and_then(|carry| self.forwarder.carried(client, &carry, parts, info));
        carried.map_err(|status| {
            let share = status.code == StatusCode::TOO_MANY_REQUESTS;
            (status, if share { SHARE } else { IDENTITY })
        })
    }

    /// Answers from the cache, or tells why not.
    #[expect(clippy::too_many_arguments, reason = "one request from several sides")]
    async fn serve(
        &self,
        client: &Client,
        caller: &Caller,
        parts: &Parts,
        has_body: bool,
        info: &RequestInfo,
        metrics: &Arc<ResourceMetrics>,
        judged: &mut Judged,
    ) -> Result<Response<Body>, NotServed> {
        let path = parts.uri.path();
        let decision = delegate::decide(&parts.method, path, &parts.headers, has_body, info);
        let options = match &decision {
            Decision::Forward(reason) => return Err((*reason).into()),
            Decision::Get(_) => None,
            Decision::List(_, options) | Decision::Watch(_, options) => Some(options),
        };
        // Only watches come here with one.
        let handshake = match headers::upgrade(&parts.headers) {
            None => None,
            Some(_) => {
                let by_token = caller.is_known_by_protocol(&parts.headers);
                Some(Handshake::of(parts, by_token).ok_or(Reason::Upgrade)?)
            }
        };
        let request = info.resource.as_ref().ok_or(Reason::NonResource)?;
        let resource = match self.find(request).await {
            Ok(resource) => resource,
            Err(reason) => {
                // Who may not read it draws on no budget for it.
                if reason.wants_cache() {
                    self.access.admit(client, caller, info, judged).await?;
                }
                return Err(reason.into());
            }
        };
        let target = Target::resolve(path, &parts.headers, info, request, options, &resource)?;
        let recheck = self.access.admit(client, caller, info, judged).await?;
        let read = Read {
            parts,
            request,
            resource: &resource,
            target,
            limits: self.limits,
            registry: &self.registry,
            compressor: &self.compressor,
            metrics,
            recheck,
        };
        let encoding = read.target.form.encoding;
        let response = match decision {
            Decision::Forward(reason) => return Err(reason.into()),
            Decision::Get(freshness) => get::serve(&read, freshness).await?,
            Decision::List(plan, _) => list::serve(&read, plan).await?,
            Decision::Watch(plan, _) => watch::serve(read, &plan, client).await?,
        };
        let asked = Asked { client, parts, info, judged };
        let Some(handshake) = handshake else {
            let code = response.status();
            return Ok(self.auditor.answered(asked, response, code).await);
        };
        let code = StatusCode::SWITCHING_PROTOCOLS;
        let response = self.auditor.answered(asked, response, code).await;
        Ok(self.sockets.open(handshake, response, encoding)?)
    }

    /// An answer of Weir's own, told to the audit log.
    async fn refuse(
        &self,
        client: &Client,
        parts: &Parts,
        info: &RequestInfo,
        judged: &Judged,
        status: &Status,
        reason: &'static str,
    ) -> Outcome {
        let outcome = Outcome::refusal(&parts.headers, &info.query, status, reason);
        let asked = Asked { client, parts, info, judged };
        let audit_id = outcome.response.headers().get(AUDIT_ID).cloned();
        self.auditor.refused(asked, status, audit_id).await;
        outcome
    }

    /// What discovery says of a resource. A request that will be forwarded for its form must not start a cache, so
    /// this comes before the registry.
    async fn find(&self, request: &ResourceRequest) -> Result<Arc<ApiResource>, Reason> {
        if let Some(known) = self.registry.peek(&request.gvr) {
            return Ok(known);
        }
        match self.registry.find(&request.gvr).await {
            Ok(Some(resource)) => Ok(resource),
            Ok(None) => Err(Reason::Refused(Refusal::Unknown)),
            Err(_) => Err(Reason::Refused(Refusal::NotReady)),
        }
    }
}

/// The request whose forwarding draws on the forward budget, if it does: lists and watches for want of a cache.
fn permit_for(info: &RequestInfo, reason: Reason) -> Option<&ResourceRequest> {
    let request = info.resource.as_ref()?;
    let single = !request.name.is_empty() && !request.name_lifted;
    (reason.wants_cache() && !single).then_some(request)
}

fn mark(response: &mut Response<Body>, answer: Answer, reason: &'static str, stale: bool) {
    let value = match answer {
        Answer::Hit if stale => HeaderValue::from_static("hit; decision=stale"),
        Answer::Hit => HeaderValue::from_static("hit"),
        Answer::Forward => {
            let text = format!("forward; reason={reason}");
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("forward"))
        }
        Answer::Error => return,
    };
    response.headers_mut().insert(CACHE_HEADER, value);
}

/// The word in metrics of a request that cannot go on in its client's name.
const IDENTITY: &str = "identity";
/// One address has too much under way already.
const SHARE: &str = "share";
