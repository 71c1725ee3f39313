//! What Weir and whoever stands before or behind it could read differently in a request's target or framing is refused, before anything else is
//! looked at.
//!
//! hyper and h2 take a request apart, and Weir writes a new one from the parts, so bytes never reach the upstream that were not understood
//! here. Left to be refused is what they understand more generously than Go's server does: codings before `chunked` (the body would arrive without
//! its coding being told), a length that no body follows, targets that are no path. A fragment (`#`) is cut off by them before anybody looks, so
//! that Weir and the upstream see the same path without it; a bare LF ends a line for both.
//!
//! So are more header fields than anybody sends in earnest.
//!
//! The client's connection is closed after it, for what follows on it is of doubtful origin.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Version};

use crate::api::status::Status;
use crate::server::connection::HEADERS_MAX;
use crate::server::http::response::{self, Outcome};

/// Judges a request. `ended` says whether it is known to have no body (left).
pub(crate) fn check(request: &Parts, ended: bool) -> Result<(), Status> {
    // hyper counts those of HTTP/1.1 only. A map that is full cannot be added to, and panics in who tries.
    if request.headers.len() > HEADERS_MAX {
        let message = format!("weir takes at most {HEADERS_MAX} header fields");
        let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(response::refusal(code, "RequestHeaderFieldsTooLarge", message));
    }
    target(request)?;
    let codings = request.headers.get_all(TRANSFER_ENCODING).iter().collect::<Vec<_>>();
    let chunked = match codings.as_slice() {
        [] => false,
        [only] if only.as_bytes().eq_ignore_ascii_case(b"chunked") => true,
        _ => return Err(bad_request("its Transfer-Encoding is not chunked, once")),
    };
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(()) };
    let digits = length.as_bytes();
    if lengths.next().is_some() || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad_request("its Content-Length is not one number"));
    }
    if chunked {
        return Err(bad_request("it has a Content-Length and a Transfer-Encoding"));
    }
    if ended && digits.iter().any(|digit| *digit != b'0') {
        return Err(bad_request("its Content-Length is not that of its body"));
    }
    Ok(())
}

/// Weir's answer to it.
pub(crate) fn refused(request: &Parts, status: &Status) -> Outcome {
    let mut outcome = Outcome::error(&request.headers, status, "framing");
    if request.version < Version::HTTP_2 {
        outcome.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    outcome
}

/// A path, or `*`. Everything else Go reads as something that is neither.
fn target(request: &Parts) -> Result<(), Status> {
    let path = request.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if path.starts_with('/') || path == "*" {
        return Ok(());
    }
    Err(bad_request("its target is not a path"))
}

fn bad_request(why: &str) -> Status {
    let message = format!("weir does not understand this request: {why}");
    response::refusal(StatusCode::BAD_REQUEST, "BadRequest", message)
}
