//! A stored document, and the responses that are built from it.
//!
//! Invariant: the headers of a response are those that the upstream would send now. Headers of one
//! request (its audit id, its date) are never replayed. Headers that depend on the time
//! (`Cache-Control`, `Expires`) are taken from the 304 that revalidated the document.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED,
    SET_COOKIE, VARY, WARNING,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::codec::held_bytes::{CachedBytes, HeldBytes};
use crate::server::forward::documents::request::is_strong;
use crate::server::http::audit_id::AUDIT_ID;
use crate::server::http::body::Body;
use crate::server::http::headers::{FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID};

#[derive(Debug)]
pub(super) struct StoredDocument {
    pub(super) etag: HeaderValue,
    headers: HeaderMap,
    body: CachedBytes,
    held: HeldBytes,
    /// When the upstream was last asked for it, with a 200 or a 304 as the response.
    current_at: Mutex<Instant>,
}

impl StoredDocument {
    /// Returns the ETag of a response that may be stored.
    pub(super) fn etag(status: StatusCode, headers: &HeaderMap) -> Option<&HeaderValue> {
        // A cookie makes the response specific to one client.
        let may = status == StatusCode::OK && !headers.contains_key(SET_COOKIE);
        headers.get(ETAG).filter(|tag| may && is_strong(tag))
    }

    /// Creates the document of a response. The hop-by-hop headers are already removed from
    /// `headers`. `held` counts what clients keep in memory of it.
    pub(super) fn new(
        etag: HeaderValue,
        headers: &HeaderMap,
        body: Bytes,
        held: HeldBytes,
    ) -> Self {
        let mut headers = headers.clone();
        for name in PER_REQUEST.iter().chain([&CONTENT_LENGTH]) {
            headers.remove(name);
        }
        let current_at = Mutex::new(Instant::now());
        Self { etag, headers, body: CachedBytes::new(body), held, current_at }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.body.bytes().len() + HEADERS_BYTES
    }

    /// Counts the body as long as clients read it. Call this when it is no longer stored.
    pub(super) fn count_as_held(&self) {
        self.body.count_as_held(&self.held);
    }

    pub(super) fn set_current(&self) {
        *self.current_at.lock() = Instant::now();
    }

    /// Returns how long ago the document was known to be current.
    pub(super) fn age(&self) -> Duration {
        self.current_at.lock().elapsed()
    }

    /// Returns a response that the upstream did not revalidate.
    pub(super) fn unverified(&self, audit_id: HeaderValue, not_modified: bool) -> Response<Body> {
        let mut headers = self.headers.clone();
        headers.insert(AUDIT_ID, audit_id);
        self.response(headers, not_modified)
    }

    pub(super) fn fetched(&self, mut headers: HeaderMap, not_modified: bool) -> Response<Body> {
        headers.remove(CONTENT_LENGTH);
        self.response(headers, not_modified)
    }

    /// Returns a response that the upstream revalidated. `fresh` are the headers of its 304.
    pub(super) fn revalidated(&self, fresh: HeaderMap, not_modified: bool) -> Response<Body> {
        if not_modified {
            return build_response(StatusCode::NOT_MODIFIED, fresh, Body::empty());
        }
        let mut headers = self.headers.clone();
        // A 304 omits or changes the headers that describe the body.
        let newer: Vec<HeaderName> =
            fresh.keys().filter(|name| !OF_THE_BODY.contains(name)).cloned().collect();
        for name in newer {
            headers.remove(&name);
            for value in fresh.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        self.response(headers, false)
    }

    /// Returns a 304 if the client has the document, else a 200.
    fn response(&self, mut headers: HeaderMap, not_modified: bool) -> Response<Body> {
        if !not_modified {
            let chunks = vec![self.body.bytes().clone()];
            let body = Body::long_chunks(chunks, self.held.clone());
            return build_response(StatusCode::OK, headers, body);
        }
        for name in NOT_OF_304 {
            headers.remove(name);
        }
        build_response(StatusCode::NOT_MODIFIED, headers, Body::empty())
    }
}

fn build_response(status: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Headers that describe a request, not the document.
const PER_REQUEST: [HeaderName; 5] = [AUDIT_ID, DATE, WARNING, FLOW_SCHEMA_UID, PRIORITY_LEVEL_UID];

/// Headers of a stored document that hold as long as its ETag does.
const OF_THE_BODY: [HeaderName; 7] =
    [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, VARY];

/// Headers that Go's `http.ServeContent` removes from a 304.
const NOT_OF_304: [HeaderName; 5] =
    [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED];

/// Estimated size of ten headers, one of them a hash of 128 digits.
const HEADERS_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn document() -> StoredDocument {
        let given = headers(&[
            ("audit-id", "theirs"),
            ("cache-control", "public"),
            ("content-type", "application/json"),
            ("etag", "\"AB\""),
            ("expires", "Sun, 21 Nov 2027 12:00:31 UTC"),
            ("last-modified", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("vary", "Accept"),
            ("content-length", "2"),
            ("x-kubernetes-pf-flowschema-uid", "1"),
        ]);
        let held = HeldBytes::new(usize::MAX);
        let body = Bytes::from_static(b"{}");
        StoredDocument::new(HeaderValue::from_static("\"AB\""), &given, body, held)
    }

    #[test]
    fn a_revalidated_response_has_current_headers() {
        let document = document();
        let fresh = headers(&[
            ("audit-id", "now"),
            ("cache-control", "no-cache, private"),
            ("etag", "\"AB\""),
            ("expires", "Mon, 22 Nov 2027 12:00:31 UTC"),
            ("vary", "Accept-Encoding"),
        ]);
        let response = document.revalidated(fresh.clone(), false);
        for (name, value) in [
            ("audit-id", "now"),
            ("cache-control", "no-cache, private"),
            ("expires", "Mon, 22 Nov 2027 12:00:31 UTC"),
            ("vary", "Accept"),
            ("content-type", "application/json"),
            ("last-modified", "Sat, 21 Nov 2026 12:00:00 GMT"),
        ] {
            assert_eq!(response.headers()[name], value);
        }
        assert!(!response.headers().contains_key("x-kubernetes-pf-flowschema-uid"));
        assert_eq!(document.revalidated(fresh.clone(), true).headers(), &fresh);
    }

    #[test]
    fn only_responses_with_a_strong_etag_and_no_cookie_are_stored() {
        let good = headers(&[("etag", "\"AB\"")]);
        assert!(StoredDocument::etag(StatusCode::OK, &good).is_some());
        assert!(StoredDocument::etag(StatusCode::MOVED_PERMANENTLY, &good).is_none());
        assert!(StoredDocument::etag(StatusCode::OK, &headers(&[("etag", "W/\"AB\"")])).is_none());
        assert!(StoredDocument::etag(StatusCode::OK, &headers(&[])).is_none());
        let cookie = headers(&[("etag", "\"AB\""), ("set-cookie", "a=b")]);
        assert!(StoredDocument::etag(StatusCode::OK, &cookie).is_none());
    }
}
