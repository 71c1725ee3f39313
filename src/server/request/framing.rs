//! Rejects requests whose target or framing another proxy or the API server could parse differently
//! (request smuggling). This check comes before all others.
//!
//! hyper and h2 parse a request, and Weir writes a new one from the parts, so that the upstream
//! never receives bytes that were not understood here. Before them, Weir reads the raw head itself
//! ([`crate::server::connection::wire`]): it writes targets so that they are not cut, and refuses
//! heads of HTTP/1.1 that it cannot read. This module rejects what hyper and h2 accept more
//! generously than Go's server: codings before `chunked` (the body would be forwarded without its
//! coding), a length that no body follows, targets that are not a path, paths with a bad
//! percent-escape, and over HTTP/2 names of fields with a quotation mark (the upstream would reset
//! the stream, so that its answer would seem lost). A bare LF ends a line for all.
//!
//! No request arrives here with both a Transfer-Encoding and a Content-Length: hyper removes the
//! length, and closes the connection after the request; h2 resets the stream. Nothing here would
//! notice a change, so a test does (`hyper_takes_the_length_out_of_chunked_requests`).
//!
//! The client's connection is closed after a rejection, since the bytes that follow cannot be
//! trusted.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Version};
use memchr::memchr;

use crate::api::query::percent_decode;
use crate::api::status::Status;
use crate::server::connection::wire::aside::RefusedHead;
use crate::server::connection::wire::header_block::TOO_LONG_PATH;
use crate::server::http::refusal;

/// Checks a request. [Plain](crate::server::http::headers::PLAIN) headers say nothing of framing.
pub(crate) fn check(request: &Parts, has_body: bool, is_plain: bool) -> Result<(), Status> {
    if let Some(RefusedHead(status)) = request.extensions.get() {
        return Err(status.clone());
    }
    target(request)?;
    if is_plain {
        return Ok(());
    }
    let mut names = request.headers.keys();
    if request.version == Version::HTTP_2 && names.any(|name| name.as_str().contains('"')) {
        return Err(refusal::not_understood("the name of a header field is not a token"));
    }
    let mut codings = request.headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some() {
        return Err(refusal::not_understood("its Transfer-Encoding is not chunked, once"));
    }
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(()) };
    let digits = length.as_bytes();
    if lengths.next().is_some() || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(refusal::not_understood("its Content-Length is not one number"));
    }
    if !has_body && digits.iter().any(|digit| *digit != b'0') {
        return Err(refusal::not_understood("its Content-Length is not that of its body"));
    }
    Ok(())
}

/// Accepts a path, or `*`. Go parses any other target as neither. It refuses a path with a bad
/// percent-escape before any handler sees it: on HTTP/1.1 with 400, on HTTP/2 by a reset, after
/// which it would be unknown whether the upstream is broken.
fn target(request: &Parts) -> Result<(), Status> {
    let target = request.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if target == TOO_LONG_PATH {
        return Err(refusal::target_too_long());
    }
    if !target.starts_with('/') && target != "*" {
        return Err(refusal::not_understood("its target is not a path"));
    }
    let path = request.uri.path().as_bytes();
    if memchr(b'%', path).is_some() && percent_decode(path, false).is_none() {
        return Err(refusal::not_understood("its path has a percent sign that begins no escape"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, Request};

    #[test]
    fn a_name_with_a_quotation_mark_is_refused() {
        let code = |name: &[u8]| {
            // h2 makes names in this way.
            let name = HeaderName::from_lowercase(name).unwrap();
            let request = Request::builder().version(Version::HTTP_2).uri("/api").header(name, "x");
            let (parts, ()) = request.body(()).unwrap().into_parts();
            check(&parts, false, false).map_or_else(|status| status.code.as_u16(), |()| 200)
        };
        assert_eq!(code(b"x\"y"), 400);
        assert_eq!(code(b"x!#$%&'*+-.^_`|~y"), 200);
    }
}
