//! Requests that a stored document may answer, and the key under which it is stored
//! (`docs/semantics.md` §10.2, §10.3).
//!
//! The key holds every part of a request that changes the response, as it was sent: the `Accept`
//! header itself and not the result of negotiation, so that Weir imitates no rule of the upstream's
//! negotiation. A request with any other part that could matter is forwarded.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, ORIGIN, RANGE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::api::media_type::is_interactive_client;
use crate::api::request_info::RequestInfo;
use crate::server::http::headers;

/// The key under which a document is stored. It does not contain the user, since the upstream
/// authorizes each reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    path: Box<str>,
    pub(super) hash: Option<Box<str>>,
    accept: Box<str>,
    accept_encoding: Box<str>,
    /// Whether the response is indented: discovery is, for curl and browsers, under the same ETag.
    interactive: bool,
}

impl Key {
    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let hash = self.hash.as_ref().map_or(0, |hash| hash.len());
        size_of::<Self>() + self.path.len() + hash + self.accept.len() + self.accept_encoding.len()
    }
}

#[derive(Debug)]
pub(crate) struct DocumentRequest {
    pub(super) key: Key,
    pub(crate) client_etag: Option<HeaderValue>,
}

impl DocumentRequest {
    /// Parses a request for a document. Returns `None` if it must be forwarded.
    pub(crate) fn parse(parts: &Parts, has_body: bool, info: &RequestInfo) -> Option<Self> {
        let (path, given) = (parts.uri.path(), &parts.headers);
        let discovery = matches!(path, "/api" | "/apis");
        let schema = path == "/openapi/v2" || path.starts_with("/openapi/v3/");
        if !(discovery || schema) || !info.plain_path || path.len() > TEXT_BYTES_MAX {
            return None;
        }
        if parts.method != Method::GET
            || has_body
            || headers::bypasses_cache(given)
            || headers::impersonates(given)
            || headers::upgrade(given).is_some()
            || FORWARDED_HEADERS.iter().any(|name| given.contains_key(name))
        {
            return None;
        }
        let parameters: &[&str] =
            if path == "/openapi/v2" || discovery { &["timeout"] } else { &["hash", "timeout"] };
        if info.query.is_lossy() || !info.query.has_only(parameters) {
            return None;
        }
        if !info.query.first("timeout").is_none_or(is_seconds) {
            return None;
        }
        let hash = info.query.first("hash");
        let accept = only(given, &ACCEPT)?;
        // The other documents at these paths have no ETag, and `/api` returns different server
        // addresses to different clients.
        if discovery && !accept.contains("as=APIGroupDiscoveryList") {
            return None;
        }
        let key = Key {
            path: path.into(),
            hash: match hash {
                Some(hash) if hash.len() > TEXT_BYTES_MAX => return None,
                hash => hash.map(Into::into),
            },
            accept: accept.into(),
            accept_encoding: only(given, &ACCEPT_ENCODING)?.into(),
            interactive: discovery && is_interactive_client(given),
        };
        let client_etag = match given.get(IF_NONE_MATCH) {
            None => None,
            Some(value) => {
                Some(value.clone()).filter(|tag| is_strong(tag) && !is_repeated(given))?.into()
            }
        };
        Some(Self { key, client_etag })
    }
}

/// Whether `tag` is one strong ETag in its plainest form. Only those are compared in the same way
/// by all handlers of the upstream.
pub(super) fn is_strong(tag: &HeaderValue) -> bool {
    let inner = tag.as_bytes().strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner.is_some_and(|inner| !inner.is_empty() && inner.iter().all(u8::is_ascii_alphanumeric))
}

fn is_repeated(given: &HeaderMap) -> bool {
    given.get_all(IF_NONE_MATCH).iter().count() > 1
}

/// Returns the only value of a header, or an empty text if the header is absent. Returns `None` for
/// several values, or for one that is too long for a key.
fn only<'a>(given: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = given.get_all(name).iter();
    let Some(value) = values.next() else { return Some("") };
    let text = value.to_str().ok()?;
    (values.next().is_none() && text.len() <= TEXT_BYTES_MAX).then_some(text)
}

