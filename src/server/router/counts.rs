//! Counts a request in the metrics when its response is known.

use std::time::Duration;

use http::{Method, Response};
use http_body::Body as _;
use prometheus::IntCounter;

use crate::codec::rope::PIECE_BYTES;
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
        verb: context.info.verb.as_str(),
        scope: context.info.scope(),
        cache_status,
        reason,
        code: response.status().as_u16(),
        duration,
        bytes: short(context, response.body()),
    })
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
