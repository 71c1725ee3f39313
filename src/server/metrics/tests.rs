//! The counters, and their labels.

use std::time::Duration;

use super::*;
use crate::api::request_info::RequestScope;
use crate::cache::core::store::ScanIndex;

/// The most codes, as documented in the reference of metrics.
const CODES_MAX: usize = 64;

fn text(registry: &Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

fn answered(verb: &'static str, scope: RequestScope, cache_status: CacheStatus) -> AnsweredRequest {
    AnsweredRequest {
        verb,
        scope,
        cache_status,
        reason: "",
        code: 200,
        duration: Duration::from_millis(1),
        bytes: Some(70),
    }
}

#[track_caller]
fn assert_lines(registry: &Registry, lines: &[&str]) {
    let text = text(registry);
    for line in lines {
        assert!(text.lines().any(|candidate| candidate == *line), "{line} is missing in\n{text}");
    }
}

#[test]
fn requests_are_counted_by_resource_scope_cache_status_and_reason() {
    let registry = Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap();
    let pods = metrics.resource(Some(&GroupVersionResource::new("", "v1", "pods")));
    let hit = answered("list", RequestScope::Cluster, CacheStatus::Hit);
    assert!(pods.request(&hit).is_none());
    pods.request(&AnsweredRequest { scope: RequestScope::Namespace, bytes: Some(5), ..hit });
    let forwarded = AnsweredRequest { reason: "consistent", bytes: None, ..hit };
    let forwarded = AnsweredRequest { cache_status: CacheStatus::Forward, ..forwarded };
    // A long response is counted while it is sent.
    pods.request(&forwarded).unwrap().inc_by(1_000_000);
    let refused = answered("other", RequestScope::None, CacheStatus::Error);
    metrics.resource(None).request(&AnsweredRequest { reason: "host", code: 403, ..refused });
    assert_lines(
        &registry,
        &[
            r#"weir_requests_total{cache_status="hit",code="200",group="",reason="",resource="pods",verb="list",version="v1"} 2"#,
            r#"weir_requests_total{cache_status="forward",code="200",group="",reason="consistent",resource="pods",verb="list",version="v1"} 1"#,
            r#"weir_requests_total{cache_status="error",code="403",group="",reason="host",resource="other",verb="other",version=""} 1"#,
            r#"weir_request_duration_seconds_count{cache_status="hit",scope="cluster",verb="list"} 1"#,
            r#"weir_request_duration_seconds_count{cache_status="hit",scope="namespace",verb="list"} 1"#,
            r#"weir_request_duration_seconds_count{cache_status="error",scope="",verb="other"} 1"#,
            r#"weir_response_bytes_total{cache_status="hit",group="",resource="pods",verb="list",version="v1"} 75"#,
            r#"weir_response_bytes_total{cache_status="forward",group="",resource="pods",verb="list",version="v1"} 1000000"#,
        ],
    );
}

/// A backend behind the API server's proxy may send any code.
#[test]
fn codes_of_no_standard_count_together() {
    let registry = Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap();
    let pods = metrics.resource(Some(&GroupVersionResource::new("", "v1", "pods")));
    for code in 100..1000 {
        let proxied = answered("connect", RequestScope::Resource, CacheStatus::Forward);
        pods.request(&AnsweredRequest { code, ..proxied });
    }
    let text = text(&registry);
    let codes = text.lines().filter(|line| line.starts_with("weir_requests_total{")).count();
    assert!(codes <= CODES_MAX, "{codes}");
    for code in ["200", "404", "422", "429", "504", "other"] {
        assert!(text.contains(&format!(r#"code="{code}""#)), "{code}");
    }
}

#[test]
fn watches_and_lists_are_counted_by_resource() {
    let registry = Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap();
    let pods = metrics.resource(Some(&GroupVersionResource::new("", "v1", "pods")));
    pods.watch_started("after", WatchOutcome::Served);
    pods.watch_started("after", WatchOutcome::Expired);
    pods.delivered(3, 40);
    pods.listed(ScanIndex::Namespace, 100, 7);
    pods.listed(ScanIndex::Namespace, 10, 0);
    pods.listed(ScanIndex::None, 1, 1);
    pods.forward_overhead(Duration::from_millis(3));
    assert_lines(
        &registry,
        &[
            r#"weir_watch_starts_total{group="",outcome="served",resource="pods",start="after",version="v1"} 1"#,
            r#"weir_watch_starts_total{group="",outcome="expired",resource="pods",start="after",version="v1"} 1"#,
            r#"weir_watch_events_total{group="",resource="pods",version="v1"} 3"#,
            r#"weir_response_bytes_total{cache_status="hit",group="",resource="pods",verb="watch",version="v1"} 40"#,
            r#"weir_list_objects_scanned_total{group="",index="namespace",resource="pods",version="v1"} 110"#,
            r#"weir_list_objects_returned_total{group="",index="namespace",resource="pods",version="v1"} 7"#,
            r#"weir_list_objects_scanned_total{group="",index="none",resource="pods",version="v1"} 1"#,
            r#"weir_forward_overhead_seconds_bucket{le="0.005"} 1"#,
            r#"weir_forward_overhead_seconds_bucket{le="0.0025"} 0"#,
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn only_requests_that_wait_are_observed() {
    let registry = Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap().resource(None);
    let ready = std::pin::pin!(std::future::ready(7));
    assert_eq!(metrics.wait(WaitCause::Review, ready).await, (7, false));
    let late = std::pin::pin!(tokio::time::sleep(Duration::from_millis(40)));
    metrics.wait(WaitCause::Warmup, late).await;
    assert_lines(
        &registry,
        &[
            r#"weir_request_wait_seconds_count{cause="review"} 0"#,
            r#"weir_request_wait_seconds_bucket{cause="warmup",le="0.025"} 0"#,
            r#"weir_request_wait_seconds_bucket{cause="warmup",le="0.05"} 1"#,
        ],
    );
}

#[test]
fn guards_count_down() {
    let registry = Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap();
    let guard = metrics.in_flight();
    assert!(text(&registry).contains("weir_requests_in_flight 1"));
    drop(guard);
    assert!(text(&registry).contains("weir_requests_in_flight 0"));
}

#[test]
fn a_resource_counts_in_one_place_and_too_many_count_together() {
    let metrics = ServerMetrics::register(&Registry::new()).unwrap();
    let resource = |name: &str| metrics.resource(Some(&GroupVersionResource::new("", "v1", name)));
    let pods = resource("pods");
    for n in 1..RESOURCES_MAX {
        resource(&n.to_string());
    }
    assert!(Arc::ptr_eq(&pods, &resource("pods")));
    assert!(Arc::ptr_eq(&resource("one-more"), &metrics.resource(None)));
}
