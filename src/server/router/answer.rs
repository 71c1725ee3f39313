//! A request that Weir answers itself: with a refusal, from a document in memory, or from a cache.
//!
//! The first review that shows a user moves the connection from its address to this user
//! (`docs/decisions/limits-by-user.md`).

use std::pin::pin;
use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderValue, Method, StatusCode, Version};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::filtered::{Outcome, UserRead};
use super::review::Unreviewed;
use super::{Answer, Forwarding, Router};
use crate::api::request_info::Verb;
use crate::auth::reauthorization::Reauthorization;
use crate::server::accept::listener::ListenerKind;
use crate::server::cached::read::{CachedRead, target};
use crate::server::cached::websocket::Handshake;
use crate::server::cached::{get, list, watch};
use crate::server::connection::permits::UserAtLimit;
use crate::server::delegate::{CachedDecision, ListPlan, Reason};
use crate::server::forward::documents::DocumentRequest;
use crate::server::forward::upstream_gate::{self, FAILOVER_WAIT_MAX};
use crate::server::http::headers;
use crate::server::http::refusal;
use crate::server::http::response::Reply;
use crate::server::metrics::WaitCause;
use crate::server::request::auth::Caller;
use crate::server::request::context::RequestContext;
use crate::server::request::framing;
use crate::server::request::rejection::{Bypass, Rejection, RejectionCause};
use crate::server::reviews::ReviewRequest;
use crate::server::shadow::selection::copy_answer;

impl Router {
    /// Answers a request, unless it is one for the API server.
    pub(super) async fn answer(&self, context: &mut RequestContext<'_>, body: Incoming) -> Answer {
        if let Err(rejection) = self.check(context) {
            return refuse_unheard(context, &rejection).into();
        }
        let caller = match self.caller(context) {
            Ok(caller) => caller,
            Err(rejection) => return Answer::Own(self.reject(context, &rejection).await),
        };
        context.ended("identify");
        if let Some(shadow) = &self.shadow {
            let (reason, body) = (copy_answer(shadow, context), body.into());
            return Answer::Forward(Forwarding { caller, body, reason });
        }
        if let Some(document) =
            DocumentRequest::parse(context.parts, context.has_body, &context.info)
        {
            let served = Box::pin(self.serve_document(context, &caller, body, document)).await;
            return match served {
                Ok(reply) => reply.into(),
                Err(rejection) => Answer::Own(self.reject(context, &rejection).await),
            };
        }
        let body = match ReviewRequest::parse(context) {
            None => body.into(),
            Some(review) => {
                let served = Box::pin(self.serve_review(context, &caller, body, &review)).await;
                match served {
                    Ok(reply) => return reply.into(),
                    Err(Unreviewed::Forward(body)) => body,
                    Err(Unreviewed::Refuse(rejection)) => {
                        return Answer::Own(self.reject(context, &rejection).await);
                    }
                }
            }
        };
        if matches!(context.decision, Err(Reason::Write)) {
            context.ended_in_cache(false);
            return Answer::Forward(Forwarding { caller, body, reason: Reason::Write });
        }
        let outcome = match self.access.may_filter(context) {
            Ok(true) => Box::pin(self.serve_filtered(context, &caller)).await,
            Ok(false) => Ok(Outcome::Whole(None)),
            Err(rejection) => Err(rejection.into()),
        };
        let served = match outcome {
            Ok(Outcome::Answered(reply)) => Ok(reply),
            Ok(Outcome::Whole(allowed)) => self.serve_cached(context, &caller, allowed).await,
            Err(bypass) => Err(bypass),
        };
        context.ended_in_cache(served.is_ok());
        match served {
            Ok(reply) => Answer::Own(reply),
            Err(Bypass::Refuse(rejection)) => Answer::Own(self.reject(context, &rejection).await),
            Err(Bypass::Forward(reason)) => Answer::Forward(Forwarding { caller, body, reason }),
        }
    }

    /// Refuses what is not even read as a request of its client.
    fn check(&self, context: &RequestContext<'_>) -> Result<(), Rejection> {
        let parts = &*context.parts;
        if parts.method == Method::CONNECT {
            let message = "weir is not a proxy for CONNECT".to_owned();
            let code = StatusCode::METHOD_NOT_ALLOWED;
            let status = refusal::refusal(code, "MethodNotAllowed", message);
            return Err(Rejection::new(status, RejectionCause::Connect));
        }
        let refuse = |cause| move |status| Rejection::new(status, cause);
        let framed = framing::check(parts, context.has_body, context.is_plain);
        framed.map_err(refuse(RejectionCause::Framing))?;
        if !context.is_plain {
            self.forwarder.check_hops(&parts.headers).map_err(refuse(RejectionCause::Loop))?;
        }
        if context.client.listener != ListenerKind::Unix {
            let checked = self.caches.live.load().hosts.check(parts, context.is_plain);
            checked.map_err(refuse(RejectionCause::Host))?;
        }
        Ok(())
    }

