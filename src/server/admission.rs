//! Whether a request is admitted, and what it holds from then on.
//!
//! `router/answer.rs` finds its sender first, and has three limits of its own: the connections of a
//! user, the unknown tokens of an address, and the pending access reviews. These limits follow in
//! their order, each of which may refuse the request:
//!
//! | limit | asked before a cache | asked before the API server |
//! |---|---|---|
//! | the client's part of the upstream ([`Router::admit`]) | | yes |
//! | Weir's own overload | once, as soon as the sender is known | yes |
//! | operators' rules | yes | those about it; all, unless they were applied |
//! | the open watches of the client | yes | yes, unless the watch is counted |
//! | the unread bytes of the client ([`Router::share`]) | yes | |
//! | seats of the API server ([`Router::ask_for_seats`]) | | yes |
//! | the forward budget of a cache that is missing ([`Router::draw_on_budget`]) | | yes |
//!
//! The limited resources that a request takes are in its [`Holds`], which move into the body of its
//! response. Invariant: those of a refused request are released before anything is awaited.
//!
//! [`Holds`]: crate::server::request::holds::Holds

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Version};

use crate::api::request_info::Verb;
use crate::codec::held_bytes::HeldBytes;
use crate::flow::rules::rank;
use crate::server::cached::response_budget::too_much_held;
use crate::server::connection::client_id::ClientId;
use crate::server::delegate::Reason;
use crate::server::flow_control::FlowControl;
use crate::server::flow_control::queue::Seats;
use crate::server::forward::claim::ForwardClaim;
use crate::server::forward::forwarder::PreparedRequest;
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::headers::{FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID, SHED_HEADER};
use crate::server::http::response::Reply;
use crate::server::lanes::Lane;
use crate::server::overload::Demand;
use crate::server::request::context::RequestContext;
use crate::server::request::rejection::Rejection;
use crate::server::router::Router;

/// The share of a response from a cache: of the memory for its client, and of the connections'
/// time.
pub(crate) struct ResponseShare {
    /// Counts what the response holds in memory.
    pub(crate) held: HeldBytes,
    /// Whether `held` is of this response alone, which waits until its last pieces were written.
    /// Over HTTP/2 a slow client holds one piece by itself.
    pub(crate) is_paced: bool,
    /// The lane of the response, if that may be large.
    pub(crate) lane: Option<Lane>,
}

impl Router {
    /// Admits a request to a cache, or to the API server if it is `prepared` for that, as far as
    /// nothing has to be waited for.
    pub(super) fn admit(
        &self,
        context: &mut RequestContext<'_>,
        prepared: Option<&PreparedRequest<'_>>,
    ) -> Result<(), Rejection> {
        let is_forwarded = prepared.is_some();
        if let Some(prepared) = prepared {
            context.holds.quota = Some(self.forwarder.take_quota(prepared)?);
        }
        if is_forwarded || !context.holds.passed_overload {
            self.check_overload(context, is_forwarded)?;
        }
        self.apply_rules(context, is_forwarded)?;
        self.count_watch(context)
    }

    /// Admits a request whose sender is known by the request alone, as far as Weir's own overload
    /// goes. This costs no request to the API server.
    pub(super) fn admit_early(&self, context: &mut RequestContext<'_>) -> Result<(), Rejection> {
        self.check_overload(context, false)?;
        context.holds.passed_overload = true;
        Ok(())
    }

    /// Refuses a request that the present stage of Weir's own overload does not admit.
    fn check_overload(
        &self,
        context: &RequestContext<'_>,
        is_forwarded: bool,
    ) -> Result<(), Rejection> {
        let overload = &self.caches.overload;
        if !overload.has_checks() {
            return Ok(());
        }
        overload.admit(&Demand {
            info: &context.info,
            rank: self.flow_control.as_ref().map(|flow| flow.rank(context)),
            bytes: context.size(&self.caches.registry).map(|size| size.bytes),
            is_forwarded,
            is_checked: context.holds.passed_overload,
            flow: self.lane_flow(context),
        })
    }

