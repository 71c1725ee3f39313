//! How the admin listener responds: text, and what several clients share.

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use crate::admin::api::Answer;
use crate::admin::detail;
use crate::server::http::body::Body;

/// Returns a response that several clients share, compressed if the client accepts that; a 304 if
/// the client has the content already.
pub(super) fn shared<B>(
    request: &Request<B>,
    content_type: &'static str,
    answer: &Answer,
) -> Response<Body> {
    let headers = request.headers();
    let names = |name| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let has_it = names(IF_NONE_MATCH).any(|tags| tags.contains(&*answer.etag));
    let mut response = if has_it {
        respond(StatusCode::NOT_MODIFIED, content_type, Bytes::new())
    } else if let Some(gzip) = accepts_gzip(headers).then(|| answer.gzip()).flatten() {
        let mut response = respond(StatusCode::OK, content_type, gzip);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        respond(StatusCode::OK, content_type, answer.body.clone())
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&answer.etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    response
}

/// Whether a client accepts a compressed response.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter();
    let mut codings =
        accepted.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

/// Returns a 503: too many responses with details are made.
pub(super) fn busy() -> Response<Body> {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "busy: too many ask for details\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Adds what all details have in common.
pub(super) fn detailed(is_scarce: bool, mut response: Response<Body>) -> Response<Body> {
    detail::secure(response.headers_mut());
    if is_scarce {
        // So that what people leave open takes no prober's place.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns a 405 that names the methods of the path.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(super) fn not_in_shadow() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "off: see shadow.mode\n")
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    respond(status, "text/plain; charset=utf-8", body)
}

pub(super) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::chunks(vec![body.into()]));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
