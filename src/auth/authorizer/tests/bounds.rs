//! Limits on the length and number of reviews.

use super::*;
use crate::auth::rbac::testing::TestRbac;

#[tokio::test]
async fn reviews_with_long_attributes_are_not_cached() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    let uri = format!("{PODS}/{}", "x".repeat(10_000));
    for reviews in 1..3 {
        assert_eq!(ask(&server, "alice", &uri).await, Ok((true, DecisionSource::Review)));
        assert_eq!(server.review_count(), reviews);
    }
}

#[tokio::test]
async fn the_number_of_reviews_in_flight_is_limited() {
    let server = Arc::new(ReviewServer::start(&config(0), Reply::Pending).await);
    let asking: Vec<_> = (0..70)
        .map(|name| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { ask(&server, "alice", &format!("{PODS}/p{name}")).await })
        })
        .collect();
    eventually("review 64", || server.review_count() == 64).await;
    seconds(3).await;
    eventually("six refused reviews", || {
        asking.iter().filter(|one| one.is_finished()).count() == 6
    })
    .await;
    server.reply(Reply::Allow);
    let mut limited = 0;
    for one in asking {
        limited += usize::from(one.await.unwrap() == Err(Limited));
    }
    assert_eq!((limited, server.review_count()), (6, 64));
}

/// Returns a URI with a selector of `count` labels that must exist.
fn labels(count: usize) -> String {
    let labels: Vec<_> = (0..count).map(|n| format!("{n}")).collect();
    format!("{PODS}?labelSelector={}", labels.join(","))
}

#[tokio::test]
async fn the_length_of_attributes_is_their_memory() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    for expected in [DecisionSource::Review, DecisionSource::Cached] {
        assert_eq!(ask(&server, "alice", &labels(30)).await, Ok((true, expected)));
    }
    for _ in 0..2 {
        assert_eq!(ask(&server, "alice", &labels(150)).await, Ok((true, DecisionSource::Review)));
    }
    assert_eq!(server.review_count(), 3);
    // The longest are not even sent.
    let values = format!("{PODS}?labelSelector=a+in+({})", vec!["x"; 1000].join(","));
    assert_eq!(
        ask(&server, "alice", &values).await,
        Ok((true, DecisionSource::Review)),
        "all values are equal"
    );
    let values: Vec<_> = (0..1000).map(|n| format!("{n}")).collect();
    let values = format!("{PODS}?labelSelector=a+in+({})", values.join(","));
    let fields = format!("{PODS}?fieldSelector={}", vec!["a="; 1000].join(","));
    let path = format!("{PODS}/{}", "x".repeat(30_000));
    for uri in [labels(1000), values, fields, path] {
        assert_eq!(ask(&server, "alice", &uri).await, Err(Unavailable));
    }
    assert_eq!(server.review_count(), 4);
}

/// Watches keep their attributes, however they were authorized.
#[tokio::test]
async fn long_attributes_are_not_decided_by_rbac_either() {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&config(0), Reply::Allow, &rbac).await;
    rbac.list();
    rbac.grant("alice");
    assert_eq!(ask(&server, "alice", &labels(30)).await, Ok((true, DecisionSource::Rbac)));
    assert_eq!(ask(&server, "alice", &labels(1000)).await, Err(Unavailable));
}

#[tokio::test]
async fn one_user_does_not_block_others() {
    const MORE: usize = 44;
    let server = Arc::new(ReviewServer::start(&config(0), Reply::Pending).await);
    let asking = |name: &'static str, pod: usize| {
        let server = Arc::clone(&server);
        // Each with a token of its own.
        let token = [("authentication.kubernetes.io/credential-id".into(), vec![pod.to_string()])];
        let user = User::new(name.to_owned(), String::new(), Vec::new(), token.into());
        tokio::spawn(async move {
            let pod = attributes(&format!("{PODS}/p{pod}"));
            let decision = server.authorizer.authorize(&Arc::new(user), &pod).await?;
            Ok::<_, NoDecision>((decision.allowed, decision.source))
        })
    };
    let flood: Vec<_> = (0..2048 + MORE).map(|pod| asking("alice", pod)).collect();
    let finished = || flood.iter().filter(|one| one.is_finished()).count();
    eventually("the refused reviews", || finished() >= MORE).await;
    assert_eq!(finished(), MORE);
    let other = asking("bob", 0);
    tokio::task::yield_now().await;
    server.reply(Reply::Allow);
    assert_eq!(other.await.unwrap(), Ok((true, DecisionSource::Review)));
    futures::future::join_all(flood).await;
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Review)));
}

#[tokio::test]
async fn a_throttling_upstream_gets_no_reviews_for_a_while() {
    let server = ReviewServer::start(&config(0), Reply::Allow).await;
    assert_eq!(ask(&server, "carol", PODS).await, Ok((true, DecisionSource::Review)));
    server.reply(Reply::Code(429));
    assert_eq!(ask(&server, "alice", PODS).await, Err(Unavailable));
    server.reply(Reply::Allow);
    assert_eq!(ask(&server, "bob", PODS).await, Err(Unavailable));
    assert_eq!(ask(&server, "carol", PODS).await, Ok((true, DecisionSource::Cached)));
    assert_eq!(server.review_count(), 2);
    seconds(1).await;
    for name in ["alice", "bob"] {
        assert_eq!(ask(&server, name, PODS).await, Ok((true, DecisionSource::Review)));
    }
}
