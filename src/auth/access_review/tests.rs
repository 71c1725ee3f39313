//! The words of a review, and the memory of its answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::decisions::{ALLOWED_MAX_BYTES, DENIED_MAX_BYTES, Decisions, Found};
use super::reviewer::judge;
use super::testing::{attributes, config, pass, user};
use super::{Outcome, Question, Unanswered, Verdict, wire};
use crate::auth::user::User;
use crate::config::AuthorizationConfig;
use crate::telemetry::auth_metrics::authorization::ReviewOutcome;

#[test]
fn a_review_is_written_as_the_upstream_writes_its_own() {
    let extra = BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]);
    let groups = vec!["dev".to_owned(), "system:authenticated".to_owned()];
    let alice = User::new("alice".to_owned(), "u1".to_owned(), groups, extra);
    let scale = "/apis/apps/v1/namespaces/ns1/deployments/x/scale";
    assert_eq!(
        wire::request(&alice, &attributes(scale)),
        concat!(
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":"#,
            r#"{"namespace":"ns1","verb":"get","group":"apps","version":"v1","resource":"deployments","subresource":"scale","name":"x"},"#,
            r#""user":"alice","groups":["dev","system:authenticated"],"extra":{"k":["v"]},"uid":"u1"},"status":{"allowed":false}}"#
        )
    );
    let list = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1,a!%3D&labelSelector=app%3Da,!b,c";
    assert_eq!(
        wire::request(&user("bob", &[]), &attributes(list)),
        concat!(
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":"#,
            r#"{"verb":"list","version":"v1","resource":"pods","#,
            r#""fieldSelector":{"requirements":[{"key":"a","operator":"NotIn","values":[""]},{"key":"spec.nodeName","operator":"In","values":["n1"]}]},"#,
            r#""labelSelector":{"requirements":[{"key":"app","operator":"In","values":["a"]},{"key":"b","operator":"DoesNotExist"},{"key":"c","operator":"Exists"}]}},"#,
            r#""user":"bob"},"status":{"allowed":false}}"#
        )
    );
    assert_eq!(
        wire::request(&user("bob", &[]), &attributes("/version")),
        concat!(
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"nonResourceAttributes":"#,
            r#"{"path":"/version","verb":"get"},"user":"bob"},"status":{"allowed":false}}"#
        )
    );
}

#[test]
fn answers_are_judged_as_the_upstream_judges_its_own() {
    let judge = |status: &str| judge(&format!(r#"{{"status":{status}}}"#).into());
    let rows = [
        (r#"{"allowed":true}"#, ReviewOutcome::Allowed, Ok(true)),
        (r#"{"allowed":true,"evaluationError":"x"}"#, ReviewOutcome::Allowed, Ok(true)),
        (r#"{"allowed":false,"reason":"r"}"#, ReviewOutcome::Denied, Ok(false)),
        (r#"{"allowed":false,"denied":true}"#, ReviewOutcome::Denied, Ok(false)),
        // The API server answers a request of which it cannot tell with 500.
        (
            r#"{"allowed":false,"evaluationError":"x"}"#,
            ReviewOutcome::Undecided,
            Err(Unanswered::Refused),
        ),
        (r#"{"allowed":true,"denied":true}"#, ReviewOutcome::Undecided, Err(Unanswered::Refused)),
        ("{}", ReviewOutcome::Failed, Err(Unanswered::Refused)),
        ("[", ReviewOutcome::Failed, Err(Unanswered::Refused)),
    ];
    for (status, outcome, allowed) in rows {
        let (judged, verdict) = judge(status);
        assert_eq!(
            (judged, verdict.map(|verdict| verdict.allowed)),
            (outcome, allowed),
            "{status}"
        );
    }
}

fn question(name: usize) -> Question {
    Question::new(&user("alice", &[]), &attributes(&format!("/api/v1/namespaces/a/secrets/{name}")))
}

/// Asked now.
fn verdict(allowed: bool) -> Outcome {
    Outcome { asked: Instant::now(), result: Ok(Verdict { allowed, reason: Arc::default() }) }
}

async fn fresh(decisions: &Decisions, question: &Question) -> Option<bool> {
    match decisions.find(question, None).await? {
        Found::Fresh(verdict) => Some(verdict.allowed),
        Found::Expired(_) => None,
    }
}

#[tokio::test]
async fn denials_evict_no_allows_and_all_have_their_bound() {
    // They outlast the test on the busiest machine.
    let ttl = Duration::from_secs(3600);
    let decisions =
        Decisions::new(&AuthorizationConfig { allow_ttl: ttl, deny_ttl: ttl, ..config(0) });
    decisions.remember(&question(0), &verdict(true)).await;
    for name in 1..16_000 {
        decisions.remember(&question(name), &verdict(false)).await;
    }
    assert_eq!(fresh(&decisions, &question(0)).await, Some(true));
    let denied = decisions.bytes(false);
    assert!(denied > DENIED_MAX_BYTES / 2, "it was full: {denied}");
    // The cache's housekeeping is behind by some hundred entries at most.
    assert!(denied < DENIED_MAX_BYTES * 5 / 4, "{denied}");
    assert!(decisions.bytes(true) < ALLOWED_MAX_BYTES);
}

/// A selector of many short terms takes a hundred times its text.
#[tokio::test]
async fn what_is_remembered_is_weighed_with_all_its_parts() {
    const TERMS: usize = 80;
    const QUESTIONS: usize = 2000;
    let ttl = Duration::from_secs(3600);
    let decisions =
        Decisions::new(&AuthorizationConfig { allow_ttl: ttl, deny_ttl: ttl, ..config(0) });
    let selector = vec!["a"; TERMS].join(",");
    let question = |name: usize| {
        let list = format!("/api/v1/namespaces/{name}/pods?labelSelector={selector}");
        Question::new(&user("alice", &[]), &attributes(&list))
    };
    for name in 0..QUESTIONS {
        decisions.remember(&question(name), &verdict(false)).await;
    }
    let mut kept = 0;
    for name in 0..QUESTIONS {
        kept += usize::from(fresh(&decisions, &question(name)).await.is_some());
    }
    let bytes = kept * TERMS * size_of::<crate::auth::attributes::LabelRequirement>();
    assert!(kept > 0 && bytes as u64 <= DENIED_MAX_BYTES, "{kept}: {bytes}");
}

#[tokio::test]
async fn the_later_decision_counts() {
    let decisions = Decisions::new(&config(60));
    decisions.remember(&question(0), &verdict(true)).await;
    decisions.remember(&question(0), &verdict(false)).await;
    assert_eq!(fresh(&decisions, &question(0)).await, Some(false));
    pass(Duration::from_secs(6)).await;
    let Some(Found::Expired(known)) = decisions.find(&question(0), None).await else { panic!() };
    assert!(!known.allowed, "the allow before it is forgotten");
    decisions.remember(&question(0), &verdict(true)).await;
    assert_eq!(fresh(&decisions, &question(0)).await, Some(true));
}