    /// Applies operators' rules to a request whose sender is known as far as it will be.
    fn apply_rules(
        &self,
        context: &mut RequestContext<'_>,
        is_forwarded: bool,
    ) -> Result<(), Rejection> {
        let Some(flow) = self.flow_control.as_ref().filter(|flow| flow.has_rules()) else {
            return Ok(());
        };
        let size = context.size(&self.caches.registry);
        flow.apply_rules(context, size.map(|size| size.bytes), is_forwarded)
    }

    /// Counts a watch for its sender, once, and refuses it if its sender has too many.
    fn count_watch(&self, context: &mut RequestContext<'_>) -> Result<(), Rejection> {
        let is_new = context.info.verb == Verb::Watch && context.holds.watch.is_none();
        if let Some(watches) = self.watches.as_ref().filter(|_| is_new) {
            let client =
                ClientId::from_user_or_address(context.user(), context.client.peer.address);
            context.holds.watch = Some(watches.open(client)?);
        }
        Ok(())
    }

    /// Returns the share of a response from a cache, and refuses one whose client has too many
    /// bytes unread. `copies` is whether the response is mostly made for this request alone.
    pub(super) fn share(
        &self,
        context: &RequestContext<'_>,
        copies: bool,
    ) -> Result<ResponseShare, Rejection> {
        let account = |client| self.caches.responses.account(client);
        let held = context.client.held(context.auth.user(), account);
        if copies && held.is_full() {
            return Err(too_much_held());
        }
        let is_paced = copies && context.version != Version::HTTP_2;
        let held = if is_paced { held.response() } else { held };
        // Exempt requests have no lane.
        let is_exempt = |flow: &Arc<FlowControl>| flow.rank(context) <= rank("exempt");
        let has_lane = copies && !self.flow_control.as_ref().is_some_and(is_exempt);
        let lane = has_lane.then(|| self.caches.overload.lane(self.lane_flow(context)));
        Ok(ResponseShare { held, is_paced, lane })
    }

    /// A user's answers are one flow; without users, those of a connection.
    fn lane_flow(&self, context: &RequestContext<'_>) -> u64 {
        let overload = &self.caches.overload;
        match context.auth.user() {
            Some(user) => overload.flow(&user.name),
            None => overload.flow(context.client.number),
        }
    }

    pub(super) fn ask_for_seats(&self, context: &RequestContext<'_>) -> Result<Seats, Rejection> {
        let Some(flow) = &self.flow_control else { return Ok(Seats::Now(None)) };
        let size = context.size(&self.caches.registry);
        flow.ask_for_seats(context, size, self.forwarder.upstreams.own_identity.endpoints())
    }

    /// Takes what a request that is forwarded for `reason` needs of the forward budgets.
    pub(super) fn draw_on_budget(
        &self,
        context: &RequestContext<'_>,
        reason: Reason,
    ) -> Result<Option<ForwardClaim>, Rejection> {
        let client = self.forwarder.share_of(context);
        ForwardClaim::acquire(&self.caches, context, reason, client)
    }

    /// Returns a refusal of Weir's own, and logs it to the audit log. The future is boxed, so that
    /// no answer has room for a refusal.
    pub(super) fn reject<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        rejection: &'a Rejection,
    ) -> BoxFuture<'a, Box<Reply>> {
        context.holds.release();
        let Rejection { status, cause } = rejection;
        let (parts, info) = (&context.parts, &context.info);
        let reply = Reply::refusal(&parts.headers, &info.query, status, cause.as_str());
        let mut reply = Box::new(reply);
        if let Some(shed) = rejection.shed() {
            self.mark_shed(context, shed, reply.response.headers_mut());
        }
        Box::pin(async move {
            let audit_id = reply.response.headers().get(AUDIT_ID).cloned();
            self.auditor.log_refusal(context, status, audit_id).await;
            reply
        })
    }

    /// Says on the response why a request was shed, and how it was classified, as kube-apiserver
    /// does: by the uids of its FlowSchema and its priority level.
    fn mark_shed(&self, context: &RequestContext<'_>, shed: &'static str, headers: &mut HeaderMap) {
        headers.insert(SHED_HEADER, HeaderValue::from_static(shed));
        let uids = self.flow_control.as_ref().map(|flow| flow.uids(context));
        let names = [FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID].into_iter();
        for (name, uid) in names.zip(uids.into_iter().flatten()) {
            uid.map(|uid| headers.insert(name, uid));
        }
    }
}