/// Whether `text` is a plain number of seconds. client-go sends its own time-out with discovery.
/// The upstream refuses a value that it cannot parse, so that only the plainest form is accepted
/// here.
fn is_seconds(text: &str) -> bool {
    let digits = text.strip_suffix('s').unwrap_or_default();
    (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The upstream decides the meaning of these headers. To a CORS request it adds headers.
const FORWARDED_HEADERS: [HeaderName; 6] =
    [RANGE, IF_RANGE, IF_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, ORIGIN];

/// Limit on each part of a key. kubectl's `Accept` for discovery is below 200 bytes, and a hash has
/// 128. Longer parts are not worth storing.
const TEXT_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

    fn parse(uri: &str, headers: &[(&str, &str)]) -> Option<DocumentRequest> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let query = parts.uri.query().unwrap_or_default();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), query);
        DocumentRequest::parse(&parts, false, &info)
    }

    #[test]
    fn requests_for_documents_with_an_etag_are_parsed() {
        for uri in ["/api", "/apis", "/apis?timeout=32s"] {
            assert!(parse(uri, &[("accept", AGGREGATED)]).is_some(), "{uri}");
            assert!(parse(uri, &[("accept", "application/json")]).is_none(), "{uri}: legacy");
            assert!(parse(uri, &[]).is_none(), "{uri}: legacy");
        }
        for uri in [
            "/openapi/v2",
            "/openapi/v2?timeout=32s",
            "/openapi/v3/api/v1",
            "/openapi/v3/apis/apps/v1?hash=AB",
        ] {
            assert!(parse(uri, &[]).is_some(), "{uri}");
        }
        for uri in [
            "/openapi/v3",
            "/openapi/v2/",
            "/openapi/v3/api%2Fv1",
            "/openapi/v2?pretty=1",
            "/openapi/v2?hash=AB",
            "/openapi/v2?timeout=x",
            "/openapi/v3/api/v1?hash=a&hash=b",
            "/version",
            "/apis/apps/v1",
        ] {
            assert!(parse(uri, &[("accept", AGGREGATED)]).is_none(), "{uri}");
        }
    }

    #[test]
    fn requests_with_other_headers_that_matter_are_forwarded() {
        for (name, value) in [
            ("range", "bytes=0-1"),
            ("if-modified-since", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("if-none-match", "*"),
            ("if-none-match", "W/\"A\""),
            ("if-none-match", "\"A\", \"B\""),
            ("impersonate-user", "jane"),
            ("origin", "http://localhost"),
            ("x-weir-cache", "bypass"),
        ] {
            assert!(parse("/openapi/v2", &[(name, value)]).is_none(), "{name}: {value}");
        }
        assert!(parse("/openapi/v2", &[("accept", "a/b"), ("accept", "c/d")]).is_none());
        let etag = parse("/openapi/v2", &[("if-none-match", "\"A\"")]).unwrap().client_etag;
        assert_eq!(etag.unwrap(), "\"A\"");
    }

    #[test]
    fn keys_differ_where_the_response_may_differ() {
        let key = |headers: &[(&str, &str)]| {
            let mut fields = vec![("accept", AGGREGATED)];
            fields.extend(headers);
            parse("/apis", &fields).unwrap().key
        };
        let plain = key(&[]);
        assert_eq!(plain, key(&[("user-agent", "kubectl/v1.36"), ("authorization", "Bearer x")]));
        assert_ne!(plain, key(&[("user-agent", "curl/8")]));
        assert_ne!(plain, key(&[("accept-encoding", "gzip")]));
        let profile = format!("{AGGREGATED};profile=nopeer");
        assert_ne!(plain, parse("/apis", &[("accept", &profile)]).unwrap().key);
        assert_ne!(plain, parse("/api", &[("accept", AGGREGATED)]).unwrap().key);
    }
}
