//! The counters, and their labels.

use super::*;

fn text(registry: &Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[test]
fn requests_are_counted_by_resource_cache_status_and_reason() {
    let registry = Registry::new();
    let metrics = ServerMetrics::register(&registry).unwrap();
    let pods = metrics.resource(Some(&GroupVersionResource::new("", "v1", "pods")));
    pods.request("list", CacheStatus::Hit, "", 200, Duration::from_millis(1));
    pods.request("list", CacheStatus::Forward, "consistent", 200, Duration::from_millis(1));
    metrics.resource(None).request("other", CacheStatus::Error, "host", 403, Duration::ZERO);
    let text = text(&registry);
    for line in [
        r#"weir_requests_total{cache_status="hit",code="200",group="",reason="",resource="pods",verb="list",version="v1"} 1"#,
        r#"weir_requests_total{cache_status="forward",code="200",group="",reason="consistent",resource="pods",verb="list",version="v1"} 1"#,
        r#"weir_requests_total{cache_status="error",code="403",group="",reason="host",resource="other",verb="other",version=""} 1"#,
        r#"weir_request_duration_seconds_count{cache_status="hit",verb="list"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
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
    let of = |name: &str| metrics.resource(Some(&GroupVersionResource::new("", "v1", name)));
    let pods = of("pods");
    for n in 1..RESOURCES_MAX {
        of(&n.to_string());
    }
    assert!(Arc::ptr_eq(&pods, &of("pods")));
    assert!(Arc::ptr_eq(&of("one-more"), &metrics.resource(None)));
}
