//! Contents from metrics, and how numbers are written.

use std::time::UNIX_EPOCH;

use super::*;
use crate::admin::api::json::{number, optional};
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::page_comparison::KeyDifference;
use crate::cache::metrics::CacheMetrics;
use crate::cache::registry::{CacheDescription, CacheDifference, CheckReport, LastFailure};
use crate::cache::verification::findings::WrongSide;
use crate::codec::object::Key;
use crate::telemetry::metrics::counter_vec;

pub(super) fn moment(registry: &MetricRegistry, before: &Totals) -> Moment {
    let numbers = Numbers::gather(registry);
    let totals = Arc::new(Totals::from_numbers(&numbers));
    let rates = [10.0, 60.0].map(|seconds| totals.rates(before, seconds));
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000);
    let relists = relists(&numbers);
    let relists = [relists.clone(), relists];
    Moment { at: MINUTE, time, numbers, totals, rates, relists, failing: Vec::new() }
}

#[test]
fn queries_have_defaults_and_bounds() {
    let parse = |kind, query| Query::parse(kind, query);
    let none = Query { kind: Kind::Caches, limit: None, since: 0, sort: None };
    assert_eq!(parse(Kind::Caches, ""), none);
    assert_eq!(parse(Kind::Caches, "limit=x&since=-1&other=1"), none);
    let some = parse(Kind::Caches, "limit=3&sort=bytes");
    assert_eq!((some.limit, some.sort.as_deref()), (Some(3), Some("bytes")));
    assert_eq!(parse(Kind::Events, "since=7&sort=bytes").since, 7);
    assert_eq!(parse(Kind::Events, "since=7&sort=bytes").sort, None);
    assert_eq!(parse(Kind::Caches, &format!("sort={}", "x".repeat(100))), none);
}

#[test]
fn whole_numbers_are_exact_and_others_rounded() {
    assert_eq!(number(123_456_789.0), 123_456_789);
    assert_eq!(number(0.123_456), 0.123_5);
    assert_eq!(number(f64::NAN), Value::Null);
    assert_eq!(optional(None), Value::Null);
    assert_eq!(time(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
}

/// Returns a cache of the whole cluster in a state.
pub(super) fn cache(resource: &str, state: &'static str) -> CacheDescription {
    CacheDescription {
        group: "".into(),
        version: "v1".into(),
        resource: resource.into(),
        namespace: "".into(),
        representation: "json",
        state,
        since: UNIX_EPOCH,
        failure: Some(LastFailure { at: UNIX_EPOCH, cause: "403".into() }),
        is_warm: true,
        checks: CheckReport { checked: None, difference: None },
        is_quarantined: false,
    }
}

#[test]
fn caches_have_their_metrics_and_are_sorted() {
    let registry = MetricRegistry::new();
    let metrics = CacheMetrics::register(&registry).unwrap();
    metrics.limits(1000, 9000);
    let describe = |resource: &str, objects, bytes| {
        let series = metrics.series(["", "v1", resource, "", "json"]);
        series.contents(objects, bytes, 9);
        series.history(5, 0, None);
        series.delayed(Duration::from_millis(20));
        series.show_delay(Duration::from_secs(1));
        series.relist("start");
        series.relist("expired");
        CacheDescription {
            checks: CheckReport {
                checked: Some(UNIX_EPOCH),
                difference: Some(CacheDifference {
                    at: UNIX_EPOCH,
                    wrong: WrongSide::Cache,
                    count: 1,
                    keys: vec![KeyDifference {
                        key: Key::new("ns", "a"),
                        held: Some(ResourceVersion(5)),
                        upstream: None,
                    }],
                }),
            },
            is_quarantined: true,
            ..cache(resource, "watching")
        }
    };
    let all = [describe("nodes", 2, 100), describe("pods", 3, 900), describe("secrets", 1, 500)];
    let moment = moment(&registry, &Totals::default());
    let names = |content: &Map<String, Value>| {
        let items = content["items"].as_array().unwrap().iter();
        items.map(|item| item["resource"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let content = caches::content(&moment, &all, None, None);
    assert_eq!(names(&content), ["nodes", "pods", "secrets"]);
    let pods = &content["items"][1];
    for (field, value) in [("objects", 3), ("bytes", 900), ("relists", 1), ("historyEvents", 5)] {
        assert_eq!(pods[field], value, "{field}");
    }
    assert_eq!((&pods["budgetShare"], &pods["lagSeconds"]), (&0.9.into(), &0.02.into()));
    assert_eq!(pods["relistsPerHour"], 1);
    assert_eq!(pods["lastFailure"]["cause"], "403");
    assert_eq!(pods["quarantined"], true);
    let objects = serde_json::json!([{"key": "ns/a", "cache": "5", "upstream": null}]);
    let difference = &pods["lastDifference"];
    assert_eq!((&difference["objects"], &difference["count"]), (&objects, &1.into()));
    assert_eq!(difference["wrong"], "cache");
    let content = caches::content(&moment, &all, Some(2), Some("bytes"));
    assert_eq!(names(&content), ["pods", "secrets"]);
}

#[test]
fn reasons_are_those_without_a_hit_by_their_rate() {
    let registry = MetricRegistry::new();
    let labels = ["verb", "group", "version", "resource", "cache_status", "reason", "code"];
    let requests = counter_vec(&registry, "weir_requests_total", "Requests.", &labels).unwrap();
    let request = |status, reason, times| {
        let labels = ["list", "", "v1", "pods", status, reason, "200"];
        requests.with_label_values(&labels).inc_by(times);
    };
    request("forward", "form", 100);
    let before = Totals::from_numbers(&Numbers::gather(&registry));
    request("hit", "", 60);
    request("forward", "form", 6);
    request("forward", "consistent", 54);
    let content = reasons::content(&moment(&registry, &before));
    let items = content["items"].as_array().unwrap();
    let reasons: Vec<_> = items.iter().map(|item| item["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["consistent", "form"]);
    assert_eq!(items[0]["shareOfRequests"], 0.45);
    assert_eq!(items[1]["total"], 106);
    assert_eq!(items[1]["perSecondOfMinute"], 0.1);
    assert!(items[0]["change"].as_str().unwrap().contains("resourceVersion"));
}
