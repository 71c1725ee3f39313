//! Reviews against a scripted upstream with a paused clock: how often it is asked, and what happens
//! if it does not answer.

mod expiry;
mod standing;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use http::StatusCode;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::time::{advance, sleep};

use super::*;
use crate::auth::bearer::Bearer;
use crate::auth::reviewer::admission::REVIEWS_MAX;
use crate::auth::reviewer::backoff::BACKOFF;
use crate::testing::headers;
use crate::upstream::error::UpstreamError;
use crate::upstream::testing::{ServerOptions, TestServer, answer, availability};

/// The behaviour of the upstream.
#[derive(Default)]
struct Script {
    reviews: AtomicUsize,
    running: AtomicUsize,
    running_max: AtomicUsize,
    /// How long a review takes.
    latency: Mutex<Duration>,
    /// The error to return instead of an answer.
    error: Mutex<Option<UpstreamError>>,
    /// Whether all tokens are refused.
    revoked: AtomicBool,
}

impl Script {
    /// Authenticates tokens that do not contain `bad`; the user has the name of the token.
    async fn review(self: Arc<Self>, body: Bytes) -> Result<Bytes, UpstreamError> {
        self.reviews.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_max.fetch_max(running, Ordering::SeqCst);
        let latency = *self.latency.lock();
        sleep(latency).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        if let Some(error) = self.error.lock().clone() {
            return Err(error);
        }
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let token = body["spec"]["token"].as_str().unwrap();
        let good = !token.contains("bad") && !self.revoked.load(Ordering::SeqCst);
        let status = serde_json::json!({"authenticated": good, "user": {"username": token}});
        let review = serde_json::json!({"kind": "TokenReview", "status": status});
        Ok(Bytes::from(review.to_string()))
    }

    fn reviews(&self) -> usize {
        self.reviews.load(Ordering::SeqCst)
    }

    fn fail(&self, error: UpstreamError) {
        *self.error.lock() = Some(error);
    }
}

fn status_error(code: u16) -> UpstreamError {
    UpstreamError::Status {
        code: StatusCode::from_u16(code).unwrap(),
        reason: String::new(),
        message: String::new(),
        retry_after: None,
    }
}

fn connection_lost() -> UpstreamError {
    UpstreamError::Lost("it is gone".to_owned())
}

const TTL: Duration = Duration::from_secs(10);
/// More bad tokens than the cache holds.
const FLOOD: usize = 20_000;
pub(super) const FAILURE_TTL: Duration = Duration::from_secs(5);

fn config() -> AuthenticationConfig {
    let mut config = AuthenticationConfig::default();
    config.tokens.ttl = TTL;
    config
}

fn metrics() -> TokenReviewMetrics {
    TokenReviewMetrics::register(&Registry::new()).unwrap()
}

fn scripted(stale_grace: Duration) -> (Arc<Script>, TokenReviews) {
    configured(&config(), stale_grace)
}

fn configured(config: &AuthenticationConfig, stale_grace: Duration) -> (Arc<Script>, TokenReviews) {
    let script = Arc::<Script>::default();
    let post: PostReview = Arc::new({
        let script = script.clone();
        move |body| Box::pin(script.clone().review(body))
    });
    (script, TokenReviews::with_post(config, stale_grace, post, availability(), metrics()))
}

fn token(text: &str) -> BearerToken {
    text.to_owned().into()
}

/// Reviews a token and returns the name of its user.
async fn review(reviews: &TokenReviews, text: &str) -> Result<String, AuthenticationError> {
    reviews.review(&token(text), FlowKey::Socket, &TokenMemo::default()).await.map(|identity| {
        assert!(!identity.stale);
        identity.user.name.clone()
    })
}

const UNAUTHORIZED: Result<String, AuthenticationError> = Err(AuthenticationError::Unauthorized);
const UNAVAILABLE: Result<String, AuthenticationError> = Err(AuthenticationError::Unavailable);