    /// Returns the sender of a request, without a review. A known one whose request the present
    /// stage of overload does not admit is refused.
    fn caller(&self, context: &mut RequestContext<'_>) -> Result<Caller, Rejection> {
        let caller = self.access.caller(context)?;
        context.settle_trace();
        self.prove(context)?;
        if caller.is_known() {
            self.admit_early(context)?;
        }
        Ok(caller)
    }

    /// Returns a document that the API server revalidates. While none is usable, returns the one in
    /// memory, if there is one for this client.
    async fn serve_document(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        body: Incoming,
        document: DocumentRequest,
    ) -> Result<Reply, Rejection> {
        let deadline = context.started + FAILOVER_WAIT_MAX;
        if !upstream_gate::returns_soon(self.availability(), deadline).await {
            match self.review(context, caller).await {
                Ok(_) => {
                    let headers = &context.parts.headers;
                    if let Some(mut response) = self.documents.serve_unverified(headers, &document)
                    {
                        let code = response.status();
                        self.auditor.log_response(context, &mut response, code).await;
                        return Ok(Reply::hit(response, "upstream-away"));
                    }
                }
                Err(Bypass::Refuse(rejection)) => return Err(rejection),
                Err(Bypass::Forward(_)) => {}
            }
        }
        upstream_gate::pass(self.availability(), context).await?;
        let prepared = self.prepare(context, caller).await?;
        self.admit(context, Some(&prepared))?;
        context.forwarded = Some(Instant::now());
        let reply = self.documents.serve(&self.forwarder, prepared, context, body, document);
        let reply = Box::pin(reply).await;
        context.holds.quota = None;
        if matches!(reply.response.status(), StatusCode::OK | StatusCode::NOT_MODIFIED) {
            self.access.learn_allowed(context, caller).await;
        }
        Ok(reply)
    }

    /// Returns the response of a cache, or why there is none. `allowed` is how a watch is
    /// authorized again, if the request was authorized before.
    async fn serve_cached(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        allowed: Option<Option<Box<Reauthorization>>>,
    ) -> Result<Box<Reply>, Bypass> {
        let is_consistent = match &context.decision {
            Err(reason) => return Err((*reason).into()),
            Ok(decision) => decision.is_consistent_list(),
        };
        let handshake = Self::handshake(context, caller)?;
        if context.resource.is_none() {
            Box::pin(self.discover(context, caller, is_consistent)).await?;
        }
        context.ended_without_span("discover");
        let target = target(context)?;
        let reauthorization = match allowed {
            Some(reauthorization) => reauthorization,
            None => self.review(context, caller).await?,
        };
        context.ended("authorize");
        let read = UserRead { target, handshake, reauthorization, view: None };
        self.read_cache(context, read).await
    }

