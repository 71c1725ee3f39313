//! Rejects requests whose target or framing another proxy or the API server could parse differently
//! (request smuggling). This check comes before all others.
//!
//! hyper and h2 parse a request, and Weir writes a new one from the parts, so that the upstream
//! never receives bytes that were not understood here. This module rejects what they accept more
//! generously than Go's server: codings before `chunked` (the body would be forwarded without its
//! coding), a length that no body follows, and targets that are not a path. They cut off a fragment
//! (`#`) themselves, so that Weir and the upstream see the same path without it, and a bare LF ends
//! a line for both.
//!
//! It also rejects requests with more than [`HEADERS_MAX`] header fields.
//!
//! The client's connection is closed after a rejection, since the bytes that follow cannot be
//! trusted.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Version};

use crate::api::status::Status;
use crate::server::http::refusal;
use crate::server::http::response::Reply;

/// Checks the target and the framing of a request.
pub(crate) fn check(request: &Parts, has_body: bool) -> Result<(), Status> {
    // hyper limits only the fields of HTTP/1.1. Inserting into a full map panics.
    if request.headers.len() > HEADERS_MAX {
        let message = format!("weir accepts at most {HEADERS_MAX} header fields");
        let code = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(refusal::refusal(code, "RequestHeaderFieldsTooLarge", message));
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
    if !has_body && digits.iter().any(|digit| *digit != b'0') {
        return Err(bad_request("its Content-Length is not that of its body"));
    }
    Ok(())
}

/// Returns the response to a rejected request.
pub(crate) fn rejected(request: &Parts, status: &Status) -> Reply {
    let mut reply = Reply::error(&request.headers, status, "framing");
    if request.version < Version::HTTP_2 {
        reply.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

/// Accepts a path, or `*`. Go parses any other target as neither.
fn target(request: &Parts) -> Result<(), Status> {
    let path = request.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if path.starts_with('/') || path == "*" {
        return Ok(());
    }
    Err(bad_request("its target is not a path"))
}

fn bad_request(why: &str) -> Status {
    let message = format!("weir does not understand this request: {why}");
    refusal::bad_request(message)
}

/// The limit on header fields of a request, in both protocols. kube-apiserver limits only their
/// bytes; hyper's default of 100 is less than the number of `Impersonate-Group` fields of a user
/// with many groups.
pub(crate) const HEADERS_MAX: usize = 1024;
