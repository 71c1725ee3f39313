//! GET requests of Weir's own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, IF_NONE_MATCH, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};

use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::one_server::OneServer;
use crate::upstream::status::failure;
use crate::upstream::{
    Choice, RequestBody, RequestPurpose, SendOptions, TrafficClass, Upstream, empty_body, pool,
};

/// The `User-Agent` of Weir's own requests. The upstream does not take it for a browser or curl,
/// and therefore sends compact JSON (`docs/semantics.md` §8.6).
pub(super) const WEIR_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
/// Asks a Weir for what its client may see of a collection, or (`off`) for the whole or a refusal.
pub(crate) const FILTER_HEADER: HeaderName = HeaderName::from_static("x-weir-filter");
/// The upstream ends a request after 60 s (`docs/semantics.md` §8.8). A little more time lets its
/// own response arrive.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(65);

/// A GET request of Weir's own.
pub(super) struct Get<'a> {
    pub(super) path_and_query: &'a str,
    pub(super) accept: &'static str,
    /// Whether the body of the response may be compressed.
    pub(super) accepts_gzip: bool,
    pub(super) if_none_match: Option<&'a HeaderValue>,
    pub(super) class: TrafficClass,
    pub(super) purpose: RequestPurpose,
    /// The time-out of the response's head.
    pub(super) timeout: Duration,
}

impl<'a> Get<'a> {
    /// Returns an ordinary request for JSON.
    pub(super) fn json(path_and_query: &'a str) -> Self {
        Get {
            path_and_query,
            accept: "application/json",
            accepts_gzip: false,
            if_none_match: None,
            class: TrafficClass::Request,
            purpose: RequestPurpose::Other,
            timeout: HEAD_TIMEOUT,
        }
    }

    /// Sends the request. Any status except 200, and 304 for a request with `if_none_match`, is an
    /// [`UpstreamError::Status`].
    pub(super) async fn send(
        self,
        upstream: &Upstream,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        self.send_by(upstream, Choice::Spread).await
    }

    /// Sends the request like [`Self::send`], to an API server that `choice` finds.
    pub(super) async fn send_by(
        self,
        upstream: &Upstream,
        choice: Choice,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let request = self.request()?;
        let (purpose, is_read) = (self.purpose, true);
        let options = SendOptions { choice, purpose, is_read, ..SendOptions::default() };
        let sent = upstream.send_with(self.class, request, &options);
        self.accept(with_timeout(self.timeout, sent).await?).await
    }

    /// Sends the request like [`Self::send`], to one API server.
    pub(super) async fn send_to(
        self,
        server: &mut OneServer,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let request = self.request()?;
        let sent =
            with_timeout(self.timeout, server.send(self.class, self.purpose, request)).await?;
        self.accept(sent).await
    }

    fn request(&self) -> Result<Request<RequestBody>, UpstreamError> {
        let mut request = Request::builder()
            .uri(exact(self.path_and_query)?)
            .header(ACCEPT, self.accept)
            .header(USER_AGENT, WEIR_USER_AGENT)
            // A Weir before the API server must not answer with a part.
            .header(FILTER_HEADER, "off")
            .body(empty_body())
            .map_err(|error| UpstreamError::Malformed(chain(&error)))?;
        if self.accepts_gzip {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(etag) = self.if_none_match {
            request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
        }
        Ok(request)
    }

    async fn accept(
        &self,
        response: Response<pool::Body>,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_MODIFIED if self.if_none_match.is_some() => Ok(response),
            _ => Err(failure(response).await),
        }
    }
}

/// `weir.dev/none,!weir.dev/none`: a selector that no object matches.
pub(super) const MATCH_NOTHING: &str = "&labelSelector=weir.dev%2Fnone%2C%21weir.dev%2Fnone";

/// GETs a path (with query) and reads the whole response, of at most `max_bytes`. Any status except
/// 200, and 304 if an `etag` is given, is an [`UpstreamError::Status`].
pub(crate) async fn get(
    upstream: &Upstream,
    path: &str,
    accept: &'static str,
    etag: Option<&HeaderValue>,
    max_bytes: usize,
) -> Result<Response<Bytes>, UpstreamError> {
    let get = Get { accept, if_none_match: etag, ..Get::json(path) };
    let (parts, body) = get.send(upstream).await?.into_parts();
    Ok(Response::from_parts(parts, read_body(body, max_bytes).await?))
}

/// Returns the path and query of a request of Weir's own. `http` would cut it at a `#`, and ask for
/// something else.
pub(super) fn exact(path_and_query: &str) -> Result<PathAndQuery, UpstreamError> {
    let parsed = PathAndQuery::try_from(path_and_query)
        .map_err(|error| UpstreamError::Malformed(chain(&error)))?;
    if parsed.as_str() == path_and_query {
        Ok(parsed)
    } else {
        Err(UpstreamError::Malformed("the path has a byte that is not escaped".to_owned()))
    }
}

/// Percent-encodes the value of a query parameter.
pub(super) fn encode_query(value: &str) -> String {
    value.bytes().fold(String::with_capacity(value.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(encode_query("a+b/c=&\u{e4}"), "a%2Bb%2Fc%3D%26%C3%A4");
    }

    #[test]
    fn no_request_has_another_path_than_it_was_given() {
        assert_eq!(exact("/api/v1/pods?a=%23").unwrap().as_str(), "/api/v1/pods?a=%23");
        for path in ["/api/v1/pods#", "/api/v1/pods/#x?dryRun=All", "/api?a=#b", "/a<b"] {
            assert!(matches!(exact(path), Err(UpstreamError::Malformed(_))), "{path}");
        }
    }
}
