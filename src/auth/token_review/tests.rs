//! Against a scripted upstream, with the clock standing: who is asked about, how often, and what is said when nobody answers.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt;
use futures::future::join_all;
use http::StatusCode;
use prometheus::Registry;
use tokio::time::{advance, sleep};

use super::*;
use crate::upstream::testing::{Speaks, TestServer, answer};

/// What the upstream does.
#[derive(Default)]
struct Script {
    asked: AtomicUsize,
    running: AtomicUsize,
    running_most: AtomicUsize,
    /// A review takes so long.
    takes: Mutex<Duration>,
    /// It fails so, in place of an answer.
    fails: Mutex<Option<UpstreamError>>,
    /// Good tokens are refused from now on.
    revoked: AtomicBool,
}

impl Script {
    /// Tokens that hold `good` are their own name's.
    async fn review(self: Arc<Self>, body: Bytes) -> Result<Bytes, UpstreamError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_most.fetch_max(running, Ordering::SeqCst);
        let takes = *self.takes.lock();
        sleep(takes).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        if let Some(error) = self.fails.lock().clone() {
            return Err(error);
        }
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let token = body["spec"]["token"].as_str().unwrap();
        let good = !token.contains("bad") && !self.revoked.load(Ordering::SeqCst);
        let status = serde_json::json!({"authenticated": good, "user": {"username": token}});
        let review = serde_json::json!({"kind": "TokenReview", "status": status});
        Ok(Bytes::from(review.to_string()))
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn fail(&self, error: UpstreamError) {
        *self.fails.lock() = Some(error);
    }
}

fn refuses(code: u16) -> UpstreamError {
    UpstreamError::Status {
        code: StatusCode::from_u16(code).unwrap(),
        reason: String::new(),
        message: String::new(),
        retry_after: None,
    }
}

fn lost() -> UpstreamError {
    UpstreamError::Lost("it is gone".to_owned())
}

const TTL: Duration = Duration::from_secs(10);
/// More bad tokens than are remembered; `benches/flood.rs` sends 100,000 through a whole Weir.
const FLOOD: usize = 20_000;
const FAILURE_TTL: Duration = Duration::from_secs(5);

fn config() -> AuthenticationConfig {
    AuthenticationConfig { token_ttl: TTL, token_failure_ttl: FAILURE_TTL, ..Default::default() }
}

fn metrics() -> TokenReviewMetrics {
    TokenReviewMetrics::register(&Registry::new()).unwrap()
}

fn scripted(stale_grace: Duration) -> (Arc<Script>, TokenReviews) {
    configured(&config(), stale_grace)
}

fn configured(config: &AuthenticationConfig, stale_grace: Duration) -> (Arc<Script>, TokenReviews) {
    let script = Arc::<Script>::default();
    let ask: Ask = Arc::new({
        let script = script.clone();
        move |body| Box::pin(script.clone().review(body))
    });
    (script, TokenReviews::with(config, stale_grace, ask, metrics()))
}

fn token(text: &str) -> BearerToken {
    text.to_owned().into()
}

/// The user's name, or why not.
async fn ask(reviews: &TokenReviews, text: &str) -> Result<String, AuthenticationError> {
    reviews.review(&token(text), Asker::Socket).await.map(|identity| {
        assert!(!identity.stale);
        identity.user.name.clone()
    })
}

const UNAUTHORIZED: Result<String, AuthenticationError> = Err(AuthenticationError::Unauthorized);
const UNAVAILABLE: Result<String, AuthenticationError> = Err(AuthenticationError::Unavailable);

#[tokio::test(start_paused = true)]
async fn an_answer_is_believed_for_its_time() {
    let (script, reviews) = scripted(Duration::ZERO);
    for _ in 0..3 {
        assert_eq!(ask(&reviews, "good").await, Ok("good".to_owned()));
        assert_eq!(ask(&reviews, "bad").await, UNAUTHORIZED);
    }
    assert_eq!(script.asked(), 2);
    advance(FAILURE_TTL).await;
    assert_eq!(ask(&reviews, "bad").await, UNAUTHORIZED);
    assert_eq!(script.asked(), 3);
    // A deleted service account's token.
    script.revoked.store(true, Ordering::SeqCst);
    advance(TTL - FAILURE_TTL - Duration::from_millis(1)).await;
    assert_eq!(ask(&reviews, "good").await, Ok("good".to_owned()));
    advance(Duration::from_millis(1)).await;
    assert_eq!(ask(&reviews, "good").await, UNAUTHORIZED);
}

