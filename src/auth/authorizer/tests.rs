//! Decisions with a scripted upstream.

mod bounds;
mod reasons;
mod revoked;

use std::time::Duration;

use super::NoDecision::{Limited, Unavailable};
use super::*;
use crate::auth::access_review::testing::{Reply, ReviewServer, attributes, config, pass, user};
use crate::testing::eventually;

const PODS: &str = "/api/v1/namespaces/a/pods";

/// Returns the decision on a request of a user, and its source.
async fn ask(
    server: &ReviewServer,
    name: &str,
    uri: &str,
) -> Result<(bool, DecisionSource), NoDecision> {
    let decision = server.authorizer.authorize(&user(name, &["g"]), &attributes(uri)).await?;
    Ok((decision.allowed, decision.source))
}

/// Advances the clock.
async fn seconds(seconds: u64) {
    pass(Duration::from_secs(seconds)).await;
}

#[tokio::test]
async fn a_decision_is_cached_until_it_expires() {
    for (reply, allowed, ttl) in [(Reply::Allow, true, 10), (Reply::Deny, false, 5)] {
        let server = ReviewServer::start(&config(0), reply).await;
        assert_eq!(ask(&server, "alice", PODS).await, Ok((allowed, DecisionSource::Review)));
        seconds(ttl - 1).await;
        assert_eq!(ask(&server, "alice", PODS).await, Ok((allowed, DecisionSource::Cached)));
        assert_eq!(server.review_count(), 1);
        seconds(1).await;
        assert_eq!(ask(&server, "alice", PODS).await, Ok((allowed, DecisionSource::Review)));
        assert_eq!(server.review_count(), 2);
    }
}

#[tokio::test]
async fn the_age_of_a_decision_counts_from_the_request() {
    let server = Arc::new(ReviewServer::start(&config(0), Reply::Pending).await);
    let asking = tokio::spawn({
        let server = Arc::clone(&server);
        async move { ask(&server, "alice", PODS).await }
    });
    eventually("review 1", || server.review_count() == 1).await;
    seconds(6).await;
    server.reply(Reply::Allow);
    assert_eq!(asking.await.unwrap(), Ok((true, DecisionSource::Review)));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Cached)));
    seconds(4).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
}

#[tokio::test]
async fn the_reason_comes_from_the_upstream() {
    let server = ReviewServer::start(&config(0), Reply::Deny).await;
    for _ in 0..2 {
        let pods = attributes(PODS);
        let decision = server.authorizer.authorize(&user("alice", &[]), &pods).await.unwrap();
        assert_eq!(&*decision.reason, "no role");
    }
}

#[tokio::test]
async fn users_do_not_share_decisions() {
    let server = ReviewServer::start(&config(0), Reply::AllowOnly("alice")).await;
    let pods = attributes(PODS);
    let mut users = vec![user("alice", &["g"]), user("bob", &["g"]), user("alic", &["eg"])];
    // The same name with other groups or another UID is another user.
    users.extend([user("alice", &["h"]), user("alice", &["g", "h"]), user("alice", &[])]);
    let uid = User::new("alice".into(), "1".into(), vec!["g".into()], Default::default());
    users.push(Arc::new(uid));
    for round in 0..2 {
        for user in &users {
            let decision = server.authorizer.authorize(user, &pods).await.unwrap();
            assert_eq!(decision.allowed, user.name == "alice");
            let source = if round == 0 { DecisionSource::Review } else { DecisionSource::Cached };
            assert_eq!(decision.source, source);
        }
    }
    assert_eq!(server.review_count(), users.len());
}

#[tokio::test]
async fn different_requests_do_not_share_decisions() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let uris = [
        "/api/v1/namespaces/a/configmaps/x",
        "/api/v1/namespaces/a/secrets/x",
        "/api/v1/namespaces/b/configmaps/x",
        "/api/v1/namespaces/a/configmaps",
        "/api/v1/namespaces/a/configmaps?watch=1",
        "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dx",
        "/api/v1/namespaces/a/configmaps?labelSelector=a%3Db",
        "/api/v1/namespaces/a/configmaps/x/status",
        "/version",
        "/version/",
    ];
    for uri in uris {
        assert_eq!(ask(&server, "alice", uri).await, Ok((true, DecisionSource::Review)), "{uri}");
    }
    server.reply(Reply::Deny);
    for uri in uris {
        assert_eq!(ask(&server, "alice", uri).await, Ok((true, DecisionSource::Cached)), "{uri}");
    }
    let mut bodies = server.bodies();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), uris.len());
}

