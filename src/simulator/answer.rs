//! Answers: negotiation, encoding and the headers that every response carries (semantics.md §8).
//!
//! Of the media types only JSON is served. An `Accept` that offers protobuf and JSON gets JSON, as a custom resource's
//! would; one of protobuf alone gets 406.

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
use super::request::Request;
use super::status::ApiError;

/// A response's body.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Bodies above this are compressed for clients that accept it (semantics.md §8.7).
const GZIP_THRESHOLD_BYTES: usize = 128 << 10;

/// What an `Accept` header asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The object itself.
    Plain,
    /// A Table of this version of `meta.k8s.io`.
    Table(String),
    /// Metadata only, of this version of `meta.k8s.io`.
    Partial(String),
}

/// Chooses the form (semantics.md §8.1); `built_in` types have go-restful's pre-filter (§8.2).
pub(super) fn negotiate(request: &Request, built_in: bool, list: bool) -> Result<Form, ApiError> {
    let watch = request.target.as_ref().is_some_and(|target| target.verb == "watch");
    let Some(accept) = request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok())
    else {
        return Ok(Form::Plain);
    };
    let produced = ["application/json", "application/yaml", PROTOBUF, "*/*"];
    let types = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    if built_in && !types.clone().any(|kind| produced.contains(&kind)) {
        let mut error = ApiError::new(406, "NotAcceptable", RESTFUL_406);
        error.details = Some(Box::default());
        return Err(error);
    }
    for clause in accept.split(',') {
        let mut params = clause.split(';').map(str::trim);
        let json =
            matches!(params.next(), Some("application/json" | "application/*" | "*/*" | "*"));
        let pairs: Vec<(&str, &str)> = params.filter_map(|param| param.split_once('=')).collect();
        let get = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        if !json {
            continue;
        }
        let version = get("v").unwrap_or_default().to_owned();
        match get("as") {
            None => return Ok(Form::Plain),
            Some(_) if get("g") != Some("meta.k8s.io") => {}
            Some("Table") => return Ok(Form::Table(version)),
            Some("PartialObjectMetadata") if watch || !list => return Ok(Form::Partial(version)),
            Some("PartialObjectMetadataList") if list => return Ok(Form::Partial(version)),
            Some(_) => {}
        }
    }
    let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    Err(ApiError::new(406, "NotAcceptable", message))
}

/// An object or list in JSON; `compact` has no newline.
pub(super) fn json(request: &Request, code: u16, compact: Bytes) -> Response<Body> {
    let body = if pretty(request) {
        encode::indent(&compact)
    } else {
        let mut body = compact.to_vec();
        body.push(b'\n');
        body
    };
    let accepted = request.header("accept-encoding").split(',').any(|token| token.trim() == "gzip");
    let mut response = if accepted && body.len() > GZIP_THRESHOLD_BYTES {
        let mut response = full(code, gzip(&body));
        set(response.headers_mut(), header::CONTENT_ENCODING, "gzip");
        set(response.headers_mut(), header::VARY, "Accept-Encoding");
        response
    } else {
        full(code, body)
    };
    set(response.headers_mut(), header::CONTENT_TYPE, "application/json");
    response
}

/// A value in JSON.
pub(super) fn value(request: &Request, code: u16, value: &Value) -> Response<Body> {
    json(request, code, encode::encode(value))
}

/// A failure, as a `Status` or as plain text.
pub(super) fn error(request: &Request, error: &ApiError) -> Response<Body> {
    let mut response = if error.plain {
        plain(error.code, &error.message)
    } else {
        value(request, error.code, &error.to_value())
    };
    if error.plain || error.code == 403 {
        set(response.headers_mut(), header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    }
    if let Some(seconds) = error.retry_after {
        set(response.headers_mut(), header::RETRY_AFTER, &seconds.to_string());
    }
    response
}

/// Plain text.
pub(super) fn plain(code: u16, text: &str) -> Response<Body> {
    let mut response = full(code, text.as_bytes().to_vec());
    set(response.headers_mut(), header::CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

/// A body that is at hand.
pub(super) fn full(code: u16, body: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Adds what every response carries (semantics.md §8.8).
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

/// Sets a header whose value is known to be one.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Whether JSON is indented (semantics.md §8.6).
fn pretty(request: &Request) -> bool {
    if request.header("accept").contains("pretty=1") {
        return true;
    }
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

/// Compresses at the upstream's level. Writing to memory does not fail.
fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    match encoder.write_all(body) {
        Ok(()) => encoder.finish().unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const RESTFUL_406: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const FLOW_SCHEMA_UID: &str = "5d2f0c5e-7a51-4c1c-9f0c-4f1c9b1f7a10";
const PRIORITY_LEVEL_UID: &str = "8b9c4c58-0a39-4f0e-8d8d-64f0f6b6c7de";