#[tokio::test(start_paused = true)]
async fn a_result_is_cached_for_its_ttl() {
    let (script, reviews) = scripted(Duration::ZERO);
    for _ in 0..3 {
        assert_eq!(review(&reviews, "good").await, Ok("good".to_owned()));
        assert_eq!(review(&reviews, "bad").await, UNAUTHORIZED);
    }
    assert_eq!(script.reviews(), 2);
    advance(FAILURE_TTL).await;
    assert_eq!(review(&reviews, "bad").await, UNAUTHORIZED);
    assert_eq!(script.reviews(), 3);
    // The service account of the token is deleted.
    script.revoked.store(true, Ordering::SeqCst);
    advance(TTL - FAILURE_TTL - Duration::from_millis(1)).await;
    assert_eq!(review(&reviews, "good").await, Ok("good".to_owned()));
    advance(Duration::from_millis(1)).await;
    assert_eq!(review(&reviews, "good").await, UNAUTHORIZED);
}

/// A connection remembers the hash of its token, and not that it is good.
#[tokio::test(start_paused = true)]
async fn a_remembered_token_is_refused_like_any_other() {
    let (script, reviews) = scripted(Duration::ZERO);
    let (memo, given) = (TokenMemo::default(), headers(&[("authorization", "Bearer good")]));
    let review = async || {
        let Bearer::Token(token) = BearerToken::from_headers(&given, &memo) else { panic!() };
        let reviewed = reviews.review(&token, FlowKey::Socket, &memo).await;
        (memo.key_of(b"good").is_some(), reviewed.map(|identity| identity.user.name.clone()))
    };
    for is_remembered in [false, false, true, true] {
        assert_eq!(review().await, (is_remembered, Ok("good".to_owned())));
    }
    script.revoked.store(true, Ordering::SeqCst);
    advance(TTL).await;
    assert_eq!(review().await, (true, UNAUTHORIZED));
    script.revoked.store(false, Ordering::SeqCst);
    advance(FAILURE_TTL).await;
    assert_eq!(review().await, (true, Ok("good".to_owned())));
    assert_eq!(script.reviews(), 3);
}

