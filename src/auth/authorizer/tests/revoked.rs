//! A right that RBAC saw taken away does not live on in what reviews said before.

use super::*;
use crate::auth::rbac::testing::Told;

/// Longer than any of these tests.
fn an_hour() -> AuthorizationConfig {
    AuthorizationConfig { allow_ttl: Duration::from_secs(3600), ..config(3600) }
}

/// Waits until no check is under way any more.
async fn checked(script: &Script, asked: usize) {
    until(|| script.asked() == asked && script.authorizer.checks.available_permits() == CHECKS_MAX)
        .await;
}

#[tokio::test]
async fn a_check_does_not_outlive_the_right() {
    let told = Told::new();
    let script = Script::with_rbac(&an_hour(), Reply::Allow, &told).await;
    told.list();
    told.grant("alice");
    seconds(2).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Rbac)));
    checked(&script, 1).await;
    // Nor if nothing can be relied on when the next one asks.
    told.lose();
    script.reply(Reply::Deny);
    assert_eq!(ask(&script, "alice", PODS).await, Ok((false, Source::Review)));
    assert_eq!(script.asked(), 2);
}

#[tokio::test]
async fn what_was_allowed_before_a_revocation_does_not_count_after_it() {
    let told = Told::new();
    let script = Script::with_rbac(&an_hour(), Reply::Allow, &told).await;
    told.list();
    told.grant("alice");
    seconds(2).await;
    // As after a watch that was lost: reviews decide.
    told.lose();
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    script.reply(Reply::Deny);
    told.revoke("alice");
    assert_eq!(ask(&script, "alice", PODS).await, Ok((false, Source::Review)));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((false, Source::Cached)));
}

#[tokio::test]
async fn what_was_allowed_before_anything_was_known_does_not_count_either() {
    let told = Told::new();
    let script = Script::with_rbac(&an_hour(), Reply::Allow, &told).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    script.reply(Reply::Deny);
    told.list();
    assert_eq!(ask(&script, "alice", PODS).await, Ok((false, Source::Review)));
}

#[tokio::test]
async fn a_review_under_way_at_a_revocation_counts_only_for_those_before_it() {
    let told = Told::new();
    let script = Arc::new(Script::with_rbac(&an_hour(), Reply::Hold, &told).await);
    let asking = || {
        let script = Arc::clone(&script);
        tokio::spawn(async move { ask(&script, "alice", PODS).await })
    };
    let before = asking();
    until(|| script.asked() == 1).await;
    seconds(1).await;
    told.list();
    let after = asking();
    tokio::task::yield_now().await;
    script.reply(Reply::AllowFirst(1));
    assert_eq!(before.await.unwrap(), Ok((true, Source::Review)));
    assert_eq!(after.await.unwrap(), Ok((false, Source::Review)));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((false, Source::Cached)));
    assert_eq!(script.asked(), 2);
}

#[tokio::test]
async fn an_upstream_that_is_away_revives_no_right() {
    let told = Told::new();
    let script = Script::with_rbac(&config(3600), Reply::Allow, &told).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    seconds(11).await;
    script.reply(Reply::Code(503));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Stale)));
    told.list();
    assert_eq!(ask(&script, "alice", PODS).await, Err(Unavailable));
}

/// A webhook, or the node authorizer.
#[tokio::test]
async fn what_others_allow_is_remembered_as_long_as_nothing_is_revoked() {
    let told = Told::new();
    let script = Script::with_rbac(&an_hour(), Reply::Allow, &told).await;
    told.list();
    // The authorizer that answers may not know of a change as soon as Weir does.
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    seconds(2).await;
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Review)));
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Cached)));
    // What is given to somebody takes nothing from others.
    told.grant("bob");
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Cached)));
    told.revoke("nobody");
    assert_eq!(ask(&script, "alice", PODS).await, Ok((true, Source::Cached)));
}