fn jwt(name: &str, left: Duration) -> String {
    let exp = (SystemTime::now() + left).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let claims = format!(r#"{{"exp":{}}}"#, exp.as_secs_f64());
    format!("{name}.{}.sig", URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_believed_beyond_its_expiry() {
    let (script, reviews) = scripted(TTL * 10);
    let short = token(&jwt("good", Duration::from_secs(4)));
    let identity = reviews.review(&short, Asker::Socket).await.unwrap();
    assert!(identity.not_after.is_some_and(|end| end > SystemTime::now()));
    advance(Duration::from_secs(3)).await;
    reviews.review(&short, Asker::Socket).await.unwrap();
    assert_eq!(script.asked(), 1);
    advance(Duration::from_secs(1)).await;
    // Nor while the upstream is away.
    script.fail(lost());
    assert_eq!(
        reviews.review(&short, Asker::Socket).await.unwrap_err(),
        AuthenticationError::Unavailable
    );
    assert_eq!(script.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_says_it_is_over_is_left_to_an_upstream_that_takes_it() {
    let (_, reviews) = scripted(Duration::ZERO);
    for (name, expected) in [("good", UNAVAILABLE), ("bad", UNAUTHORIZED)] {
        let over = format!("{name}.{}.sig", URL_SAFE_NO_PAD.encode(r#"{"exp":1000}"#));
        assert_eq!(ask(&reviews, &over).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_one_token_share_a_review() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.takes.lock() = Duration::from_millis(50);
    let asking = (0..100).map(|_| ask(&reviews, "good"));
    assert!(join_all(asking).await.iter().all(Result::is_ok));
    assert_eq!(script.asked(), 1);
    assert!(reviews.inner.flights.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_first_to_ask_may_go_away() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.takes.lock() = Duration::from_millis(50);
    let mut first = Box::pin(ask(&reviews, "good"));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(ask(&reviews, "good"));
    assert!(second.as_mut().now_or_never().is_none());
    sleep(Duration::from_millis(10)).await;
    drop(first);
    assert_eq!(second.await, Ok("good".to_owned()));
    assert_eq!(script.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_only_waits_and_goes_away_leaves_nothing() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.takes.lock() = Duration::from_millis(500);
    let mut asking: Vec<_> = (0..40).map(|n| format!("good{n}")).collect::<Vec<_>>();
    let mut waiting = Vec::new();
    for name in asking.drain(..) {
        let reviews = reviews.clone();
        waiting.push(tokio::spawn(async move { ask(&reviews, &name).await }));
    }
    sleep(Duration::from_millis(10)).await;
    assert_eq!(script.asked(), admission::ADDRESS_REVIEWS_MAX);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(reviews.inner.flights.lock().len(), admission::ADDRESS_REVIEWS_MAX);
    sleep(Duration::from_secs(1)).await;
    assert!(reviews.inner.flights.lock().is_empty());
    assert_eq!(reviews.inner.admission.askers(), 0);
    // What was asked was finished, and is known.
    assert_eq!(script.asked(), admission::ADDRESS_REVIEWS_MAX);
    assert_eq!(ask(&reviews, "good0").await, Ok("good0".to_owned()));
    assert_eq!(script.asked(), admission::ADDRESS_REVIEWS_MAX);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_is_asked_again_soon() {
    for error in [refuses(403), refuses(429), refuses(500), lost()] {
        let (script, reviews) = scripted(Duration::ZERO);
        script.fail(error);
        assert_eq!(ask(&reviews, "good").await, UNAVAILABLE);
        assert_eq!(ask(&reviews, "good").await, UNAVAILABLE);
        assert_eq!(script.asked(), 1);
        *script.fails.lock() = None;
        advance(PAUSE).await;
        assert_eq!(ask(&reviews, "good").await, Ok("good".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_that_is_not_the_tokens_spares_the_others_the_question() {
    for (error, pauses) in [(refuses(403), true), (refuses(429), true), (refuses(500), false)] {
        let (script, reviews) = scripted(Duration::ZERO);
        assert!(ask(&reviews, "good").await.is_ok());
        script.fail(error);
        assert_eq!(ask(&reviews, "good1").await, UNAVAILABLE);
        assert_eq!(ask(&reviews, "good2").await, UNAVAILABLE);
        assert_eq!(script.asked(), if pauses { 2 } else { 3 });
        // What is known is known.
        assert!(ask(&reviews, "good").await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_answer_is_used_in_its_grace_while_the_upstream_is_away() {
    let grace = Duration::from_secs(60);
    let stale = |found: Result<Identity, _>| found.map(|identity| identity.stale);
    for (error, used) in [(lost(), true), (refuses(503), true), (refuses(403), false)] {
        let (script, reviews) = scripted(grace);
        let good = token("good");
        assert_eq!(stale(reviews.review(&good, Asker::Socket).await), Ok(false));
        script.fail(error);
        advance(TTL).await;
        let expected = if used { Ok(true) } else { Err(AuthenticationError::Unavailable) };
        assert_eq!(stale(reviews.review(&good, Asker::Socket).await), expected);
        assert_eq!(stale(reviews.review(&good, Asker::Socket).await), expected, "remembered");
        advance(grace).await;
        let after = stale(reviews.review(&good, Asker::Socket).await);
        assert_eq!(after, Err(AuthenticationError::Unavailable));
    }
    // A refusal is the last word.
    let (script, reviews) = scripted(grace);
    assert!(ask(&reviews, "good").await.is_ok());
    script.revoked.store(true, Ordering::SeqCst);
    advance(TTL).await;
    assert_eq!(ask(&reviews, "good").await, UNAUTHORIZED);
    script.fail(lost());
    advance(FAILURE_TTL).await;
    assert_eq!(ask(&reviews, "good").await, UNAVAILABLE);
}

/// That the upstream was away for somebody, some time ago.
#[tokio::test(start_paused = true)]
async fn an_expired_answer_is_not_used_for_old_news() {
    let (script, reviews) = scripted(Duration::from_secs(600));
    let from = Asker::at(Some(IpAddr::from([10, 0, 0, 1])));
    assert!(reviews.review(&token("good"), from).await.is_ok());
    script.fail(lost());
    for name in ["other", "another"] {
        assert_eq!(ask(&reviews, name).await, UNAVAILABLE);
    }
    *script.fails.lock() = None;
    advance(TTL * 10).await;
    *script.takes.lock() = Duration::from_secs(1);
    for n in 0..admission::ADDRESS_PLACES_MAX {
        let reviews = reviews.clone();
        tokio::spawn(async move { reviews.review(&token(&format!("bad{n}")), from).await });
    }
    sleep(Duration::from_millis(1)).await;
    let newcomer = reviews.review(&token("newcomer"), from).await;
    assert_eq!(newcomer.unwrap_err(), AuthenticationError::Crowded);
    // Who is known is asked about, and does not wait behind others.
    let started = Instant::now();
    assert!(!reviews.review(&token("good"), from).await.unwrap().stale);
    assert_eq!(started.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_too_long_is_not_asked_about() {
    let (script, reviews) = scripted(Duration::ZERO);
    assert_eq!(ask(&reviews, &"x".repeat(TOKEN_BYTES_MAX + 1)).await, UNAVAILABLE);
    assert_eq!(script.asked(), 0);
    assert!(ask(&reviews, &"x".repeat(TOKEN_BYTES_MAX)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_address_does_not_keep_others_waiting() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.takes.lock() = Duration::from_secs(1);
    let flood = (0..2000).map(|n| {
        let reviews = reviews.clone();
        tokio::spawn(async move {
            let from = Asker::at(Some(IpAddr::from([10, 0, 0, 1])));
            reviews.review(&token(&format!("bad{n}")), from).await.map(|_| ())
        })
    });
    let flood: Vec<_> = flood.collect();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(script.running.load(Ordering::SeqCst), admission::ADDRESS_REVIEWS_MAX);
    assert_eq!(reviews.inner.flights.lock().len(), admission::ADDRESS_PLACES_MAX);
    let started = Instant::now();
    let other = reviews.review(&token("good"), Asker::at(Some(IpAddr::from([10, 0, 0, 2])))).await;
    assert!(other.is_ok());
    assert_eq!(started.elapsed().as_secs(), 1);
    let told = join_all(flood).await;
    let crowded = told.iter().filter(|told| matches!(told, Ok(Err(AuthenticationError::Crowded))));
    assert_eq!(crowded.count(), 2000 - admission::ADDRESS_PLACES_MAX);
    assert!(reviews.inner.flights.lock().is_empty());
}

/// A flood must not keep a revoked token's watch open.
#[tokio::test(start_paused = true)]
async fn open_watches_are_not_kept_waiting_by_clients() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.takes.lock() = Duration::from_secs(1);
    for host in 0..8 {
        let from = Asker::at((host > 0).then(|| IpAddr::from([10, 0, 0, host])));
        for n in 0..admission::ADDRESS_PLACES_MAX {
            let (reviews, bad) = (reviews.clone(), token(&format!("bad{n} {from:?}")));
            tokio::spawn(async move { reviews.review(&bad, from).await });
        }
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(reviews.inner.flights.lock().len(), admission::PLACES_MAX);
    let (other, socket) = (token("good"), token("good too"));
    let (watch, client) = tokio::join!(
        reviews.review(&other, Asker::Watches),
        reviews.review(&socket, Asker::Socket)
    );
    assert!(watch.is_ok());
    // It crowds nobody: the upstream will judge.
    assert_eq!(client.unwrap_err(), AuthenticationError::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_bad_tokens_harms_nobody() {
    // Longer than the test takes: memory is freed by the real clock.
    let life = Duration::from_secs(3600);
    let config = AuthenticationConfig { token_ttl: life, ..config() };
    let (script, reviews) = configured(&config, Duration::ZERO);
    *script.takes.lock() = Duration::from_millis(1);
    let good: Vec<String> = (0..100).map(|n| format!("good{n}")).collect();
    for n in 0..FLOOD / 1000 {
        let flood = (0..1000).map(|m: usize| {
            let from = IpAddr::from([10, 0, 0, u8::try_from(m % 7).unwrap()]);
            let (reviews, bad) = (reviews.clone(), token(&format!("bad{n}-{m}")));
            async move { reviews.review(&bad, Asker::at(Some(from))).await.map(|_| ()) }
        });
        let flood = tokio::spawn(join_all(flood));
        tokio::task::yield_now().await;
        for name in &good {
            // After the first time without waiting for anything.
            let told = ask(&reviews, name);
            let told = if n == 0 { told.await } else { told.now_or_never().unwrap() };
            assert_eq!(told.as_ref(), Ok(name));
        }
        for told in flood.await.unwrap() {
            assert_eq!(told, Err(AuthenticationError::Unauthorized));
        }
    }
    assert!(script.running_most.load(Ordering::SeqCst) <= admission::REVIEWS_MAX);
    assert_eq!(script.asked(), FLOOD + good.len());
    reviews.inner.known.tidy().await;
    let (identities, failures, bytes) = reviews.inner.known.counts();
    assert_eq!(identities, good.len() as u64);
    assert!(failures <= known::FAILURES_MAX, "{failures}");
    assert!(bytes <= known::IDENTITIES_BYTES_MAX, "{bytes}");
    assert!(reviews.inner.flights.lock().is_empty());
    assert_eq!(reviews.inner.admission.askers(), 0);
}

#[tokio::test]
async fn the_upstream_is_asked_with_the_token_and_audiences() {
    use http_body_util::BodyExt as _;
    let server = TestServer::start(Speaks::http2(), |request| async move {
        assert_eq!(request.uri().path(), PATH);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["spec"], serde_json::json!({"token": "abc", "audiences": ["here"]}));
        let status = r#"{"authenticated":true,"user":{"username":"jane"},"audiences":["here"]}"#;
        answer(201, format!(r#"{{"kind":"TokenReview","status":{status}}}"#))
    })
    .await;
    let config =
        AuthenticationConfig { token_audiences: vec!["here".to_owned()], ..Default::default() };
    let upstream = server.upstream(true).await;
    let reviews = TokenReviews::new(&config, Duration::ZERO, upstream, metrics());
    assert_eq!(ask(&reviews, "abc").await, Ok("jane".to_owned()));
    assert!(!format!("{reviews:?}").contains("abc"));
}
