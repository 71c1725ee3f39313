//! Lets a request wait for seats of the API server before it is forwarded.

use tokio::time::Instant;

use super::Router;
use crate::server::flow_control::queue::SeatHold;
use crate::server::flow_control::seats::Shed;
use crate::server::http::headers::{FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID};
use crate::server::http::refusal;
use crate::server::http::response::Reply;
use crate::server::request::bypass::Rejection;
use crate::server::request::context::RequestContext;

impl Router {
    /// Applies operators' rules to a request whose sender is known as far as it will be.
    pub(super) fn apply_rules(
        &self,
        context: &mut RequestContext<'_>,
        is_forwarded: bool,
    ) -> Result<(), Rejection> {
        let Some(flow) = self.flow_control.as_ref().filter(|flow| flow.has_rules()) else {
            return Ok(());
        };
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        flow.apply_rules(context, size.map(|(_, bytes)| bytes), is_forwarded)
            .map_err(|refusal| Rejection::shed(refusal.status(), refusal.as_str()))
    }

    /// Waits until flow control lets a request be forwarded.
    pub(super) async fn wait_for_seats(
        &self,
        context: &mut RequestContext<'_>,
    ) -> Result<Option<SeatHold>, Shed> {
        let Some(flow) = &self.flow_control else { return Ok(None) };
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        let endpoints = self.forwarder.upstreams.own.endpoints();
        let seat = flow.wait_for_seats(context, size, endpoints).await?;
        context.forwarded = Some(Instant::now());
        Ok(seat)
    }

    /// Refuses a request for which there are no seats. It took none.
    pub(super) async fn shed(&self, context: &mut RequestContext<'_>, shed: Shed) -> Reply {
        let Shed { rejected, uids } = shed;
        context.forwarded = None;
        let status = refusal::shed(rejected.retry_after);
        let mut reply =
            self.reject(context, &Rejection::shed(status, rejected.reason.as_str())).await;
        let headers = reply.response.headers_mut();
        for (name, uid) in [FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID].into_iter().zip(uids) {
            uid.map(|uid| headers.insert(name, uid));
        }
        reply
    }
}
