//! Tests of what is known of a forwarded request's token.

use super::*;

async fn is_proven(reviews: &TokenReviews, text: &str) -> bool {
    reviews.standing(&token(text), FlowKey::Socket, &TokenMemo::default()).await.is_proven()
}

#[tokio::test(start_paused = true)]
async fn an_unknown_token_is_reviewed_once_before_it_is_forwarded() {
    let (script, reviews) = scripted(Duration::ZERO);
    for _ in 0..5 {
        let standing =
            reviews.standing(&token("alice"), FlowKey::Socket, &TokenMemo::default()).await;
        assert!(standing.is_proven() && standing.user().is_some());
        // Longer than the result of the review is valid.
        advance(TTL * 2).await;
    }
    assert_eq!(script.reviews(), 1);
    assert!(!is_proven(&reviews, "bad").await);
    assert_eq!(script.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_proven_by_the_response_where_reviews_fail() {
    let (script, reviews) = scripted(Duration::ZERO);
    script.fail(status_error(403));
    let standing = reviews.standing(&token("alice"), FlowKey::Socket, &TokenMemo::default()).await;
    assert!(!standing.is_proven());
    for status in [StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE] {
        standing.answered(status, false);
        assert!(!is_proven(&reviews, "alice").await, "{status}");
    }
    standing.answered(StatusCode::FORBIDDEN, false);
    assert!(is_proven(&reviews, "alice").await);
    assert!(!is_proven(&reviews, "bob").await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_review_delays_a_forwarded_request_for_a_second_at_most() {
    let (script, reviews) = scripted(Duration::ZERO);
    *script.latency.lock() = Duration::from_secs(5);
    let started = Instant::now();
    assert!(!is_proven(&reviews, "alice").await);
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    // The review goes on, and proves the token for later requests.
    sleep(Duration::from_secs(5)).await;
    assert!(is_proven(&reviews, "alice").await);
    assert_eq!(script.reviews(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_upstream_refused_is_reviewed_again() {
    let (script, reviews) = scripted(Duration::ZERO);
    let standing = reviews.standing(&token("alice"), FlowKey::Socket, &TokenMemo::default()).await;
    script.revoked.store(true, Ordering::SeqCst);
    assert!(is_proven(&reviews, "alice").await, "nothing shows the revocation yet");
    standing.answered(StatusCode::UNAUTHORIZED, false);
    assert!(!is_proven(&reviews, "alice").await);
    assert_eq!(review(&reviews, "alice").await, UNAUTHORIZED);
}

/// The 401 may be that of the backend, or of the API server.
#[tokio::test(start_paused = true)]
async fn a_proxied_request_that_is_refused_costs_a_review_once_the_last_one_is_old() {
    let (script, reviews) = scripted(Duration::ZERO);
    let standing = reviews.standing(&token("alice"), FlowKey::Socket, &TokenMemo::default()).await;
    for _ in 0..5 {
        standing.answered(StatusCode::UNAUTHORIZED, true);
        assert!(is_proven(&reviews, "alice").await);
    }
    assert_eq!(script.reviews(), 1);
    advance(TTL).await;
    script.revoked.store(true, Ordering::SeqCst);
    standing.answered(StatusCode::UNAUTHORIZED, true);
    assert!(!is_proven(&reviews, "alice").await);
    assert_eq!(script.reviews(), 2);
}

/// A token is good, but nobody knows whose it is, when the upstream goes away and comes back.
#[tokio::test(start_paused = true)]
async fn a_good_token_gets_its_name_as_soon_as_the_upstream_is_back() {
    let (script, availability) = (Arc::<Script>::default(), availability());
    let post: PostReview = Arc::new({
        let script = script.clone();
        move |body| Box::pin(script.clone().review(body))
    });
    let (config, grace) = (config(), Duration::ZERO);
    let reviews = TokenReviews::with_post(&config, grace, post, availability.clone(), metrics());
    let (alice, memo) = (token("alice"), TokenMemo::default());
    let standing = async || reviews.standing(&alice, FlowKey::Socket, &memo).await;
    script.fail(status_error(403));
    standing().await.answered(StatusCode::OK, false);
    advance(BACKOFF).await;
    let (address, cause) = ("https://gone".to_owned(), "refused".to_owned());
    script.fail(UpstreamError::Connect { address, cause });
    assert_eq!(review(&reviews, "other").await, UNAVAILABLE);
    *script.error.lock() = None;
    availability.note_check(Instant::now(), false);
    availability.note_check(Instant::now(), true);
    assert!(standing().await.named().is_err(), "no request waits for the name");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(standing().await.named().map(|user| user.name.as_str()), Ok("alice"));
    assert_eq!(script.reviews(), 3);
}
