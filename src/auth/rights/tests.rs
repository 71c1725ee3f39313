//! What is looked for, and what is told of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus::{Registry, TextEncoder};

use super::*;
use crate::config::{Mode, RbacConfig};
use crate::upstream::testing::{Speaks, TestServer, answer};

fn settings() -> (AuthenticationConfig, AuthorizationConfig) {
    let authentication =
        AuthenticationConfig { mode: Mode::Gateway, ..AuthenticationConfig::default() };
    (authentication, AuthorizationConfig::default())
}

fn answered(allowed: bool) -> Bytes {
    Bytes::from(format!(
        r#"{{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{{}},"spec":{{}},"status":{{"allowed":{allowed}}}}}"#
    ))
}

/// Until something holds, as the paused clock moves.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn what_is_needed_follows_from_the_settings() {
    let rights = |authentication: &AuthenticationConfig, authorization: &AuthorizationConfig| {
        let needs = needed::by(authentication, authorization);
        needs.iter().map(|need| need.right).collect::<Vec<_>>()
    };
    let (mut authentication, mut authorization) = settings();
    let everywhere = [Right::Resources, Right::Definitions];
    let base = [&everywhere[..], &[Right::TokenReviews, Right::SubjectAccessReviews]].concat();
    let with = |more: &[Right]| [&base[..], more].concat();
    assert_eq!(rights(&authentication, &authorization), with(&[Right::AuthenticationConfig]));
    authentication.impersonate = true;
    authorization.rbac = Some(RbacConfig { check_one_in: 100 });
    assert_eq!(
        rights(&authentication, &authorization),
        with(&[
            Right::AuthenticationConfig,
            Right::Rbac,
            Right::Impersonate,
            Right::ImpersonateCredentialId
        ])
    );
    authentication.mode = Mode::Sidecar;
    assert_eq!(rights(&authentication, &authorization), everywhere);
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_seen_and_that_it_was_given() {
    let given = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(AtomicUsize::new(0));
    let ask: Ask = Arc::new({
        let (given, asked) = (given.clone(), asked.clone());
        move |body| {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let resource = &body["spec"]["resourceAttributes"]["resource"];
            let allowed = resource != "tokenreviews" || given.load(Ordering::SeqCst) > 0;
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            Box::pin(async move {
                if first {
                    return Err(UpstreamError::Lost("it is starting".to_owned()));
                }
                Ok(answered(allowed))
            })
        }
    });
    let (authentication, authorization) = settings();
    let registry = Registry::new();
    let metrics = RightsMetrics::register(&registry).unwrap();
    let rights = Rights::with(needed::by(&authentication, &authorization), ask, metrics);
    assert_eq!(rights.has(Right::TokenReviews), None);
    // The first time nothing could be asked.
    until(|| rights.has(Right::AuthenticationConfig).is_some()).await;
    assert_eq!(rights.missing(), [Right::TokenReviews]);
    let shown = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(shown().contains("weir_missing_rights{right=\"tokenreviews\"} 1"), "{}", shown());
    assert!(shown().contains("weir_missing_rights{right=\"resources\"} 0"), "{}", shown());
    given.store(1, Ordering::SeqCst);
    until(|| rights.missing().is_empty()).await;
    assert!(shown().contains("weir_missing_rights{right=\"tokenreviews\"} 0"), "{}", shown());
    // Nobody asks once it is gone.
    drop(rights);
    let before = asked.load(Ordering::SeqCst);
    tokio::time::sleep(INTERVAL * 2).await;
    assert_eq!(asked.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn the_upstream_is_asked_for_ones_own_rights() {
    let server = TestServer::start(Speaks::http1(), |request| async move {
        assert_eq!(request.uri().path(), PATH);
        answer(201, answered(false))
    })
    .await;
    let (authentication, authorization) = settings();
    let metrics = RightsMetrics::register(&Registry::new()).unwrap();
    let upstream = server.upstream(false).await;
    let rights = Rights::start(&authentication, &authorization, upstream, metrics);
    while rights.missing().len() < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rights.has(Right::Rbac), None);
}

#[test]
fn an_answer_must_be_one() {
    assert!(is_allowed(&answered(true)).unwrap());
    assert!(!is_allowed(&answered(false)).unwrap());
    assert!(is_allowed(br#"{"kind":"Status","status":{"allowed":true}}"#).is_err());
    assert!(is_allowed(b"").is_err());
}

#[test]
fn a_question_has_no_empty_fields() {
    let attributes =
        ResourceAttributes { verb: "get", resource: "configmaps", ..Default::default() };
    let written: serde_json::Value = serde_json::from_slice(&request(&attributes)).unwrap();
    let expected = serde_json::json!({"verb": "get", "resource": "configmaps"});
    assert_eq!(written["spec"]["resourceAttributes"], expected);
}
