//! A document as it is kept, and the answers that are made of it.
//!
//! Invariant: an answer's headers are those the upstream would send now. What belongs to one request (its audit id, its date)
//! is never replayed; what tells of the moment (`Cache-Control`, `Expires`) is taken from the 304 that confirmed the document, or
//! made anew.

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG,
    EXPIRES, LAST_MODIFIED, SET_COOKIE, VARY, WARNING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use jiff::ToSpan;

use super::ask::is_strong;
use crate::server::response::{self, AUDIT_ID, Body};

/// A document and the headers that belong to it.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) etag: HeaderValue,
    headers: HeaderMap,
    body: Bytes,
    /// Its ETag is the hash that it was asked for by: it can't change, and needs no asking.
    pub(super) immutable: bool,
}

impl Document {
    /// The ETag of an answer that may be kept.
    pub(super) fn etag(status: StatusCode, headers: &HeaderMap) -> Option<&HeaderValue> {
        // Whoever sets a cookie means one client.
        let may = status == StatusCode::OK && !headers.contains_key(SET_COOKIE);
        headers.get(ETAG).filter(|tag| may && is_strong(tag))
    }

    /// Keeps an answer; `hash` is what the request asked by. The headers have no hop-by-hop ones any more.
    pub(super) fn new(
        etag: HeaderValue,
        headers: &HeaderMap,
        body: Bytes,
        hash: Option<&str>,
    ) -> Self {
        let mut headers = headers.clone();
        for name in PER_REQUEST.iter().chain([&CONTENT_LENGTH]) {
            headers.remove(name);
        }
        let by_hash = hash.is_some_and(|hash| unquoted(&etag) == Some(hash.as_bytes()));
        let immutable = by_hash && is_immutable(&headers) && expires_in_utc(&headers);
        Self { etag, headers, body, immutable }
    }

    /// About what it takes in memory.
    pub(super) fn weight(&self) -> usize {
        self.body.len() + HEADERS_BYTES
    }

    /// The first answer, with the upstream's own headers.
    pub(super) fn first(&self, mut headers: HeaderMap, known: bool) -> Response<Body> {
        headers.remove(CONTENT_LENGTH);
        self.answer(headers, known)
    }

