//! Counts a request in the metrics when its response is known.

use std::time::Duration;

use http::{Method, Response};
use http_body::Body as _;
use prometheus::IntCounter;

use crate::codec::rope::PIECE_BYTES;
use crate::server::connection::list::ListedConnection;
use crate::server::http::body::Body;
use crate::server::metrics::{AnsweredRequest, CacheStatus};
use crate::server::request::context::RequestContext;

/// Counts a request. Returns the counter of the bytes of its response, unless that is short, or is
/// counted where it is made.
pub(super) fn count(
    context: &RequestContext<'_>,
    response: &Response<Body>,
    (cache_status, reason): (CacheStatus, &'static str),
    duration: Duration,
) -> Option<IntCounter> {
    if let Some(upstream) = context.upstream_time {
        context.metrics.forward_overhead(duration.saturating_sub(upstream));
    }
    context.metrics.request(&AnsweredRequest {
        verb: context.info.verb_label(),
        scope: context.info.scope(),
        cache_status,
        reason,
        code: response.status().as_u16(),
        duration,
        bytes: short(context, response.body()),
    })
}

/// Notes the client of a connection's first request in the list for operators.
pub(super) fn note_client(listed: &ListedConnection, context: &RequestContext<'_>) {
    let user = context.auth.user().map_or("", |user| &user.name);
    let agent = context.agent.as_ref().and_then(|agent| agent.to_str().ok());
    listed.note_client(user, agent.unwrap_or_default());
}

/// Returns the length of a body that needs no counter.
fn short(context: &RequestContext<'_>, body: &Body) -> Option<u64> {
    match body {
        // Counted with its events.
        Body::Watch(_) => Some(0),
        // Its length is that of the GET.
        _ if context.parts.method == Method::HEAD => Some(0),
        _ => body.size_hint().exact().filter(|bytes| *bytes <= PIECE_BYTES as u64),
    }
}
