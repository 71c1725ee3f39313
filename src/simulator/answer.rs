//! Responses: encoding, and the headers that every response has (`docs/semantics.md` §8).
//!
//! Content negotiation is in `negotiate`. `render` encodes objects and lists.

use std::io;
use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::encode;
use super::negotiate::{Form, Media, negotiate_error};
use super::request::Request;
use super::status::ApiError;

/// The body of a response.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Bodies above this size are compressed for clients that accept gzip (`docs/semantics.md` §8.7).
const GZIP_THRESHOLD_BYTES: usize = 128 << 10;

/// Returns a success in a negotiated encoding. A JSON `body` is compact and has no trailing
/// newline.
pub(super) fn encoded(request: &Request, code: u16, form: &Form, body: Bytes) -> Response<Body> {
    let body = match form.media {
        Media::Protobuf => body.to_vec(),
        Media::Json if form.pretty || pretty(request) => encode::indent(&body),
        Media::Json => [body.as_ref(), b"\n"].concat(),
    };
    let mut response = if accepts_gzip(request) && body.len() > GZIP_THRESHOLD_BYTES {
        let mut response = full(code, gzip(&body));
        name_gzip(response.headers_mut());
        response
    } else {
        full(code, body)
    };
    set(response.headers_mut(), header::CONTENT_TYPE, form.media.content_type());
    response
}

/// Returns a success in JSON, for responses that have no other encoding.
pub(super) fn json(request: &Request, code: u16, compact: Bytes) -> Response<Body> {
    encoded(request, code, &Form::bare(Media::Json, false), compact)
}

/// Returns a value in JSON.
pub(super) fn value(request: &Request, code: u16, value: &Value) -> Response<Body> {
    json(request, code, encode::encode(value))
}

/// Returns a failure, as a `Status` or as plain text (`docs/semantics.md` §8.5).
pub(super) fn error(request: &Request, error: &ApiError) -> Response<Body> {
    let mut response =
        if error.plain { plain(error.code, &error.message) } else { status(request, error) };
    if error.plain || error.code == 403 {
        set(response.headers_mut(), header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    }
    if let Some(seconds) = error.retry_after {
        set(response.headers_mut(), header::RETRY_AFTER, &seconds.to_string());
    }
    response
}

fn status(request: &Request, error: &ApiError) -> Response<Body> {
    let compact = encode::encode(&error.to_value());
    match negotiate_error(request) {
        Some((media, pretty)) => {
            let form = Form::bare(media, pretty);
            let body = if media == Media::Json { compact } else { error.to_protobuf().into() };
            encoded(request, error.code, &form, body)
        }
        None => {
            let mut response = full(error.code, encode::indent(&compact));
            set(response.headers_mut(), header::CONTENT_TYPE, Media::Json.content_type());
            response
        }
    }
}

pub(super) fn plain(code: u16, text: &str) -> Response<Body> {
    let mut response = full(code, text.as_bytes().to_vec());
    set(response.headers_mut(), header::CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

/// Returns the refusal of priority and fairness (`priority-and-fairness.go`).
pub(super) fn refused(retry_after: u32) -> Response<Body> {
    let mut response = plain(429, "Too many requests, please try again later.\n");
    set(response.headers_mut(), header::RETRY_AFTER, &retry_after.to_string());
    response
}

/// Returns a response whose body is complete.
pub(super) fn full(code: u16, body: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Adds the headers that every response has (`docs/semantics.md` §8.8).
pub(super) fn common_headers(request: &Request, response: &mut Response<Body>) {
    let code = response.status().as_u16();
    let headers = response.headers_mut();
    let audit = match request.header("audit-id") {
        "" => uuid::Uuid::new_v4().to_string(),
        given => given.to_owned(),
    };
    set(headers, HeaderName::from_static("audit-id"), &audit);
    if !headers.contains_key(header::CACHE_CONTROL) {
        set(headers, header::CACHE_CONTROL, "no-cache, private");
    }
    if code != 401 {
        set(headers, HeaderName::from_static("x-kubernetes-pf-flowschema-uid"), FLOW_SCHEMA_UID);
        let name = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
        set(headers, name, PRIORITY_LEVEL_UID);
    }
}

/// Sets a header. An invalid value is ignored; all callers pass valid ones.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns whether JSON is indented (`docs/semantics.md` §8.6).
fn pretty(request: &Request) -> bool {
    match request.param("pretty") {
        Some(given) if !given.is_empty() => {
            matches!(given, "1" | "t" | "T" | "TRUE" | "true" | "True")
        }
        _ => {
            let agent = request.header("user-agent");
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
        }
    }
}

/// Whether the client accepts gzip.
pub(super) fn accepts_gzip(request: &Request) -> bool {
    request.header("accept-encoding").split(',').any(|token| token.trim() == "gzip")
}

/// Adds the headers of a compressed body.
pub(super) fn name_gzip(headers: &mut HeaderMap) {
    set(headers, header::CONTENT_ENCODING, "gzip");
    set(headers, header::VARY, "Accept-Encoding");
}

/// Compresses at the upstream's gzip level. The last block is empty, as in the upstream's watches.
/// Writing to memory does not fail.
pub(super) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    match encoder.write_all(body).and_then(|()| encoder.flush()) {
        Ok(()) => encoder.finish().unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

const FLOW_SCHEMA_UID: &str = "5d2f0c5e-7a51-4c1c-9f0c-4f1c9b1f7a10";
const PRIORITY_LEVEL_UID: &str = "8b9c4c58-0a39-4f0e-8d8d-64f0f6b6c7de";
