//! Responses that Weir makes itself, with the headers that the API server sets (`docs/semantics.md`
//! §8.8).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::api::media_type::{self, ErrorForm};
use crate::api::query::Query;
use crate::api::status::Status;
use crate::codec::held_bytes::HeldBytes;
use crate::codec::{pretty, protobuf};
use crate::server::http::audit_id::{AUDIT_ID, audit_id};
use crate::server::http::body::Body;
use crate::server::http::headers::{CACHE_HEADER, StateAge};
use crate::server::lanes::Lane;
use crate::server::metrics::CacheStatus;

pub(crate) struct Reply {
    pub(crate) response: Response<Body>,
    pub(crate) cache_status: CacheStatus,
    /// Why it has this cache status; empty for a hit of a watch cache.
    pub(crate) reason: &'static str,
    /// Waits with each piece until few bytes of the response are held.
    pub(crate) unwritten: Option<HeldBytes>,
    /// The lane of a response that may be large.
    pub(crate) lane: Option<Lane>,
}

impl Reply {
    /// Returns a reply of a cache, or of a document in memory for `reason`.
    pub(crate) fn hit(response: Response<Body>, reason: &'static str) -> Self {
        Self::new(response, CacheStatus::Hit, reason)
    }

    fn new(response: Response<Body>, cache_status: CacheStatus, reason: &'static str) -> Self {
        Self { response, cache_status, reason, unwritten: None, lane: None }
    }

    pub(crate) fn forwarded(response: Response<Body>, reason: &'static str) -> Self {
        Self::new(response, CacheStatus::Forward, reason)
    }

    pub(crate) fn error(request: &HeaderMap, status: &Status, reason: &'static str) -> Self {
        Self::refusal(request, &Query::default(), status, reason)
    }

    /// Returns an error that the API server would return as well, in the form that this request
    /// negotiates, its query included.
    pub(crate) fn refusal(
        request: &HeaderMap,
        query: &Query,
        status: &Status,
        reason: &'static str,
    ) -> Self {
        Self::new(error_response(request, query, status), CacheStatus::Error, reason)
    }
}

/// Returns a 200 with the headers that the API server sets on every response.
pub(crate) fn ok(
    request: &HeaderMap,
    content_type: &'static str,
    body: Body,
    warnings: &[HeaderValue],
) -> Response<Body> {
    let mut response = Response::new(body);
    set_common_headers(request, content_type, response.headers_mut());
    add_warnings(response.headers_mut(), warnings);
    response
}

/// Adds the warnings that the API server sets on every response of a resource.
pub(crate) fn add_warnings(response: &mut HeaderMap, warnings: &[HeaderValue]) {
    for warning in warnings {
        response.append(WARNING, warning.clone());
    }
}

/// Returns a `Status` in the form that the request negotiates for errors: protobuf, compact JSON
/// with a newline, or indented JSON without one, also in place of YAML.
pub(crate) fn error_response(
    request: &HeaderMap,
    query: &Query,
    status: &Status,
) -> Response<Body> {
    let form = media_type::error_form(request, query);
    let body = match form {
        ErrorForm::Json { pretty: true } | ErrorForm::Yaml => {
            vec![Bytes::from(pretty::indent(&status.to_json()))]
        }
        ErrorForm::Json { pretty: false } => vec![status.to_json(), Bytes::from_static(b"\n")],
        ErrorForm::Protobuf => vec![protobuf::encode_status(status)],
    };
    let mut response = Response::new(Body::chunks(body));
    *response.status_mut() = status.code;
    set_common_headers(request, form.content_type(), response.headers_mut());
    if status.code == StatusCode::FORBIDDEN {
        // The API server marks a response that quotes the request (`docs/semantics.md` §8.8).
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    if let Some(seconds) = status.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn set_common_headers(request: &HeaderMap, content_type: &'static str, response: &mut HeaderMap) {
    response.insert(AUDIT_ID, audit_id(request));
    response.insert(CACHE_CONTROL, const { HeaderValue::from_static("no-cache, private") });
    // The usual one is not checked again for each response.
    let content_type = match content_type {
        "application/json" => const { HeaderValue::from_static("application/json") },
        other => HeaderValue::from_static(other),
    };
    response.insert(CONTENT_TYPE, content_type);
}

/// Sets the header `X-Weir-Cache`: by the origin of the response and the reason of a forwarded one.
pub(crate) fn set_cache_header(
    response: &mut Response<Body>,
    cache_status: CacheStatus,
    reason: &'static str,
    stale: bool,
) {
    let age = response.extensions_mut().remove::<StateAge>();
    let value = match cache_status {
        CacheStatus::Hit => hit_value(stale, age),
        CacheStatus::Forward => {
            let text = format!("forward; reason={reason}");
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("forward"))
        }
        CacheStatus::Error => return,
    };
    response.headers_mut().insert(CACHE_HEADER, value);
}

fn hit_value(stale: bool, age: Option<StateAge>) -> HeaderValue {
    if !stale && age.is_none() {
        return const { HeaderValue::from_static("hit") };
    }
    let hit = if stale { "hit; decision=stale" } else { "hit" };
    let Some(StateAge { age, is_away }) = age else { return HeaderValue::from_static(hit) };
    let away = if is_away { "; upstream=away" } else { "" };
    let text = format!("{hit}{away}; age={}", age.as_secs());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(hit))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::auth::forbidden::unauthorized;

    #[tokio::test]
    async fn a_refusal_has_the_form_that_the_client_asks_for() {
        let json = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        let indented = String::from_utf8(pretty::indent(json.as_bytes())).unwrap();
        for (accept, expected) in [
            ("application/json", format!("{json}\n")),
            ("application/yaml", indented.clone()),
            ("application/yaml;q=0.9,application/json;q=0.1", indented),
        ] {
            let request =
                HeaderMap::from_iter([(http::header::ACCEPT, HeaderValue::from_static(accept))]);
            let reply = Reply::refusal(&request, &Query::default(), &unauthorized(), "test");
            let (parts, body) = reply.response.into_parts();
            assert_eq!(parts.status, StatusCode::UNAUTHORIZED);
            assert_eq!(parts.headers[CONTENT_TYPE], "application/json", "{accept}");
            let body = body.collect().await.unwrap().to_bytes();
            assert_eq!(body, expected, "{accept}");
        }
    }
}
