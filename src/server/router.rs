//! One request from its head to the head of its response: parsed once, checked, answered from the
//! cache or forwarded, counted.
//!
//! After a failed upgrade the client's connection is closed, whoever refused the upgrade. The
//! client may have sent bytes of the new protocol, which must never be parsed as another request
//! (CVE-2018-1002105).

mod caller;
mod counts;
mod forward;
mod handle;
mod seats;
pub(crate) mod shadow;
mod unanswered;

use std::sync::Arc;

use http::{Method, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::cache::refusal::Refusal;
use crate::server::accept::listener::ListenerKind;
use crate::server::cached::read::{CacheServices, CachedRead};
use crate::server::cached::response_budget::too_much_held;
use crate::server::cached::websocket::{Handshake, Sockets};
use crate::server::cached::{get, list, watch};
use crate::server::delegate::{self, Decision, Reason, Target};
use crate::server::flow_control::FlowControl;
use crate::server::forward::documents::{DocumentRequest, Documents};
use crate::server::forward::forwarder::Forwarder;
use crate::server::forward::upstream_gate::{self, FAILOVER_WAIT_MAX};
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::body::Body;
use crate::server::http::headers;
use crate::server::http::refusal;
use crate::server::http::response::Reply;
use crate::server::metrics::ServerMetrics;
use crate::server::open_watches::OpenWatches;
use crate::server::request::access::Access;
use crate::server::request::audit::Auditor;
use crate::server::request::auth::Caller;
use crate::server::request::bypass::{Bypass, Rejection};
use crate::server::request::context::RequestContext;
use crate::server::request::framing;
use crate::server::request::refusal_reason::RefusalReason;
use crate::server::request::trace::RequestTracer;
use crate::server::router::unanswered::Unanswered;
use crate::upstream::availability::Availability;

/// Answers the requests of all connections.
pub(crate) struct Router {
    pub(crate) caches: CacheServices,
    pub(crate) forwarder: Forwarder,
    pub(crate) documents: Documents,
    pub(crate) sockets: Sockets,
    pub(crate) metrics: ServerMetrics,
    pub(crate) access: Access,
    pub(crate) auditor: Auditor,
    pub(crate) tracer: RequestTracer,
    /// Adds up what clients cost; `None` if flow control is off.
    pub(crate) flow_control: Option<Arc<FlowControl>>,
    /// The open watches of each user; `None` in a sidecar.
    pub(crate) watches: Option<Arc<OpenWatches>>,
    /// Compares reads with the caches; `None` unless in shadow mode.
    pub(crate) shadow: Option<Arc<crate::server::shadow::Shadow>>,
}

impl Router {
    /// Answers a request, unless it is one for the API server.
    async fn answer(
        &self,
        context: &mut RequestContext<'_>,
        body: Incoming,
    ) -> Result<Reply, Unanswered> {
        let parts = &*context.parts;
        if parts.method == Method::CONNECT {
            let message = "weir is not a proxy for CONNECT".to_owned();
            let code = StatusCode::METHOD_NOT_ALLOWED;
            let status = refusal::refusal(code, "MethodNotAllowed", message);
            return Ok(Reply::error(&parts.headers, &status, RefusalReason::Connect.as_str()));
        }
        if let Err(status) = framing::check(parts, context.has_body) {
            return Ok(framing::rejected(parts, &status));
        }
        if let Err(status) = self.forwarder.check_hops(&parts.headers) {
            return Ok(Reply::error(&parts.headers, &status, RefusalReason::Loop.as_str()));
        }
        if context.client.listener != ListenerKind::Unix
            && let Err(status) = self.caches.live.load().hosts.check(parts)
        {
            return Ok(Reply::error(&parts.headers, &status, RefusalReason::Host.as_str()));
        }
        let caller = match self.caller(context) {
            Ok(caller) => caller,
            Err(rejection) => return Ok(self.reject(context, &rejection).await),
        };
        context.ended("identify");
        if let Some(shadow) = &self.shadow {
            return Err(Unanswered { caller, body, reason: self.copy_answer(shadow, context) });
        }
        let RequestContext { parts, has_body, info, .. } = &*context;
        if let Some(document) = DocumentRequest::parse(parts, *has_body, info) {
            if let Some(reply) = self.document_from_memory(context, &caller, &document).await {
                return Ok(reply);
            }
            if let Err(rejection) = upstream_gate::pass(self.availability(), context).await {
                return Ok(self.reject(context, &rejection).await);
            }
            let prepared = match self.prepare(context, &caller).await {
                Ok(prepared) => prepared,
                Err(rejection) => return Ok(self.reject(context, &rejection).await),
            };
            if let Err(rejection) = self.apply_rules(context, true) {
                return Ok(self.reject(context, &rejection).await);
            }
            context.forwarded = Some(Instant::now());
            let reply = self.documents.serve(&self.forwarder, prepared, context, body, document);
            let reply = Box::pin(reply).await;
            if matches!(reply.response.status(), StatusCode::OK | StatusCode::NOT_MODIFIED) {
                self.access.learn_allowed(context, &caller).await;
            }
            return Ok(reply);
        }
        let served = self.serve_cached(context, &caller).await;
        context.ended_in_cache(served.is_ok());
        let reason = match served {
            Ok(response) => return Ok(Reply::hit(response)),
            Err(Bypass::Refuse(rejection)) => return Ok(self.reject(context, &rejection).await),
            Err(Bypass::Forward(reason)) => reason,
        };
        Err(Unanswered { caller, body, reason })
    }

    /// Returns a document from memory while no API server is usable. Returns `None` if one is, or
    /// if there is no document for this client.
    async fn document_from_memory(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        request: &DocumentRequest,
    ) -> Option<Reply> {
        let deadline = context.started + FAILOVER_WAIT_MAX;
        if upstream_gate::returns_soon(self.availability(), deadline).await {
            return None;
        }
        match self.admit(context, caller).await {
            Ok(_) => self.documents.serve_unverified(&context.parts.headers, request).await,
            Err(Bypass::Refuse(rejection)) => Some(self.reject(context, &rejection).await),
            Err(Bypass::Forward(_)) => None,
        }
    }

    fn availability(&self) -> &Availability {
        self.caches.registry.availability()
    }

    /// Returns the response of a cache, or why there is none.
    async fn serve_cached(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Response<Body>, Bypass> {
        let consistent_lists = self.caches.registry.config().consistent_lists;
        let decision =
            delegate::decide(context.parts, context.has_body, &context.info, consistent_lists);
        let options = match &decision {
            Decision::Forward(reason) => return Err(self.caches.noted(*reason, context).into()),
            Decision::Get(_) => None,
            Decision::List(_, options) | Decision::Watch(_, options) => Some(options),
        };
        let of_collection = options.is_some();
        // Only a watch can ask for an upgrade here.
        let handshake = match headers::upgrade(&context.parts.headers) {
            None => None,
            Some(_) => {
                let by_token = caller.has_protocol_token(&context.parts.headers);
                Some(Handshake::parse(context.parts, by_token).ok_or(Reason::Upgrade)?)
            }
        };
        let was_usable = self.availability().is_usable();
        if let Err(reason) = self.find_resource(context).await {
            if decision.is_consistent_list() {
                return Err(Reason::Consistent.into());
            }
            if !reason.wants_cache() {
                return Err(reason.into());
            }
            // A client that may not read the resource uses none of its forward budget.
            self.admit(context, caller).await?;
            let is_back = !was_usable && self.availability().is_usable();
            if !is_back || self.find_resource(context).await.is_err() {
                return Err(reason.into());
            }
        }
        let resource = context.resource.as_deref().ok_or(NOT_FOUND)?;
        context.ended_without_span("discover");
        let mut target = Target::resolve(context.parts, &context.info, options, resource)?;
        self.caches.drop_by_rule(&mut target, context);
        let reauthorization = self.admit(context, caller).await?;
        context.ended("authorize");
        self.apply_rules(context, false)?;
        self.count_watch(context)?;
        let account = |client| self.caches.responses.account(client);
        let held = context.client.held(context.auth.user(), account);
        let copies = decision.copies(&target);
        if copies && held.is_full() {
            return Err(too_much_held().into());
        }
        // Over HTTP/2 a slow client holds one piece by itself.
        let paced = (context.parts.version != Version::HTTP_2 && copies).then(|| held.response());
        let lane = copies.then(|| self.lane(context)).flatten();
        let read = CachedRead {
            context: &*context,
            services: &self.caches,
            request: context.info.resource.as_ref().ok_or(Reason::NonResource)?,
            resource: context.resource.as_ref().ok_or(NOT_FOUND)?,
            target,
            held: paced.as_ref().unwrap_or(&held),
            lane: lane.as_ref(),
            reauthorization,
        };
        let encoding = read.target.form.encoding;
        let mut response = match decision {
            Decision::Forward(reason) => return Err(reason.into()),
            Decision::Get(freshness) => get::serve(&read, freshness).await?,
            Decision::List(plan, _) => list::serve(&read, plan).await?,
            Decision::Watch(plan, _) => watch::serve(read, &plan).await?,
        };
        if let (true, Some(request)) = (of_collection, &context.info.resource) {
            self.caches.herd.served(Some(&request.gvr));
        }
        let Some(handshake) = handshake else {
            let extensions = response.extensions_mut();
            paced.map(|paced| extensions.insert(paced));
            lane.map(|lane| extensions.insert(lane));
            let code = response.status();
            return Ok(self.auditor.log_response(context, response, code).await);
        };
        let code = StatusCode::SWITCHING_PROTOCOLS;
        let response = self.auditor.log_response(context, response, code).await;
        // Rules count the watch until the WebSocket is closed.
        let admission = context.admission.take();
        Ok(self.sockets.open(handshake, response, encoding, held, admission)?)
    }

    /// Returns a refusal of Weir's own, and logs it to the audit log.
    async fn reject(&self, context: &RequestContext<'_>, rejection: &Rejection) -> Reply {
        let Rejection { status, reason, .. } = rejection;
        let (parts, info) = (&context.parts, &context.info);
        let mut reply = Reply::refusal(&parts.headers, &info.query, status, reason.as_str());
        if let Some(shed) = rejection.shed() {
            self.mark_shed(context, shed, reply.response.headers_mut());
            self.hold_back(context, reply.response.headers_mut()).await;
        }
        let audit_id = reply.response.headers().get(AUDIT_ID).cloned();
        self.auditor.log_refusal(context, status, audit_id).await;
        reply
    }

    /// Asks discovery for the requested resource, unless it is known. This does not use the
    /// registry of caches: a request that is forwarded because of its format must not start a
    /// cache.
    async fn find_resource(&self, context: &mut RequestContext<'_>) -> Result<(), Reason> {
        if context.resource.is_some() {
            return Ok(());
        }
        let request = context.info.resource.as_ref().ok_or(Reason::NonResource)?;
        let deadline = context.started + FAILOVER_WAIT_MAX;
        let handle = tokio::select! {
            biased;
            handle = self.caches.registry.find(&request.gvr) => handle.ok(),
            () = self.availability().until_unusable(deadline) => None,
        };
        let resource = handle.ok_or(Reason::Refused(Refusal::NotReady))?;
        context.resource = Some(resource.ok_or(NOT_FOUND)?);
        Ok(())
    }
}

/// Discovery does not know the resource.
const NOT_FOUND: Reason = Reason::Refused(Refusal::Unknown);
