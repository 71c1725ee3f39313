//! Reasons of roles for access reviews of clients, checked by access reviews.

use super::*;
use crate::auth::rbac::testing::TestRbac;

const REASON: &str =
    r#"RBAC: allowed by ClusterRoleBinding "alice" of ClusterRole "pods" to User "alice""#;

/// Returns an upstream that allows all with this reason, and RBAC that allows alice.
async fn granted(reason: &str) -> (TestRbac, ReviewServer) {
    let rbac = TestRbac::new();
    let server = ReviewServer::with_rbac(&config(0), allow(reason), &rbac).await;
    rbac.list();
    rbac.grant("alice");
    (rbac, server)
}

fn allow(reason: &str) -> Reply {
    let status = serde_json::json!({"allowed": true, "reason": reason}).to_string();
    Reply::Status(status.leak())
}

fn reason(server: &ReviewServer, groups: &[&str]) -> Option<String> {
    server.authorizer.reason_of_roles(&user("alice", groups), &attributes(PODS))
}

/// Asks once more, and waits until that was checked.
async fn checked(server: &ReviewServer) -> Option<String> {
    let before = server.review_count();
    let reason = reason(server, &[]);
    eventually("the end of the check", || {
        server.authorizer.checks.available_permits() == CHECKS_MAX && server.review_count() > before
    })
    .await;
    reason
}

#[tokio::test]
async fn no_reason_is_used_before_the_upstream_gave_the_same() {
    let (rbac, server) = granted(REASON).await;
    assert_eq!(checked(&server).await, None);
    assert_eq!(checked(&server).await.as_deref(), Some(REASON));
    // An action that roles do not allow, or no longer allow, has no reason.
    let alice = user("alice", &[]);
    let secrets = attributes("/api/v1/namespaces/a/secrets");
    assert_eq!(server.authorizer.reason_of_roles(&alice, &secrets), None);
    rbac.revoke("alice");
    assert_eq!(reason(&server, &[]), None);
    assert_eq!(reason(&server, &["system:masters"]).as_deref(), Some(""));
    rbac.invalidate();
    assert_eq!(reason(&server, &["system:masters"]), None);
}

/// The authorizer of `system:masters` comes before all others.
#[tokio::test]
async fn masters_have_no_reason_and_confirm_none() {
    let (_rbac, server) = granted("").await;
    assert_eq!(reason(&server, &["system:masters"]).as_deref(), Some(""));
    eventually("the end of the check", || {
        server.authorizer.checks.available_permits() == CHECKS_MAX && server.review_count() == 1
    })
    .await;
    assert_eq!(reason(&server, &[]), None);
}

#[tokio::test]
async fn another_reason_that_persists_ends_the_use_of_reasons_alone() {
    let (_rbac, server) = granted("the webhook allows it").await;
    assert_eq!(reason(&server, &[]), None);
    eventually("the first check", || server.review_count() == 1).await;
    for _ in 0..3 {
        seconds(5).await;
    }
    eventually("the second check", || server.review_count() >= 2).await;
    server.reply(allow(REASON));
    for _ in 0..3 {
        seconds(5).await;
        assert_eq!(reason(&server, &[]), None);
    }
    assert_eq!(ask(&server, "alice", PODS).await, Ok((true, DecisionSource::Rbac)));
}

#[tokio::test]
async fn another_reason_for_a_moment_ends_nothing() {
    let (_rbac, server) = granted(REASON).await;
    checked(&server).await;
    server.reply(allow("another"));
    assert_eq!(reason(&server, &[]).as_deref(), Some(REASON));
    eventually("the second check", || server.review_count() == 2).await;
    server.reply(allow(REASON));
    seconds(5).await;
    eventually("the third check", || server.review_count() == 3).await;
    assert_eq!(checked(&server).await.as_deref(), Some(REASON));
}

#[tokio::test]
async fn a_node_has_no_reason_of_roles() {
    let (rbac, server) = granted(REASON).await;
    rbac.grant("system:node:a");
    checked(&server).await;
    let node = |groups: &[&str]| {
        let node = user("system:node:a", groups);
        server.authorizer.reason_of_roles(&node, &attributes(PODS)).is_some()
    };
    assert!(node(&["system:authenticated"]));
    assert!(!node(&["system:nodes", "system:authenticated"]));
}