    /// An answer confirmed by the upstream's 304, whose headers are given.
    pub(super) fn confirmed(&self, fresh: HeaderMap, known: bool) -> Response<Body> {
        if known {
            return response_of(StatusCode::NOT_MODIFIED, fresh, Body::empty());
        }
        let mut headers = self.headers.clone();
        // A 304 leaves out or words differently what describes the body.
        let told: Vec<HeaderName> =
            fresh.keys().filter(|name| !OF_THE_BODY.contains(name)).cloned().collect();
        for name in told {
            headers.remove(&name);
            for value in fresh.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        self.answer(headers, false)
    }

    /// An answer of an immutable document, without asking the upstream.
    pub(super) fn unasked(&self, request: &HeaderMap, known: bool) -> Response<Body> {
        let mut headers = self.headers.clone();
        headers.insert(AUDIT_ID, response::audit_id(request));
        if headers.contains_key(EXPIRES)
            && let Some(expires) = in_one_year()
        {
            headers.insert(EXPIRES, expires);
        }
        self.answer(headers, known)
    }

    /// `known`: the client has it already.
    fn answer(&self, mut headers: HeaderMap, known: bool) -> Response<Body> {
        if !known {
            return response_of(StatusCode::OK, headers, Body::chunks(vec![self.body.clone()]));
        }
        for name in NOT_OF_304 {
            headers.remove(name);
        }
        response_of(StatusCode::NOT_MODIFIED, headers, Body::empty())
    }
}

fn response_of(status: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn unquoted(etag: &HeaderValue) -> Option<&[u8]> {
    etag.as_bytes().strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn is_immutable(headers: &HeaderMap) -> bool {
    let control = headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok());
    control.is_some_and(|control| control.split(',').any(|word| word.trim() == "immutable"))
}

/// Whether `Expires`, if there is one, is written as Weir can write it anew: in the upstream's zone, which is UTC nearly always.
fn expires_in_utc(headers: &HeaderMap) -> bool {
    headers.get(EXPIRES).is_none_or(|expires| expires.as_bytes().ends_with(b" UTC"))
}

/// As Go's `RFC1123` prints it.
fn in_one_year() -> Option<HeaderValue> {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let then = now.checked_add(1.year()).ok()?;
    HeaderValue::from_str(&then.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()).ok()
}

/// What the upstream says of a request, not of the document.
const PER_REQUEST: [HeaderName; 5] = [
    AUDIT_ID,
    DATE,
    WARNING,
    HeaderName::from_static("x-kubernetes-pf-flowschema-uid"),
    HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"),
];

/// What of a kept document holds as long as its ETag does.
const OF_THE_BODY: [HeaderName; 7] =
    [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, VARY];

/// Go's `http.ServeContent` takes these from a 304.
const NOT_OF_304: [HeaderName; 5] =
    [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED];

/// Ten headers, one of them a hash of 128 digits.
const HEADERS_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn document(control: &'static str, expires: &'static str, hash: Option<&str>) -> Document {
        let given = headers(&[
            ("audit-id", "theirs"),
            ("cache-control", control),
            ("content-type", "application/json"),
            ("etag", "\"AB\""),
            ("expires", expires),
            ("last-modified", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("vary", "Accept"),
            ("content-length", "2"),
            ("x-kubernetes-pf-flowschema-uid", "1"),
        ]);
        Document::new(HeaderValue::from_static("\"AB\""), &given, Bytes::from_static(b"{}"), hash)
    }

    const EXPIRES_THEN: &str = "Sun, 21 Nov 2027 12:00:31 UTC";

    #[test]
    fn only_what_is_named_by_its_hash_is_immutable() {
        let immutable = |control, expires, hash| document(control, expires, hash).immutable;
        assert!(immutable("public, immutable", EXPIRES_THEN, Some("AB")));
        assert!(!immutable("public, immutable", EXPIRES_THEN, Some("CD")));
        assert!(!immutable("public, immutable", EXPIRES_THEN, None));
        assert!(!immutable("no-cache, private", EXPIRES_THEN, Some("AB")));
        assert!(!immutable("public, immutable", "Sun, 21 Nov 2027 12:00:31 CET", Some("AB")));
    }

    #[test]
    fn nothing_of_another_request_is_replayed() {
        let document = document("public, immutable", EXPIRES_THEN, Some("AB"));
        let request = headers(&[("audit-id", "mine")]);
        let response = document.unasked(&request, false);
        assert_eq!(response.headers()["audit-id"], "mine");
        assert!(!response.headers().contains_key("x-kubernetes-pf-flowschema-uid"));
        let expires = response.headers()["expires"].to_str().unwrap();
        let form = jiff::fmt::strtime::parse("%a, %d %b %Y %H:%M:%S UTC", expires);
        assert!(form.is_ok(), "{expires}");
        assert_eq!(expires.len(), EXPIRES_THEN.len());
        let known = document.unasked(&request, true);
        assert_eq!(known.status(), 304);
        let mut names: Vec<_> = known.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["audit-id", "cache-control", "etag", "expires", "vary"]);
    }

    #[test]
    fn a_confirmed_answer_has_the_headers_of_now() {
        let document = document("public", EXPIRES_THEN, None);
        let fresh = headers(&[
            ("audit-id", "now"),
            ("cache-control", "no-cache, private"),
            ("etag", "\"AB\""),
            ("vary", "Accept-Encoding"),
        ]);
        let response = document.confirmed(fresh.clone(), false);
        for (name, value) in [
            ("audit-id", "now"),
            ("cache-control", "no-cache, private"),
            ("vary", "Accept"),
            ("content-type", "application/json"),
            ("last-modified", "Sat, 21 Nov 2026 12:00:00 GMT"),
        ] {
            assert_eq!(response.headers()[name], value);
        }
        assert_eq!(document.confirmed(fresh.clone(), true).headers(), &fresh);
    }

    #[test]
    fn only_plain_successes_are_kept() {
        let good = headers(&[("etag", "\"AB\"")]);
        assert!(Document::etag(StatusCode::OK, &good).is_some());
        assert!(Document::etag(StatusCode::MOVED_PERMANENTLY, &good).is_none());
        assert!(Document::etag(StatusCode::OK, &headers(&[("etag", "W/\"AB\"")])).is_none());
        assert!(Document::etag(StatusCode::OK, &headers(&[])).is_none());
        let cookie = headers(&[("etag", "\"AB\""), ("set-cookie", "a=b")]);
        assert!(Document::etag(StatusCode::OK, &cookie).is_none());
    }
}
