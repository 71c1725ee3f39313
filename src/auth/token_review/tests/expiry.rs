//! Tokens that say when they expire.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

fn jwt(name: &str, left: Duration) -> String {
    let exp = (SystemTime::now() + left).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let claims = format!(r#"{{"exp":{}}}"#, exp.as_secs_f64());
    format!("{name}.{}.sig", URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_accepted_beyond_its_expiry() {
    let (script, reviews) = scripted(TTL * 10);
    let short = token(&jwt("good", Duration::from_secs(4)));
    let identity = reviews.review(&short, FlowKey::Socket, &TokenMemo::default()).await.unwrap();
    assert!(identity.not_after.is_some_and(|end| end > SystemTime::now()));
    advance(Duration::from_secs(3)).await;
    reviews.review(&short, FlowKey::Socket, &TokenMemo::default()).await.unwrap();
    assert_eq!(script.reviews(), 1);
    advance(Duration::from_secs(1)).await;
    // Not even while the upstream is down.
    script.fail(connection_lost());
    assert_eq!(
        reviews.review(&short, FlowKey::Socket, &TokenMemo::default()).await.unwrap_err(),
        AuthenticationError::Unavailable
    );
    assert_eq!(script.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_that_the_upstream_accepts_is_left_to_it() {
    let (_, reviews) = scripted(Duration::ZERO);
    for (name, expected) in [("good", UNAVAILABLE), ("bad", UNAUTHORIZED)] {
        let expired = format!("{name}.{}.sig", URL_SAFE_NO_PAD.encode(r#"{"exp":1000}"#));
        assert_eq!(review(&reviews, &expired).await, expected);
    }
}
