//! The JSON of a review, and the cache of cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::decision_cache::{ALLOWED_MAX_BYTES, CachedDecision, DENIED_MAX_BYTES, DecisionCache};
use super::metrics::ReviewOutcome;
use super::testing::{attributes, config, pass, user};
use super::{ReviewDecision, ReviewFailure, ReviewKey, wire};
use crate::auth::user::User;
use crate::config::AuthorizationConfig;

#[test]
fn a_review_has_the_json_of_the_upstreams_own() {
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
fn responses_are_evaluated_as_in_the_upstream() {
    let evaluate = |status: &str| wire::evaluate(&format!(r#"{{"status":{status}}}"#).into());
    let rows = [
        (r#"{"allowed":true}"#, ReviewOutcome::Allowed, Ok(true)),
        (r#"{"allowed":true,"evaluationError":"x"}"#, ReviewOutcome::Allowed, Ok(true)),
        (r#"{"allowed":false,"reason":"r"}"#, ReviewOutcome::Denied, Ok(false)),
        (r#"{"allowed":false,"denied":true}"#, ReviewOutcome::Denied, Ok(false)),
        // The API server answers such a request with 500.
        (
            r#"{"allowed":false,"evaluationError":"x"}"#,
            ReviewOutcome::Undecided,
            Err(ReviewFailure::Refused),
        ),
        (
            r#"{"allowed":true,"denied":true}"#,
            ReviewOutcome::Undecided,
            Err(ReviewFailure::Refused),
        ),
        (
            r#"{"allowed":true,"conditions":[{"id":"a"}]}"#,
            ReviewOutcome::Undecided,
            Err(ReviewFailure::Refused),
        ),
        (
            r#"{"allowed":false,"conditionalDecisionChain":[{"conditionsType":"cel"}]}"#,
            ReviewOutcome::Undecided,
            Err(ReviewFailure::Refused),
        ),
        ("{}", ReviewOutcome::Failed, Err(ReviewFailure::Refused)),
        ("[", ReviewOutcome::Failed, Err(ReviewFailure::Refused)),
    ];
    for (status, outcome, allowed) in rows {
        let (counted, decision) = evaluate(status);
        assert_eq!(
            (counted, decision.map(|decision| decision.allowed)),
            (outcome, allowed),
            "{status}"
        );
    }
}

fn key(name: usize) -> ReviewKey {
    ReviewKey::new(
        &user("alice", &[]),
        &attributes(&format!("/api/v1/namespaces/a/secrets/{name}")),
    )
}

/// Stores the decision of a review that is sent now.
fn store(cache: &DecisionCache, key: &ReviewKey, allowed: bool) {
    let decision = ReviewDecision { allowed, reason: Arc::default() };
    cache.store(key, decision, Instant::now());
}

/// Returns the cached decision that has not expired.
fn fresh(cache: &DecisionCache, key: &ReviewKey) -> Option<bool> {
    match cache.find(key, None)? {
        CachedDecision::Fresh(decision) => Some(decision.allowed),
        CachedDecision::Expired(_) => None,
    }
}

#[tokio::test]
async fn denied_decisions_do_not_evict_allowed_ones() {
    // Longer than the test on a busy machine.
    let ttl = Duration::from_secs(3600);
    let cache =
        DecisionCache::new(&AuthorizationConfig { allow_ttl: ttl, deny_ttl: ttl, ..config(0) });
    store(&cache, &key(0), true);
    for name in 1..16_000 {
        store(&cache, &key(name), false);
    }
    assert_eq!(fresh(&cache, &key(0)), Some(true));
    let denied = cache.bytes(false);
    assert!(denied > DENIED_MAX_BYTES / 2, "the partition was not filled: {denied}");
    // moka's housekeeping lags behind by some hundred decisions at most.
    assert!(denied < DENIED_MAX_BYTES * 5 / 4, "{denied}");
    assert!(cache.bytes(true) < ALLOWED_MAX_BYTES);
}

/// The parsed form of a selector with many short terms takes a hundred times the memory of its
/// text.
#[tokio::test]
async fn the_weight_of_a_decision_includes_all_parts_of_its_attributes() {
    const TERMS: usize = 80;
    const REVIEWS: usize = 2000;
    let ttl = Duration::from_secs(3600);
    let cache =
        DecisionCache::new(&AuthorizationConfig { allow_ttl: ttl, deny_ttl: ttl, ..config(0) });
    let selector = vec!["a"; TERMS].join(",");
    let key = |name: usize| {
        let list = format!("/api/v1/namespaces/{name}/pods?labelSelector={selector}");
        ReviewKey::new(&user("alice", &[]), &attributes(&list))
    };
    for name in 0..REVIEWS {
        store(&cache, &key(name), false);
    }
    let mut kept = 0;
    for name in 0..REVIEWS {
        kept += usize::from(fresh(&cache, &key(name)).is_some());
    }
    let bytes = kept * TERMS * size_of::<crate::auth::attributes::LabelRequirement>();
    assert!(kept > 0 && bytes as u64 <= DENIED_MAX_BYTES, "{kept}: {bytes}");
}

#[tokio::test]
async fn the_latest_decision_counts() {
    let cache = DecisionCache::new(&config(60));
    store(&cache, &key(0), true);
    store(&cache, &key(0), false);
    assert_eq!(fresh(&cache, &key(0)), Some(false));
    pass(Duration::from_secs(6)).await;
    let Some(CachedDecision::Expired(decision)) = cache.find(&key(0), None) else { panic!() };
    assert!(!decision.allowed, "the earlier decision was removed");
    store(&cache, &key(0), true);
    assert_eq!(fresh(&cache, &key(0)), Some(true));
}