    /// Returns the handshake of a watch over a WebSocket.
    pub(super) fn handshake(
        context: &RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Box<Handshake>>, Reason> {
        // Another request for an upgrade is forwarded by its decision.
        let is_watch = context.info.verb == Verb::Watch;
        if !is_watch || headers::upgrade(&context.parts.headers).is_none() {
            return Ok(None);
        }
        let by_token = caller.has_protocol_token(&context.parts.headers);
        let handshake = Handshake::parse(context.parts, by_token).ok_or(Reason::Upgrade)?;
        Ok(Some(Box::new(handshake)))
    }

    /// Returns the response of a cache to a request that is allowed.
    pub(super) async fn read_cache(
        &self,
        context: &mut RequestContext<'_>,
        UserRead { mut target, handshake, reauthorization, view }: UserRead,
    ) -> Result<Box<Reply>, Bypass> {
        self.caches.drop_by_rule(&mut target, context);
        self.admit(context, None)?;
        let decision = context.decision.as_ref().map_err(|reason| *reason)?;
        let share = self.share(context, decision.copies(&target))?;
        let mut read = CachedRead::new(context, &self.caches, target, &share.held)?;
        read.lane = share.lane.as_ref();
        read.reauthorization = reauthorization;
        let is_filtered = view.is_some();
        if let Some(view) = view {
            Box::pin(read.filter(*view)).await?;
        }
        let encoding = read.target.form.encoding;
        // The longer ways have futures of their own, for which that of a GET has no room.
        let mut response = match decision {
            CachedDecision::Get(freshness) => get::serve(&read, *freshness).await?,
            CachedDecision::List(plan, _) => {
                Box::pin(list::serve(&read, ListPlan::clone(plan))).await?
            }
            CachedDecision::Watch(plan, _) => Box::pin(watch::serve(&mut read, plan)).await?,
        };
        if is_filtered {
            context.auth.allow_in_part();
        }
        let Some(handshake) = handshake else {
            let code = response.status();
            self.auditor.log_response(context, &mut response, code).await;
            let mut reply = Box::new(Reply::hit(response, ""));
            reply.unwritten = share.is_paced.then_some(share.held);
            reply.lane = share.lane;
            return Ok(reply);
        };
        let code = StatusCode::SWITCHING_PROTOCOLS;
        self.auditor.log_response(context, &mut response, code).await;
        // Rules count the watch until the WebSocket is closed.
        let holds = context.holds.take_for_upgrade();
        let response = self.sockets.open(*handshake, response, encoding, share.held, holds)?;
        Ok(Box::new(Reply::hit(response, "")))
    }

    /// Finds the requested resource before a cache is used. One that is not found because no API
    /// server is usable is looked up again when one is back.
    async fn discover(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
        is_consistent_list: bool,
    ) -> Result<(), Bypass> {
        let was_usable = self.availability().is_usable();
        let Err(reason) = self.caches.find_resource(context).await else { return Ok(()) };
        if is_consistent_list {
            return Err(Reason::Consistent.into());
        }
        if !reason.wants_cache() {
            return Err(reason.into());
        }
        // A client that may not read the resource uses none of its forward budget.
        self.review(context, caller).await?;
        let is_back = !was_usable && self.availability().is_usable();
        if !is_back || self.caches.find_resource(context).await.is_err() {
            return Err(reason.into());
        }
        Ok(())
    }

    /// Authenticates and authorizes a request ([`Access::authorize`]), unless Weir is a sidecar.
    /// While no API server is usable, it waits for a review no longer than it would wait to be
    /// forwarded. A list or watch whose review found none is reviewed again when one is back, since
    /// a herd of them would be forwarded then.
    ///
    /// [`Access::authorize`]: crate::server::request::access::Access::authorize
    pub(super) async fn review(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Box<Reauthorization>>, Bypass> {
        if self.access.trusts(caller) {
            return Ok(None);
        }
        let availability = self.availability();
        let returns = availability.returns();
        let reviewed = self.review_once(context, caller).await;
        let is_unreviewed =
            matches!(reviewed, Err(Bypass::Forward(Reason::Identity | Reason::Authorization)));
        let is_of_herd = matches!(context.info.verb, Verb::List | Verb::Watch);
        let was_usable = availability.is_usable() && availability.returns() == returns;
        if !is_unreviewed || !is_of_herd || was_usable {
            return reviewed;
        }
        match availability.usable_by(context.started + FAILOVER_WAIT_MAX).await {
            true => self.review_once(context, caller).await,
            false => reviewed,
        }
    }

    async fn review_once(
        &self,
        context: &mut RequestContext<'_>,
        caller: &Caller,
    ) -> Result<Option<Box<Reauthorization>>, Bypass> {
        let deadline = context.started + FAILOVER_WAIT_MAX;
        let metrics = Arc::clone(&context.metrics);
        let reviewed = {
            let reviewed = pin!(self.access.authorize(context, caller, &self.caches.herd));
            let reviewed = metrics.wait(WaitCause::Review, reviewed);
            tokio::select! {
                biased;
                (reviewed, _) = reviewed => reviewed,
                () = self.availability().until_unusable(deadline) => Err(Reason::Authorization.into()),
            }
        };
        // A user who is denied is known as well.
        context.settle_trace();
        self.prove(context)?;
        reviewed
    }

    /// Counts the connection for the user of the request, if known.
    pub(super) fn prove(&self, context: &RequestContext<'_>) -> Result<(), Rejection> {
        let Some(identity) = &context.auth.identity else { return Ok(()) };
        let proved = context.client.prove(identity);
        proved.map_err(|at_limit| self.too_many_connections(at_limit))
    }

    pub(super) fn too_many_connections(&self, _: UserAtLimit) -> Rejection {
        self.metrics.connection_refused(USER_LIMIT);
        let status = refusal::too_many_requests(TOO_MANY_CONNECTIONS);
        Rejection::new(status, RejectionCause::Connections)
    }
}

/// Returns the refusal of a request before its client is known, which is not in the audit log.
/// After one whose framing is wrong, the bytes that follow cannot be trusted.
fn refuse_unheard(context: &RequestContext<'_>, rejection: &Rejection) -> Reply {
    let Rejection { status, cause } = rejection;
    let mut reply = Reply::error(&context.parts.headers, status, cause.as_str());
    if *cause == RejectionCause::Framing && context.version < Version::HTTP_2 {
        reply.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

const TOO_MANY_CONNECTIONS: &str =
    "weir: this user has too many connections open; this one is closed";
/// The cause of the refused connection in metrics.
const USER_LIMIT: &str = "user-limit";
