//! Tests of which permissions are checked, and of what is reported.

use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus::{Registry, TextEncoder};

use super::*;
use crate::config::Mode;
use crate::testing::eventually_every;
use crate::upstream::self_review::{PATH, ResourceAttributes, is_allowed, request};
use crate::upstream::testing::{ServerOptions, TestServer, answer};

fn settings() -> (AuthenticationConfig, AuthorizationConfig) {
    let authentication =
        AuthenticationConfig { mode: Mode::Gateway, ..AuthenticationConfig::default() };
    (authentication, AuthorizationConfig::default())
}

fn review(allowed: bool) -> Bytes {
    Bytes::from(format!(
        r#"{{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{{}},"spec":{{}},"status":{{"allowed":{allowed}}}}}"#
    ))
}

#[test]
fn the_needed_permissions_follow_from_the_settings() {
    let permissions = |authentication: &AuthenticationConfig,
                       authorization: &AuthorizationConfig| {
        let specs = spec::needed(authentication, authorization);
        specs.iter().map(|spec| spec.permission).collect::<Vec<_>>()
    };
    let (mut authentication, mut authorization) = settings();
    let everywhere = [Permission::Resources, Permission::Definitions];
    let base =
        [&everywhere[..], &[Permission::TokenReviews, Permission::SubjectAccessReviews]].concat();
    let with = |more: &[Permission]| [&base[..], more].concat();
    assert_eq!(
        permissions(&authentication, &authorization),
        with(&[Permission::AuthenticationConfig])
    );
    authentication.impersonate = true;
    authorization.rbac.enabled = true;
    assert_eq!(
        permissions(&authentication, &authorization),
        with(&[
            Permission::AuthenticationConfig,
            Permission::Rbac,
            Permission::Impersonate,
            Permission::ImpersonateCredentialId
        ])
    );
    authentication.mode = Mode::Sidecar;
    assert_eq!(permissions(&authentication, &authorization), everywhere);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_reported_until_it_is_granted() {
    let granted = Arc::new(AtomicUsize::new(0));
    let reviews = Arc::new(AtomicUsize::new(0));
    let post: PostReview = Arc::new({
        let (granted, reviews) = (granted.clone(), reviews.clone());
        move |body| {
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let resource = &body["spec"]["resourceAttributes"]["resource"];
            let allowed = resource != "tokenreviews" || granted.load(Ordering::SeqCst) > 0;
            let first = reviews.fetch_add(1, Ordering::SeqCst) == 0;
            Box::pin(async move {
                if first {
                    return Err(UpstreamError::Lost("it is starting".to_owned()));
                }
                Ok(review(allowed))
            })
        }
    });
    let (authentication, authorization) = settings();
    let registry = Registry::new();
    let metrics = PermissionMetrics::register(&registry).unwrap();
    let specs = spec::needed(&authentication, &authorization);
    let check = PermissionCheck::with_post(specs, post, metrics);
    assert_eq!(check.is_granted(Permission::TokenReviews), None);
    // The first check fails.
    eventually_every(Duration::from_secs(1), "a check", || {
        check.is_granted(Permission::AuthenticationConfig).is_some()
    })
    .await;
    assert_eq!(check.missing(), [Permission::TokenReviews]);
    let metrics = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(
        metrics().contains("weir_missing_permissions{permission=\"tokenreviews\"} 1"),
        "{}",
        metrics()
    );
    assert!(
        metrics().contains("weir_missing_permissions{permission=\"resources\"} 0"),
        "{}",
        metrics()
    );
    granted.store(1, Ordering::SeqCst);
    eventually_every(Duration::from_secs(1), "no missing permission", || {
        check.missing().is_empty()
    })
    .await;
    assert!(
        metrics().contains("weir_missing_permissions{permission=\"tokenreviews\"} 0"),
        "{}",
        metrics()
    );
    // Dropping it ends the checks.
    drop(check);
    let before = reviews.load(Ordering::SeqCst);
    tokio::time::sleep(INTERVAL * 2).await;
    assert_eq!(reviews.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn reviews_are_posted_to_the_upstream() {
    let server = TestServer::start(ServerOptions::http1(), |request| async move {
        assert_eq!(request.uri().path(), PATH);
        answer(201, review(false))
    })
    .await;
    let (authentication, authorization) = settings();
    let metrics = PermissionMetrics::register(&Registry::new()).unwrap();
    let upstream = server.upstream(false).await;
    let check = PermissionCheck::start(&authentication, &authorization, upstream, metrics);
    while check.missing().len() < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(check.is_granted(Permission::Rbac), None);
}

/// A role with least privilege lacks some of these for ever, so an alert must not fire for them.
#[tokio::test(start_paused = true)]
async fn the_metric_has_no_optional_permission_as_missing() {
    let post: PostReview = Arc::new(|_| Box::pin(async { Ok(review(false)) }));
    let (mut authentication, authorization) = settings();
    authentication.impersonate = true;
    let registry = Registry::new();
    let metrics = PermissionMetrics::register(&registry).unwrap();
    let specs = spec::needed(&authentication, &authorization);
    let count = specs.len();
    let check = PermissionCheck::with_post(specs, post, metrics);
    eventually_every(Duration::from_secs(1), "all checks", || check.missing().len() == count).await;
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for (permission, value) in [
        (Permission::Resources, 0),
        (Permission::Definitions, 0),
        (Permission::Impersonate, 0),
        (Permission::TokenReviews, 1),
        (Permission::SubjectAccessReviews, 1),
        (Permission::AuthenticationConfig, 1),
        (Permission::ImpersonateCredentialId, 1),
    ] {
        let name = permission.as_str();
        let line = format!("weir_missing_permissions{{permission=\"{name}\"}} {value}\n");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_response_must_be_a_review() {
    assert!(is_allowed(&review(true)).unwrap());
    assert!(!is_allowed(&review(false)).unwrap());
    assert!(is_allowed(br#"{"kind":"Status","status":{"allowed":true}}"#).is_err());
    assert!(is_allowed(b"").is_err());
}

#[test]
fn a_review_has_no_empty_fields() {
    let attributes =
        ResourceAttributes { verb: "get", resource: "configmaps", ..Default::default() };
    let written: serde_json::Value = serde_json::from_slice(&request(&attributes)).unwrap();
    let expected = serde_json::json!({"verb": "get", "resource": "configmaps"});
    assert_eq!(written["spec"]["resourceAttributes"], expected);
}
