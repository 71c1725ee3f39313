//! A permission that RBAC saw revoked is not granted by an older cached review.

use super::*;
use crate::auth::rbac::testing::TestRbac;

/// Returns a configuration whose decisions outlive these tests.
fn an_hour() -> AuthorizationConfig {
    AuthorizationConfig { allow_ttl: Duration::from_secs(3600), ..config(3600) }
}

/// Waits until `reviews` were sent and no check is in flight.
async fn checked(server: &ReviewServer, reviews: usize) {
    eventually("the end of the checks", || {
        server.authorizer.checks.available_permits() == CHECKS_MAX
            && server.review_count() == reviews
    })
    .await;
}

#[tokio::test]
async fn the_result_of_a_check_is_not_cached() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&an_hour(), Reply::Allow, &rbac).await;
    rbac.list();
    rbac.grant("alice");
    seconds(2).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Rbac)));
    checked(&server, 1).await;
    // Not even for a request that arrives while the copy is invalid.
    rbac.invalidate();
    server.reply(Reply::Deny);
    assert_eq!(ask(&server, "alice", PODS).await, Ok((false, DecisionSource::Review)));
    assert_eq!(server.review_count(), 2);
}

#[tokio::test]
async fn a_review_from_before_a_revocation_does_not_count_after_it() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&an_hour(), Reply::Allow, &rbac).await;
    rbac.list();
    rbac.grant("alice");
    seconds(2).await;
    // Reviews decide, as after the loss of a watch.
    rbac.invalidate();
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    server.reply(Reply::Deny);
    rbac.revoke("alice");
    assert_eq!(ask(&server, "alice", PODS).await, Ok((false, DecisionSource::Review)));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((false, DecisionSource::Cached)));
}

#[tokio::test]
async fn a_review_from_before_the_first_list_does_not_count_after_it() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&an_hour(), Reply::Allow, &rbac).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    server.reply(Reply::Deny);
    rbac.list();
    assert_eq!(ask(&server, "alice", PODS).await, Ok((false, DecisionSource::Review)));
}

#[tokio::test]
async fn a_review_in_flight_at_a_revocation_counts_only_for_earlier_requests() {
    let rbac = TestRbac::new();
    let server = Arc::new(ReviewServer::with_rbac(&an_hour(), Reply::Pending, &rbac).await);
    let asking = || {
        let server = Arc::clone(&server);
        tokio::spawn(async move { ask(&server, "alice", PODS).await })
    };
    let before = asking();
    eventually("review 1", || server.review_count() == 1).await;
    seconds(1).await;
    rbac.list();
    let after = asking();
    tokio::task::yield_now().await;
    server.reply(Reply::AllowFirst(1));
    assert_eq!(before.await.unwrap(), Ok((true, DecisionSource::Review)));
    assert_eq!(after.await.unwrap(), Ok((false, DecisionSource::Review)));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((false, DecisionSource::Cached)));
    assert_eq!(server.review_count(), 2);
}

#[tokio::test]
async fn an_outage_does_not_restore_a_revoked_permission() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&config(3600), Reply::Allow, &rbac).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    seconds(11).await;
    server.reply(Reply::Code(503));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Stale)));
    rbac.list();
    assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable));
}

/// The reviews are allowed by another authorizer, such as a webhook or the node authorizer.
#[tokio::test]
async fn allowed_reviews_are_cached_while_nothing_is_revoked() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&an_hour(), Reply::Allow, &rbac).await;
    rbac.list();
    // Within a second of the list, the API server may not have seen the same objects as Weir yet.
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    seconds(2).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Cached)));
    // Granting a permission revokes no other.
    rbac.grant("bob");
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Cached)));
    rbac.revoke("nobody");
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Cached)));
}

/// Two controllers fight over a binding, or a tenant tries to have decisions of roles disabled.
#[tokio::test]
async fn a_denial_beside_a_revocation_disables_nothing() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&config(0), Reply::Deny, &rbac).await;
    rbac.list();
    rbac.grant("alice");
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Rbac)));
    for reviews in 1..4 {
        eventually("a check", || server.review_count() == reviews).await;
        // Weir looks while it waits.
        rbac.revoke("alice");
        checked(&server, reviews).await;
        rbac.grant("alice");
        seconds(5).await;
        assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Rbac)));
    }
    eventually("the first denial", || server.review_count() == 5).await;
    seconds(1).await;
    eventually("the denial that counts", || server.review_count() >= 6).await;
    assert!(!rbac.rbac.is_disabled(), "one denial is not enough");
    eventually("the end of decisions by roles", || rbac.rbac.is_disabled()).await;
}
