//! Reviews (TokenReview, SubjectAccessReview, ...) that Weir posts to the upstream.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};

use crate::upstream::bounded::{read_body, with_timeout};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::fetch::{WEIR_USER_AGENT, exact};
use crate::upstream::status::failure;
use crate::upstream::{RequestPurpose, SendOptions, TrafficClass, Upstream, full_body};

/// The time-out of a review, retry included. A client's request waits for the review, and is
/// forwarded if it fails. Delegated API servers use the same time-out
/// (`DelegatingAuthenticationOptions.TokenRequestTimeout`).
pub(crate) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Posts a review as JSON and reads the whole response, of at most `max_bytes`, within
/// [`REVIEW_TIMEOUT`]. Any status except 200 and 201 is an [`UpstreamError::Status`].
///
/// A review changes nothing. It is therefore sent a second time if its connection was lost (closed
/// by the upstream while the request was sent). No error contains any part of `body`.
pub(crate) async fn post_review(
    upstream: &Upstream,
    path: &str,
    body: Bytes,
    max_bytes: usize,
) -> Result<Bytes, UpstreamError> {
    let call = async {
        match post_once(upstream, path, body.clone(), max_bytes).await {
            Err(UpstreamError::Lost(_)) => post_once(upstream, path, body, max_bytes).await,
            result => result,
        }
    };
    with_timeout(REVIEW_TIMEOUT, call).await
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
        .uri(exact(path)?)
        .header(ACCEPT, JSON)
        .header(CONTENT_TYPE, JSON)
        .header(USER_AGENT, WEIR_USER_AGENT)
        .body(full_body(body))
        .map_err(|error| UpstreamError::Malformed(chain(&error)))?;
    let options = SendOptions { purpose: RequestPurpose::Review, ..SendOptions::default() };
    let response = upstream.send_with(TrafficClass::Request, request, &options).await?;
    match response.status() {
        StatusCode::OK | StatusCode::CREATED => read_body(response.into_body(), max_bytes).await,
        _ => Err(failure(response).await),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::upstream::testing::{ServerOptions, TestServer, answer};

    const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

    async fn post(http2: bool, code: u16, reply: &'static str) -> Result<Bytes, UpstreamError> {
        let options = if http2 { ServerOptions::http2() } else { ServerOptions::http1() };
        let server = TestServer::start(options, move |request| async move {
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
    async fn a_review_is_posted_and_its_response_limited() {
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
        let server = TestServer::start(ServerOptions::http1(), {
            let asked = asked.clone();
            move |_| {
                let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                async move {
                    if first {
                        // Closes the connection without a response.
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
    async fn a_review_without_a_response_times_out() {
        let asked = AtomicUsize::new(0);
        let server = TestServer::start(ServerOptions::http1(), move |_| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            async move { if first { answer(200, "{}") } else { std::future::pending().await } }
        })
        .await;
        let upstream = server.upstream(false).await;
        // Opens the connection before the clock is paused.
        post_review(&upstream, PATH, Bytes::new(), 16).await.unwrap();
        tokio::time::pause();
        let error = post_review(&upstream, PATH, Bytes::new(), 16).await.unwrap_err();
        assert!(matches!(error, UpstreamError::Timeout(REVIEW_TIMEOUT)));
    }
}
