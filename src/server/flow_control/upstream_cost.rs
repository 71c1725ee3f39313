//! The estimated cost of a forwarded response for the API server: the CPU time for each byte, and
//! whether it is a list that should have been read in pages.
//!
//! The bytes are those of the objects. Those of a compressed response are estimated.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use crate::api::media_type::Encoding;
use crate::api::request_info::{RequestScope, Verb};
use crate::flow::doctor::{GZIP_RATIO, seconds_per_sent_byte};
use crate::server::flow_control::selectors;
use crate::server::http::body::Body;
use crate::server::request::context::RequestContext;
use crate::upstream::bounded::is_gzip;

/// Estimates the API server's CPU seconds for a byte of a response as it was sent.
pub(super) fn seconds_per_byte(headers: &HeaderMap) -> f64 {
    let content = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let protobuf = Encoding::Protobuf.content_type(false).as_bytes();
    seconds_per_sent_byte(content.starts_with(protobuf), is_gzip(headers))
}

/// Returns the bytes as sent from which a forwarded list is so large that it should have been read
/// in pages; `None` if it was, or did not have to be. `objects` is how many its resource has, if
/// known.
pub(super) fn huge_from(
    context: &RequestContext<'_>,
    response: &Response<Body>,
    objects: Option<u64>,
) -> Option<u64> {
    let (info, habit) = (&context.info, context.habit);
    let is_unpaged =
        response.status().is_success() && info.verb == Verb::List && habit.is_unpaged();
    if !is_unpaged {
        return None;
    }
    let is_whole = info.scope() == RequestScope::Cluster
        && selectors(info).into_iter().flatten().all(str::is_empty);
    if is_whole && objects.is_some_and(|objects| objects >= HUGE_OBJECTS) {
        return Some(0);
    }
    Some(if is_gzip(response.headers()) { HUGE_BYTES / GZIP_RATIO as u64 } else { HUGE_BYTES })
}

/// A list of this many bytes before compression...
const HUGE_BYTES: u64 = 5_000_000;
/// ...or objects should be read in pages, even once.
const HUGE_OBJECTS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use http::header::CONTENT_ENCODING;

    use super::*;

    #[test]
    fn a_byte_that_is_compressed_stands_for_several() {
        let cost = |content: &'static str, coding: &'static str| {
            let headers = [(CONTENT_TYPE, content), (CONTENT_ENCODING, coding)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
            1e9 * seconds_per_byte(&HeaderMap::from_iter(headers))
        };
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (content, coding, expected) in [
            ("application/json", "identity", 12.0),
            ("application/json", "gzip", 96.0),
            (protobuf, "identity", 7.0),
            (protobuf, "gzip", 56.0),
        ] {
            let estimate = cost(content, coding);
            assert!((estimate - expected).abs() < 1e-6, "{content} {coding}: {estimate}");
        }
        assert!((seconds_per_byte(&HeaderMap::new()) - 12e-9).abs() < 1e-15);
    }
}
