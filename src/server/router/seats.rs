//! Lets a request wait for seats of the API server before it is forwarded.

use http::HeaderValue;
use tokio::time::Instant;

use super::Router;
use crate::server::flow_control::queue::SeatHold;
use crate::server::flow_control::seats::Shed;
use crate::server::http::headers::{FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID, SHED_HEADER};
use crate::server::http::refusal;
use crate::server::http::response::Reply;
use crate::server::request::bypass::Rejection;
use crate::server::request::context::RequestContext;

impl Router {
    /// Waits until flow control lets a request be forwarded.
    pub(super) async fn wait_for_seats(
        &self,
        context: &mut RequestContext<'_>,
    ) -> Result<Option<SeatHold>, Shed> {
        let Some(flow) = &self.flow_control else { return Ok(None) };
        let gvr = context.info.resource.as_ref().map(|resource| &resource.gvr);
        let size = gvr.and_then(|gvr| self.caches.registry.size_of(gvr));
        let servers = self.forwarder.upstreams.own.endpoints().count();
        let seat = flow.wait_for_seats(context, size, servers).await?;
        context.forwarded = Some(Instant::now());
        Ok(seat)
    }

    /// Refuses a request for which there are no seats. It took none.
    pub(super) async fn shed(&self, context: &mut RequestContext<'_>, shed: Shed) -> Reply {
        let Shed { rejected, uids } = shed;
        context.forwarded = None;
        let rejection = Rejection::new(refusal::shed(rejected.retry_after), SHED);
        let mut reply = self.reject(context, &rejection).await;
        let reason = HeaderValue::from_static(rejected.reason.as_str());
        let headers = reply.response.headers_mut();
        headers.insert(SHED_HEADER, reason);
        for (name, uid) in [FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID].into_iter().zip(uids) {
            uid.map(|uid| headers.insert(name, uid));
        }
        reply
    }
}

/// The reason of refusals in metrics.
const SHED: &str = "shed";