/// The API server answers reviews from a cache of its own for 10 s. It has just looked at the token
/// when that is revoked, and Weir asks at any moment after that.
#[tokio::test(start_paused = true)]
async fn a_revoked_token_reads_for_at_most_15_seconds() {
    let mut longest = Duration::ZERO;
    for phase_ms in (0..10_000).step_by(490) {
        let revoked = Instant::now();
        let post: PostReview = Arc::new(move |_| {
            let good = revoked.elapsed() < Duration::from_secs(10);
            let status = serde_json::json!({"authenticated": good, "user": {"username": "good"}});
            let review = serde_json::json!({"kind": "TokenReview", "status": status});
            async move { Ok(Bytes::from(review.to_string())) }.boxed()
        });
        let config = AuthenticationConfig::default();
        let reviews =
            TokenReviews::with_post(&config, Duration::ZERO, post, availability(), metrics());
        advance(Duration::from_millis(phase_ms)).await;
        while review(&reviews, "good").await != UNAUTHORIZED {
            longest = longest.max(revoked.elapsed());
            advance(Duration::from_millis(100)).await;
        }
    }
    assert!(longest < Duration::from_secs(15), "{longest:?}");
    assert!(longest > Duration::from_secs(14), "the worst phase was among them: {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_no_longer_once_the_upstream_is_back() {
    let (script, availability) = (Arc::<Script>::default(), availability());
    let post: PostReview = Arc::new({
        let script = script.clone();
        move |body| Box::pin(script.clone().review(body))
    });
    let (config, grace) = (config(), Duration::ZERO);
    let reviews = TokenReviews::with_post(&config, grace, post, availability.clone(), metrics());
    let (address, cause) = ("https://gone".to_owned(), "refused".to_owned());
    script.fail(UpstreamError::Connect { address, cause });
    assert_eq!(review(&reviews, "good").await, UNAVAILABLE);
    *script.error.lock() = None;
    assert_eq!(review(&reviews, "good").await, UNAVAILABLE, "it is remembered");
    assert_eq!(review(&reviews, "other").await, UNAVAILABLE, "and reviews pause");
    availability.note_check(Instant::now(), false);
    assert_eq!(review(&reviews, "good").await, UNAVAILABLE);
    availability.note_check(Instant::now(), true);
    assert_eq!(review(&reviews, "good").await, Ok("good".to_owned()));
    assert_eq!(review(&reviews, "other").await, Ok("other".to_owned()));
    assert_eq!(script.reviews(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_with_one_token_share_a_review() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.latency.lock() = Duration::from_millis(50);
    let requests = (0..100).map(|_| review(&reviews, "good"));
    assert!(join_all(requests).await.iter().all(Result::is_ok));
    assert_eq!(script.reviews(), 1);
    assert!(reviews.inner.reviewer.in_flight.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_first_request_may_be_cancelled() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.latency.lock() = Duration::from_millis(50);
    let mut first = Box::pin(review(&reviews, "good"));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(review(&reviews, "good"));
    assert!(second.as_mut().now_or_never().is_none());
    sleep(Duration::from_millis(10)).await;
    drop(first);
    assert_eq!(second.await, Ok("good".to_owned()));
    assert_eq!(script.reviews(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_removes_its_waiting_review() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.latency.lock() = Duration::from_millis(500);
    let mut waiting = Vec::new();
    for name in (0..40).map(|n| format!("good{n}")) {
        let reviews = reviews.clone();
        waiting.push(tokio::spawn(async move { review(&reviews, &name).await }));
    }
    sleep(Duration::from_millis(10)).await;
    assert_eq!(script.reviews(), flow_key::ADDRESS_REVIEWS_MAX);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(reviews.inner.reviewer.in_flight.len(), flow_key::ADDRESS_REVIEWS_MAX);
    sleep(Duration::from_secs(1)).await;
    assert!(reviews.inner.reviewer.in_flight.is_empty());
    assert_eq!(reviews.inner.reviewer.admission.flow_count(), 0);
    // The reviews that were sent ran to their end, and their results are cached.
    assert_eq!(script.reviews(), flow_key::ADDRESS_REVIEWS_MAX);
    assert_eq!(review(&reviews, "good0").await, Ok("good0".to_owned()));
    assert_eq!(script.reviews(), flow_key::ADDRESS_REVIEWS_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_failed_review_is_repeated_soon() {
    for error in [status_error(403), status_error(429), status_error(500), connection_lost()] {
        let (script, reviews) = scripted(Duration::ZERO);
        script.fail(error);
        assert_eq!(review(&reviews, "good").await, UNAVAILABLE);
        assert_eq!(review(&reviews, "good").await, UNAVAILABLE);
        assert_eq!(script.reviews(), 1);
        *script.error.lock() = None;
        advance(BACKOFF).await;
        assert_eq!(review(&reviews, "good").await, Ok("good".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_token_caused_pauses_all_reviews() {
    for (error, pauses) in
        [(status_error(403), true), (status_error(429), true), (status_error(500), false)]
    {
        let (script, reviews) = scripted(Duration::ZERO);
        assert!(review(&reviews, "good").await.is_ok());
        script.fail(error);
        assert_eq!(review(&reviews, "good1").await, UNAVAILABLE);
        assert_eq!(review(&reviews, "good2").await, UNAVAILABLE);
        assert_eq!(script.reviews(), if pauses { 2 } else { 3 });
        // Cached tokens are not affected.
        assert!(review(&reviews, "good").await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_for_its_grace_while_the_upstream_is_down() {
    let grace = Duration::from_secs(60);
    let stale = |result: Result<Identity, _>| result.map(|identity| identity.stale);
    for (error, used) in
        [(connection_lost(), true), (status_error(503), true), (status_error(403), false)]
    {
        let (script, reviews) = scripted(grace);
        let good = token("good");
        assert_eq!(
            stale(reviews.review(&good, FlowKey::Socket, &TokenMemo::default()).await),
            Ok(false)
        );
        script.fail(error);
        advance(TTL).await;
        let expected = if used { Ok(true) } else { Err(AuthenticationError::Unavailable) };
        assert_eq!(
            stale(reviews.review(&good, FlowKey::Socket, &TokenMemo::default()).await),
            expected
        );
        assert_eq!(
            stale(reviews.review(&good, FlowKey::Socket, &TokenMemo::default()).await),
            expected,
            "cached"
        );
        advance(grace).await;
        let after = stale(reviews.review(&good, FlowKey::Socket, &TokenMemo::default()).await);
        assert_eq!(after, Err(AuthenticationError::Unavailable));
    }
    // A refused token is not accepted again.
    let (script, reviews) = scripted(grace);
    assert!(review(&reviews, "good").await.is_ok());
    script.revoked.store(true, Ordering::SeqCst);
    advance(TTL).await;
    assert_eq!(review(&reviews, "good").await, UNAUTHORIZED);
    script.fail(connection_lost());
    advance(FAILURE_TTL).await;
    assert_eq!(review(&reviews, "good").await, UNAVAILABLE);
}

/// An outage that other requests noticed some time ago does not justify an expired result.
#[tokio::test(start_paused = true)]
async fn an_expired_result_is_not_used_after_an_old_outage() {
    let (script, reviews) = scripted(Duration::from_secs(600));
    let from = FlowKey::from_address(Some(IpAddr::from([10, 0, 0, 1])));
    assert!(reviews.review(&token("good"), from, &TokenMemo::default()).await.is_ok());
    script.fail(connection_lost());
    for name in ["other", "another"] {
        assert_eq!(review(&reviews, name).await, UNAVAILABLE);
    }
    *script.error.lock() = None;
    advance(TTL * 10).await;
    *script.latency.lock() = Duration::from_secs(1);
    for n in 0..flow_key::ADDRESS_SLOTS_MAX {
        let reviews = reviews.clone();
        tokio::spawn(async move {
            reviews.review(&token(&format!("bad{n}")), from, &TokenMemo::default()).await
        });
    }
    sleep(Duration::from_millis(1)).await;
    let newcomer = reviews.review(&token("newcomer"), from, &TokenMemo::default()).await;
    assert_eq!(newcomer.unwrap_err(), AuthenticationError::TooManyRequests);
    // A recently good token is reviewed without waiting behind others.
    let started = Instant::now();
    assert!(!reviews.review(&token("good"), from, &TokenMemo::default()).await.unwrap().stale);
    assert_eq!(started.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_too_long_is_not_reviewed() {
    let (script, reviews) = scripted(Duration::ZERO);
    assert_eq!(review(&reviews, &"x".repeat(TOKEN_BYTES_MAX + 1)).await, UNAVAILABLE);
    assert_eq!(script.reviews(), 0);
    assert!(review(&reviews, &"x".repeat(TOKEN_BYTES_MAX)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_address_does_not_delay_others() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.latency.lock() = Duration::from_secs(1);
    let flood = (0..2000).map(|n| {
        let reviews = reviews.clone();
        tokio::spawn(async move {
            let from = FlowKey::from_address(Some(IpAddr::from([10, 0, 0, 1])));
            reviews
                .review(&token(&format!("bad{n}")), from, &TokenMemo::default())
                .await
                .map(|_| ())
        })
    });
    let flood: Vec<_> = flood.collect();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(script.running.load(Ordering::SeqCst), flow_key::ADDRESS_REVIEWS_MAX);
    assert_eq!(reviews.inner.reviewer.in_flight.len(), flow_key::ADDRESS_SLOTS_MAX);
    let started = Instant::now();
    let other = reviews
        .review(
            &token("good"),
            FlowKey::from_address(Some(IpAddr::from([10, 0, 0, 2]))),
            &TokenMemo::default(),
        )
        .await;
    assert!(other.is_ok());
    assert_eq!(started.elapsed().as_secs(), 1);
    let results = join_all(flood).await;
    let rejected = results
        .iter()
        .filter(|result| matches!(result, Ok(Err(AuthenticationError::TooManyRequests))));
    assert_eq!(rejected.count(), 2000 - flow_key::ADDRESS_SLOTS_MAX);
    assert!(reviews.inner.reviewer.in_flight.is_empty());
}

/// A flood must not keep a revoked token's watch open.
#[tokio::test(start_paused = true)]
async fn a_flood_does_not_delay_open_watches() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.latency.lock() = Duration::from_secs(1);
    for host in 0..8 {
        let from = FlowKey::from_address((host > 0).then(|| IpAddr::from([10, 0, 0, host])));
        for n in 0..flow_key::ADDRESS_SLOTS_MAX {
            let (reviews, bad) = (reviews.clone(), token(&format!("bad{n} {from:?}")));
            tokio::spawn(async move { reviews.review(&bad, from, &TokenMemo::default()).await });
        }
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(reviews.inner.reviewer.in_flight.len(), flow_key::SLOTS_MAX);
    let (other, socket) = (token("good"), token("good too"));
    let memo = TokenMemo::default();
    let (watch, client) = tokio::join!(
        reviews.review(&other, FlowKey::Watches, &memo),
        reviews.review(&socket, FlowKey::Socket, &memo)
    );
    assert!(watch.is_ok());
    // This client did not cause the flood, so its request is forwarded instead of rejected.
    assert_eq!(client.unwrap_err(), AuthenticationError::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_bad_tokens_does_not_delay_good_ones() {
    // Longer than the test takes: moka expires values by the real clock.
    let ttl = Duration::from_secs(3600);
    let mut config = config();
    config.tokens.ttl = ttl;
    let (script, reviews) = configured(&config, Duration::ZERO);
    *script.latency.lock() = Duration::from_millis(1);
    let good: Vec<String> = (0..100).map(|n| format!("good{n}")).collect();
    for n in 0..FLOOD / 1000 {
        let flood = (0..1000).map(|m: usize| {
            let from = IpAddr::from([10, 0, 0, u8::try_from(m % 7).unwrap()]);
            let (reviews, bad) = (reviews.clone(), token(&format!("bad{n}-{m}")));
            async move {
                reviews
                    .review(&bad, FlowKey::from_address(Some(from)), &TokenMemo::default())
                    .await
                    .map(|_| ())
            }
        });
        let flood = tokio::spawn(join_all(flood));
        tokio::task::yield_now().await;
        for name in &good {
            // Only the first review of a good token has to wait.
            let user = review(&reviews, name);
            let user = if n == 0 { user.await } else { user.now_or_never().unwrap() };
            assert_eq!(user.as_ref(), Ok(name));
        }
        for result in flood.await.unwrap() {
            assert_eq!(result, Err(AuthenticationError::Unauthorized));
        }
    }
    assert!(script.running_max.load(Ordering::SeqCst) <= REVIEWS_MAX);
    assert_eq!(script.reviews(), FLOOD + good.len());
    reviews.inner.cache.run_pending_tasks();
    let (identities, failures, bytes) = reviews.inner.cache.counts();
    assert_eq!(identities, good.len() as u64);
    assert!(failures <= cache::REFUSED_MAX, "{failures}");
    assert!(bytes <= cache::GOOD_BYTES_MAX, "{bytes}");
    assert!(reviews.inner.reviewer.in_flight.is_empty());
    assert_eq!(reviews.inner.reviewer.admission.flow_count(), 0);
}

#[tokio::test]
async fn a_review_holds_the_token_and_audiences() {
    use http_body_util::BodyExt as _;
    let server = TestServer::start(ServerOptions::http2(), |request| async move {
        assert_eq!(request.uri().path(), PATH);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["spec"], serde_json::json!({"token": "abc", "audiences": ["here"]}));
        let status = r#"{"authenticated":true,"user":{"username":"jane"},"audiences":["here"]}"#;
        answer(201, format!(r#"{{"kind":"TokenReview","status":{status}}}"#))
    })
    .await;
    let mut config = AuthenticationConfig::default();
    config.tokens.audiences = vec!["here".to_owned()];
    let upstream = server.upstream(true).await;
    let reviews = TokenReviews::new(&config, Duration::ZERO, upstream, metrics());
    assert_eq!(review(&reviews, "abc").await, Ok("jane".to_owned()));
    assert!(!format!("{reviews:?}").contains("abc"));
}
