//! Requests of Weir's own: a GET or the POST of a review with time-outs, its answer read within bounds, and failure statuses as errors.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{ACCEPT, CONTENT_TYPE, IF_NONE_MATCH, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use serde::Deserialize;

use super::{TrafficClass, Upstream, empty_body, full_body, pool};
use crate::codec::protobuf;
use crate::upstream::error::{UpstreamError, chain};

/// How Weir names itself to the upstream. Neither curl nor a browser, so that JSON comes compact (semantics.md §8.6).
pub(super) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
/// The upstream gives up a request after 60 s by itself (semantics.md §8.8); a little more lets its own answer arrive.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a review may take in all. Somebody waits for it with a request in hand, which is forwarded when it does not come; delegated API
/// servers wait as long (`DelegatingAuthenticationOptions.TokenRequestTimeout`).
pub(crate) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a body may pause before the request is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The most that is read of a Status: enough for many causes.
const STATUS_MAX_BYTES: usize = 64 * 1024;
/// The most that is kept of a Status' message, which may quote whole objects.
const MESSAGE_MAX_BYTES: usize = 300;

/// A GET of Weir's own.
pub(super) struct Get<'a> {
    pub(super) path_and_query: &'a str,
    pub(super) accept: &'static str,
    pub(super) if_none_match: Option<&'a HeaderValue>,
    pub(super) class: TrafficClass,
    /// How long the head may take.
    pub(super) timeout: Duration,
}

/// An answer read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 200, or 304 if an `If-None-Match` was given.
    pub(crate) status: StatusCode,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
}

impl<'a> Get<'a> {
    /// An ordinary request for JSON.
    pub(super) fn json(path_and_query: &'a str) -> Self {
        Get {
            path_and_query,
            accept: "application/json",
            if_none_match: None,
            class: TrafficClass::Request,
            timeout: HEAD_TIMEOUT,
        }
    }

    /// Sends it. Any status but 200, and 304 where a condition was given, is an error.
    pub(super) async fn send(
        self,
        upstream: &Upstream,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let mut request = Request::builder()
            .uri(self.path_and_query)
            .header(ACCEPT, self.accept)
            .header(USER_AGENT, AGENT)
            .body(empty_body())
            .map_err(|error| UpstreamError::Malformed(chain(&error)))?;
        if let Some(etag) = self.if_none_match {
            request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
        }
        let response = with_timeout(self.timeout, upstream.send(self.class, request)).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_MODIFIED if self.if_none_match.is_some() => Ok(response),
            _ => Err(failure(response).await),
        }
    }

    /// Sends it and reads the whole answer.
    pub(super) async fn fetch(
        self,
        upstream: &Upstream,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, UpstreamError> {
        let (parts, body) = self.send(upstream).await?.into_parts();
        Ok(Response::from_parts(parts, read(body, max_bytes).await?))
    }
}

/// What a call of the upstream gives, if it does so in time.
/// Counts from when it is called; not an `async fn`, which would hold the call twice.
pub(crate) fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, UpstreamError>>,
) -> impl Future<Output = Result<T, UpstreamError>> {
    let call = tokio::time::timeout(limit, call);
    call.map(move |done| done.unwrap_or(Err(UpstreamError::Timeout(limit))))
}

