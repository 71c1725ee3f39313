//! Whether a request is admitted: by Weir's own overload, by operators' rules, and, before it is
//! forwarded, by seats of the API server.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::Router;
use crate::api::request_info::Verb;
use crate::flow::rules::rank;
use crate::flow::schedule::request::Rejected;
use crate::server::connection::client_id::ClientId;
use crate::server::flow_control::FlowControl;
use crate::server::flow_control::seats::Seats;
use crate::server::http::headers::{FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID, SHED_HEADER};
use crate::server::http::refusal;
use crate::server::http::response::Reply;
use crate::server::lanes::Lane;
use crate::server::overload::Demand;
use crate::server::request::bypass::Rejection;
use crate::server::request::context::RequestContext;

impl Router {
    /// Applies operators' rules to a request whose sender is known as far as it will be.
    pub(super) fn apply_rules(
        &self,
        context: &mut RequestContext<'_>,
        is_forwarded: bool,
    ) -> Result<(), Rejection> {
        if is_forwarded || !context.is_checked {
            self.check_overload(context, is_forwarded)?;
        }
        let Some(flow) = self.flow_control.as_ref().filter(|flow| flow.has_rules()) else {
            return Ok(());
        };
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        flow.apply_rules(context, size.map(|(_, bytes)| bytes), is_forwarded)
            .map_err(|refusal| Rejection::with_shed(refusal.status(), refusal.as_str()))
    }

    /// Admits a request that is about to be forwarded, as far as rules and limits go.
    pub(super) fn admit_forwarded(
        &self,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Rejection> {
        self.apply_rules(context, true)?;
        self.count_watch(context)
    }

    /// Counts a watch for its sender, once, and refuses it if its sender has too many.
    pub(super) fn count_watch(&self, context: &mut RequestContext<'_>) -> Result<(), Rejection> {
        let is_new = context.info.verb == Verb::Watch && context.watch.is_none();
        if let Some(watches) = self.watches.as_ref().filter(|_| is_new) {
            let user = context.auth.user().or(context.auth.requester.user());
            let client = ClientId::from_user_or_address(user, context.client.peer.address);
            context.watch = Some(watches.open(client)?);
        }
        Ok(())
    }

    /// Refuses a request that the present stage of Weir's own overload does not admit.
    pub(super) fn check_overload(
        &self,
        context: &RequestContext<'_>,
        is_forwarded: bool,
    ) -> Result<(), Rejection> {
        let overload = &self.caches.overload;
        if !overload.has_checks() {
            return Ok(());
        }
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        overload.admit(&Demand {
            info: &context.info,
            rank: self.flow_control.as_ref().map(|flow| flow.rank(context)),
            bytes: size.map(|(_, bytes)| bytes),
            is_forwarded,
            is_checked: context.is_checked,
            flow: self.lane_flow(context),
        })
    }

    /// Returns the lane of a request's answer, if that is large: exempt ones have none.
    pub(super) fn lane(&self, context: &RequestContext<'_>) -> Option<Lane> {
        let is_exempt = |flow: &Arc<FlowControl>| flow.rank(context) <= rank("exempt");
        let has_lane = !self.flow_control.as_ref().is_some_and(is_exempt);
        has_lane.then(|| self.caches.overload.lane(self.lane_flow(context)))
    }

    /// A user's answers are one flow; without users, those of a connection.
    fn lane_flow(&self, context: &RequestContext<'_>) -> u64 {
        let overload = &self.caches.overload;
        match context.auth.user() {
            Some(user) => overload.flow(&user.name),
            None => overload.flow(context.client.number),
        }
    }

    /// Asks flow control whether a request may be forwarded.
    pub(super) fn ask_for_seats(&self, context: &RequestContext<'_>) -> Result<Seats, Rejected> {
        let Some(flow) = &self.flow_control else { return Ok(Seats::Now(None)) };
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        flow.ask_for_seats(context, size, self.forwarder.upstreams.own.endpoints())
    }

    /// Refuses a request for which there are no seats. It took none.
    pub(super) async fn shed(&self, context: &RequestContext<'_>, rejected: Rejected) -> Reply {
        let status = refusal::shed(rejected.retry_after);
        self.reject(context, &Rejection::with_shed(status, rejected.reason.as_str())).await
    }

    /// Says on the response why a request was shed, and how it was classified, as kube-apiserver
    /// does: by the uids of its FlowSchema and its priority level.
    pub(super) fn mark_shed(
        &self,
        context: &RequestContext<'_>,
        shed: &'static str,
        headers: &mut HeaderMap,
    ) {
        headers.insert(SHED_HEADER, HeaderValue::from_static(shed));
        let uids = self.flow_control.as_ref().map(|flow| flow.uids(context));
        let names = [FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID].into_iter();
        for (name, uid) in names.zip(uids.into_iter().flatten()) {
            uid.map(|uid| headers.insert(name, uid));
        }
    }
}
