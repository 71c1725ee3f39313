//! One request from its head to its response's head: parsed once, judged, answered from the cache or forwarded,
//! counted.

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
use crate::cache::handle::Refusal;
use crate::cache::registry::Registry;
use crate::server::connection::Client;
use crate::server::delegate::{self, Decision, Reason, Target};
use crate::server::documents::{Ask, Documents};
use crate::server::forward::Forwarder;
use crate::server::host::HostPolicy;
use crate::server::listener::ListenerKind;
use crate::server::response::{self, Body, CACHE_HEADER, Outcome};
use crate::server::websocket::{Handshake, Sockets};
use crate::server::{get, headers, list, watch};
use crate::telemetry::server_metrics::{Answer, ResourceMetrics, ServerMetrics};
use crate::upstream::discovery::Found;

/// Answers requests. One for all connections.
pub(crate) struct Router {
    pub(crate) registry: Registry,
    pub(crate) forwarder: Forwarder,
    pub(crate) documents: Documents,
    pub(crate) sockets: Sockets,
    pub(crate) metrics: ServerMetrics,
    pub(crate) hosts: HostPolicy,
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
    pub(crate) metrics: &'a Arc<ResourceMetrics>,
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

        let answered = self.answer(&client, parts, body, info, &metrics).instrument(span.clone());
        let Outcome { mut response, answer, reason } = Box::pin(answered).await;
        let duration = start.elapsed();
        let code = response.status().as_u16();
        metrics.request(verb, answer, reason, code, duration);
        span.in_scope(|| tracing::debug!(code, answer = answer.as_str(), reason, ?duration));
        if self.cache_header {
            mark(&mut response, answer, reason);
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
    ) -> Outcome {
        if parts.method == Method::CONNECT {
            let message = "weir is not a proxy for CONNECT".to_owned();
            let status =
                response::refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
            return Outcome::error(&parts.headers, &status, "connect");
        }
        if client.listener != ListenerKind::Unix
            && let Err(status) = self.hosts.check(&parts)
        {
            return Outcome::error(&parts.headers, &status, "host");
        }
        if let Some(ask) = Ask::of(&parts, !body.is_end_stream(), &info) {
            let served = self.documents.serve(&self.forwarder, client, parts, body, &info, ask);
            return Box::pin(served).await;
        }
        let reason = match self.serve(client, &parts, !body.is_end_stream(), &info, metrics).await {
            Ok(response) => return Outcome::hit(response),
            Err(reason) => reason,
        };
        let permit = match permit_for(&info, reason) {
            None => None,
            Some(request) => match self.registry.forward_permit(&request.gvr) {
                Some(permit) => Some(permit),
                None => {
                    let status = Status::initializing();
                    return Outcome::error(&parts.headers, &status, reason.as_str());
                }
            },
        };
        Box::pin(self.forwarder.forward(client, parts, body, &info, reason, permit)).await
    }

    /// Answers from the cache, or tells why not.
    async fn serve(
        &self,
        client: &Client,
        parts: &Parts,
        has_body: bool,
        info: &RequestInfo,
        metrics: &Arc<ResourceMetrics>,
    ) -> Result<Response<Body>, Reason> {
        let path = parts.uri.path();
        let decision = delegate::decide(&parts.method, path, &parts.headers, has_body, info);
        let options = match &decision {
            Decision::Forward(reason) => return Err(*reason),
            Decision::Get(_) => None,
            Decision::List(_, options) | Decision::Watch(_, options) => Some(options),
        };
        // Only watches come here with one.
        let handshake = match headers::upgrade(&parts.headers) {
            None => None,
            Some(_) => Some(Handshake::of(parts).ok_or(Reason::Upgrade)?),
        };
        let request = info.resource.as_ref().ok_or(Reason::NonResource)?;
        let resource = self.find(request).await?;
        let target = Target::resolve(path, &parts.headers, info, request, options, &resource)?;
        let (resource, limits) = (&resource, self.limits);
        let read =
            Read { parts, request, resource, target, limits, registry: &self.registry, metrics };
        match decision {
            Decision::Forward(reason) => Err(reason),
            Decision::Get(freshness) => get::serve(&read, freshness).await,
            Decision::List(plan, _) => list::serve(&read, plan).await,
            Decision::Watch(plan, _) => {
                let encoding = read.target.form.encoding;
                let response = watch::serve(read, &plan, client).await?;
                match handshake {
                    None => Ok(response),
                    Some(handshake) => self.sockets.open(handshake, response, encoding),
                }
            }
        }
    }

    /// What discovery says of a resource. A request that will be forwarded for its form must not start a cache, so
    /// this comes before the registry.
    async fn find(&self, request: &ResourceRequest) -> Result<Arc<ApiResource>, Reason> {
        if let Some(known) = self.registry.peek(&request.gvr) {
            return Ok(known);
        }
        match self.registry.find(&request.gvr).await {
            Ok(Found::Resource(resource)) => Ok(resource),
            Ok(Found::Unknown) => Err(Reason::Refused(Refusal::Unknown)),
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

fn mark(response: &mut Response<Body>, answer: Answer, reason: &'static str) {
    let value = match answer {
        Answer::Hit => HeaderValue::from_static("hit"),
        Answer::Forward => {
            let text = format!("forward; reason={reason}");
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("forward"))
        }
        Answer::Error => return,
    };
    response.headers_mut().insert(CACHE_HEADER, value);
}