/// Reads a body to its end, but no more than `max_bytes` of it: more is an [`UpstreamError::TooLong`].
pub(crate) async fn read(mut body: pool::Body, max_bytes: usize) -> Result<Bytes, UpstreamError> {
    let hint = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if hint > max_bytes {
        return Err(UpstreamError::TooLong(max_bytes));
    }
    let mut bytes = BytesMut::with_capacity(hint);
    loop {
        let frame = tokio::time::timeout(READ_TIMEOUT, body.frame())
            .await
            .map_err(|_| UpstreamError::Timeout(READ_TIMEOUT))?;
        let Some(frame) = frame else { return Ok(bytes.freeze()) };
        let frame = frame.map_err(|error| UpstreamError::Lost(chain(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > max_bytes {
            return Err(UpstreamError::TooLong(max_bytes));
        }
        bytes.extend_from_slice(&data);
    }
}

/// GETs a path (with query) whose answer is small, and reads it whole. Anything but 200 (or 304 for a given `etag`) is an
/// [`UpstreamError::Status`].
pub(crate) async fn get(
    upstream: &Upstream,
    path: &str,
    accept: &'static str,
    etag: Option<&HeaderValue>,
    max_bytes: usize,
) -> Result<Answer, UpstreamError> {
    let get = Get { accept, if_none_match: etag, ..Get::json(path) };
    let (parts, body) = get.fetch(upstream, max_bytes).await?.into_parts();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

/// POSTs a review (TokenReview, SubjectAccessReview, ...) as JSON and reads the answer whole, within [`REVIEW_TIMEOUT`] in all. Any status but
/// 200 and 201 is an [`UpstreamError::Status`].
///
/// Reviews change nothing, so one that was lost with its connection (closed by the upstream as the request left) is sent a second time.
/// Nothing of `body` is in an error.
pub(crate) async fn post_review(
    upstream: &Upstream,
    path: &str,
    body: Bytes,
    max_bytes: usize,
) -> Result<Bytes, UpstreamError> {
    let twice = async {
        match post_once(upstream, path, body.clone(), max_bytes).await {
            Err(UpstreamError::Lost(_)) => post_once(upstream, path, body, max_bytes).await,
            done => done,
        }
    };
    with_timeout(REVIEW_TIMEOUT, twice).await
}

async fn post_once(
    upstream: &Upstream,
    path: &str,
    body: Bytes,
    max_bytes: usize,
) -> Result<Bytes, UpstreamError> {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(ACCEPT, JSON)
        .header(CONTENT_TYPE, JSON)
        .header(USER_AGENT, AGENT)
        .body(full_body(body))
        .map_err(|error| UpstreamError::Malformed(chain(&error)))?;
    let response = upstream.send(TrafficClass::Request, request).await?;
    match response.status() {
        StatusCode::OK | StatusCode::CREATED => read(response.into_body(), max_bytes).await,
        _ => Err(failure(response).await),
    }
}

/// Makes an error of a failure status; what can't be read of its body is left out.
pub(super) async fn failure(response: Response<pool::Body>) -> UpstreamError {
    let (parts, body) = response.into_parts();
    let body = read(body, STATUS_MAX_BYTES).await.unwrap_or_default();
    let mut error = status_error(&body, parts.status);
    if let UpstreamError::Status { retry_after, .. } = &mut error
        && let Some(seconds) = retry_after_of(&parts.headers)
    {
        *retry_after = Some(seconds);
    }
    error
}

/// Reads a Status object in either encoding. `code` is for one that has no code of its own, or that is none.
pub(super) fn status_error(body: &[u8], code: StatusCode) -> UpstreamError {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Details {
        retry_after_seconds: u64,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        message: Option<String>,
        reason: Option<String>,
        code: Option<u16>,
        details: Option<Details>,
    }
    if let Some(status) = protobuf::decode_status(body) {
        let seconds = status.details.and_then(|details| details.retry_after_seconds).unwrap_or(0);
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let known = status.code.and_then(|code| u16::try_from(code).ok());
        return UpstreamError::Status {
            code: known.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(code),
            reason: shorten(status.reason.unwrap_or_default()),
            message: shorten(status.message.unwrap_or_default()),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
        };
    }
    let status: Status = serde_json::from_slice(body).unwrap_or_else(|_| Status {
        // Plain text, as of a load balancer or a time-out filter.
        message: std::str::from_utf8(body).ok().map(|text| text.trim().to_owned()),
        ..Status::default()
    });
    let seconds = status.details.map_or(0, |details| details.retry_after_seconds);
    UpstreamError::Status {
        code: status.code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(code),
        reason: shorten(status.reason.unwrap_or_default()),
        message: shorten(status.message.unwrap_or_default()),
        retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
    }
}

fn retry_after_of(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn shorten(mut text: String) -> String {
    if text.len() > MESSAGE_MAX_BYTES {
        text.truncate(text.floor_char_boundary(MESSAGE_MAX_BYTES));
        text.push('…');
    }
    text
}

/// Percent-encodes a query parameter's value.
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::upstream::testing::{Speaks, TestServer, answer};

    const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

    async fn post(http2: bool, code: u16, reply: &'static str) -> Result<Bytes, UpstreamError> {
        let speaks = if http2 { Speaks::http2() } else { Speaks::http1() };
        let server = TestServer::start(speaks, move |request| async move {
            assert_eq!((request.method().as_str(), request.uri().path()), ("POST", PATH));
            assert_eq!(request.headers()[CONTENT_TYPE], "application/json");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "{secret}");
            answer(code, reply)
        })
        .await;
        let upstream = server.upstream(http2).await;
        post_review(&upstream, PATH, Bytes::from_static(b"{secret}"), 16).await
    }

    #[tokio::test]
    async fn a_review_is_posted_and_its_answer_bounded() {
        for http2 in [false, true] {
            assert_eq!(post(http2, 201, "{}").await.unwrap(), "{}");
            let long = post(http2, 201, "a reply that is too long").await.unwrap_err();
            assert!(matches!(long, UpstreamError::TooLong(16)));
            let refused = post(http2, 403, "no").await.unwrap_err();
            assert!(matches!(&refused, UpstreamError::Status { code, .. } if *code == 403));
            assert!(!refused.to_string().contains("secret"));
        }
    }

    #[tokio::test]
    async fn a_review_lost_with_its_connection_is_sent_again() {
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let server = TestServer::start(Speaks::http1(), {
            let asked = asked.clone();
            move |_| {
                let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    if first {
                        // Ends the connection without an answer.
                        panic!("the server breaks");
                    }
                    answer(200, "{}")
                }
            }
        })
        .await;
        let upstream = server.upstream(false).await;
        let answer = post_review(&upstream, PATH, Bytes::from_static(b"{}"), 16).await;
        assert_eq!(answer.unwrap(), "{}");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_review_that_is_not_answered_is_given_up() {
        let asked = AtomicUsize::new(0);
        let server = TestServer::start(Speaks::http1(), move |_| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            async move { if first { answer(200, "{}") } else { std::future::pending().await } }
        })
        .await;
        let upstream = server.upstream(false).await;
        // The connection is there before the clock stands.
        post_review(&upstream, PATH, Bytes::new(), 16).await.unwrap();
        tokio::time::pause();
        let error = post_review(&upstream, PATH, Bytes::new(), 16).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Timeout(REVIEW_TIMEOUT)));
    }

    #[test]
    fn a_status_is_read_and_shortened() {
        let body = format!(
            r#"{{"kind":"Status","message":"{}","reason":"TooManyRequests","details":{{"retryAfterSeconds":7}},"code":429}}"#,
            "ä".repeat(400)
        );
        let UpstreamError::Status { code, reason, message, retry_after } =
            status_error(body.as_bytes(), StatusCode::OK)
        else {
            panic!("not a status")
        };
        assert_eq!((code.as_u16(), reason.as_str()), (429, "TooManyRequests"));
        assert!(message.len() <= MESSAGE_MAX_BYTES + 3);
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn what_is_no_status_keeps_its_code_and_text() {
        let UpstreamError::Status { code, message, .. } =
            status_error(b"no backend\n", StatusCode::BAD_GATEWAY)
        else {
            panic!("not a status")
        };
        assert_eq!((code.as_u16(), message.as_str()), (502, "no backend"));
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(encode_query("a+b/c=&\u{e4}"), "a%2Bb%2Fc%3D%26%C3%A4");
    }
}