#[tokio::test]
async fn concurrent_requests_share_a_review_even_if_the_first_is_cancelled() {
    let server = Arc::new(ReviewServer::start(&config(0), Reply::Pending).await);
    let ask = || {
        let server = Arc::clone(&server);
        tokio::spawn(async move { ask(&server, "alice", PODS).await })
    };
    let leader = ask();
    eventually("review 1", || server.review_count() == 1).await;
    let others: Vec<_> = (0..20).map(|_| ask()).collect();
    tokio::task::yield_now().await;
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    server.reply(Reply::Allow);
    for other in others {
        assert!(other.await.unwrap().unwrap().0);
    }
    assert_eq!(server.review_count(), 1);
}

#[tokio::test]
async fn failed_reviews_are_cached_briefly() {
    for code in [401, 403, 422, 429, 500, 503] {
        let server = ReviewServer::start(&config(0), Reply::Code(code)).await;
        for _ in 0..3 {
            assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable), "{code}");
        }
        assert_eq!(server.review_count(), 1, "{code}");
        // Other reviews are still sent, unless the upstream throttles.
        assert_eq!(ask(&server, "bob", PODS).await, Err(Unavailable));
        assert_eq!(server.review_count(), if code == 429 { 1 } else { 2 });
        server.reply(Reply::Allow);
        seconds(1).await;
        assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    }
}

#[tokio::test]
async fn a_denial_with_an_evaluation_error_is_no_decision() {
    let server = ReviewServer::start(
        &config(0),
        Reply::Status(r#"{"allowed":false,"evaluationError":"x"}"#),
    )
    .await;
    assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable));
    server.reply(Reply::Status(r#"{"allowed":true,"evaluationError":"x"}"#));
    assert_eq!(ask(&server, "bob", PODS).await, Ok((true, DecisionSource::Review)));
}

#[tokio::test]
async fn a_review_times_out() {
    let server = Arc::new(ReviewServer::start(&config(0), Reply::Pending).await);
    let asking = tokio::spawn({
        let server = Arc::clone(&server);
        async move { ask(&server, "alice", PODS).await }
    });
    eventually("review 1", || server.review_count() == 1).await;
    seconds(11).await;
    assert_eq!(asking.await.unwrap(), Err(Unavailable));
}

#[tokio::test]
async fn an_expired_decision_is_used_only_within_the_grace_and_during_an_outage() {
    for (reply, allowed) in [(Reply::Allow, true), (Reply::Deny, false)] {
        let server = ReviewServer::start(&config(60), reply).await;
        assert_eq!(ask(&server, "alice", PODS).await, Ok((allowed, DecisionSource::Review)));
        server.reply(Reply::Code(503));
        seconds(11).await;
        for _ in 0..2 {
            assert_eq!(ask(&server, "alice", PODS).await, Ok((allowed, DecisionSource::Stale)));
        }
        assert_eq!(ask(&server, "bob", PODS).await, Err(Unavailable));
        // An upstream that answers may have changed its decision.
        for code in [401, 403, 429] {
            server.reply(Reply::Code(code));
            seconds(2).await;
            assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable));
        }
        server.reply(Reply::Code(503));
        seconds(60).await;
        assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable));
    }
}

#[tokio::test]
async fn expired_decisions_are_not_used_without_a_grace() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    server.reply(Reply::Code(503));
    seconds(10).await;
    assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable));
}

#[tokio::test]
async fn a_review_after_an_outage_replaces_the_expired_decision() {
    let server = ReviewServer::start(&config(600), Reply::Allow).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
    server.reply(Reply::Code(500));
    seconds(11).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Stale)));
    server.reply(Reply::Deny);
    // The outage is forgotten by now.
    seconds(2).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((false, DecisionSource::Review)));
}

#[tokio::test]
async fn one_failing_review_does_not_make_others_stale() {
    let server = ReviewServer::start(&config(600), Reply::Allow).await;
    for name in ["alice", "bob", "carol"] {
        assert_eq!(ask(&server, name, PODS).await, Ok((true, DecisionSource::Review)));
    }
    seconds(11).await;
    server.reply(Reply::Code(500));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Stale)));
    server.reply(Reply::Deny);
    assert_eq!(ask(&server, "bob", PODS).await, Ok((false, DecisionSource::Review)));
    assert_eq!(ask(&server, "carol", PODS).await, Ok((false, DecisionSource::Review)));
}

#[tokio::test]
async fn a_request_with_an_expired_decision_does_not_wait_during_an_outage() {
    let server = ReviewServer::start(&config(600), Reply::Allow).await;
    for name in ["alice", "bob", "carol"] {
        assert_eq!(ask(&server, name, PODS).await, Ok((true, DecisionSource::Review)));
    }
    seconds(11).await;
    server.reply(Reply::Code(500));
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Stale)));
    assert_eq!(ask(&server, "bob", PODS).await, Ok((true, DecisionSource::Stale)));
    server.reply(Reply::Pending);
    assert_eq!(ask(&server, "carol", PODS).await, Ok((true, DecisionSource::Stale)));
    eventually("review 6", || server.review_count() == 6).await;
}
