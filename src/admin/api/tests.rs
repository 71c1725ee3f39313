//! Contents from figures, and how numbers are written.

use std::time::UNIX_EPOCH;

use prometheus::Registry;

use super::*;
use crate::admin::api::json::{number, optional};
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::page_comparison::KeyDifference;
use crate::cache::metrics::{CacheFigures, CacheMetrics, CacheTotals};
use crate::cache::registry::{CacheDescription, CacheDifference, CheckReport, LastFailure};
use crate::cache::verification::findings::WrongSide;
use crate::codec::object::Key;
use crate::server::RequestCount;

pub(super) fn moment(figures: Figures, before: &Totals) -> Moment {
    let all_caches = CacheTotals { resource_bytes_max: 1000.0, ..CacheTotals::default() };
    let totals = Arc::new(Totals::from_figures(&figures, &all_caches));
    Moment {
        at: MINUTE,
        time: UNIX_EPOCH + Duration::from_secs(1_000_000),
        figures,
        caches: Vec::new(),
        all_caches,
        process: ProcessFigures::default(),
        rates: [10.0, 60.0].map(|seconds| totals.rates(before, seconds)),
        totals,
        failing: Vec::new(),
    }
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
        is_over_budget: false,
        figures: CacheFigures::default(),
    }
}

#[test]
fn caches_have_their_metrics_and_are_sorted() {
    let metrics = CacheMetrics::register(&Registry::new()).unwrap();
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
            figures: series.figures(),
            ..cache(resource, "watching")
        }
    };
    let caches = [describe("nodes", 2, 100), describe("pods", 3, 900), describe("secrets", 1, 500)];
    let moment = Moment { caches: caches.into(), ..moment(Figures::default(), &Totals::default()) };
    let names = |content: &Map<String, Value>| {
        let items = content["items"].as_array().unwrap().iter();
        items.map(|item| item["resource"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let content = caches::content(&moment, None, None);
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
    let content = caches::content(&moment, Some(2), Some("bytes"));
    assert_eq!(names(&content), ["pods", "secrets"]);
}

#[test]
fn reasons_are_those_without_a_hit_by_their_rate() {
    let figures = |counts: [(&str, &str, f64); 3]| {
        let request = |(status, reason, count): (&str, &str, f64)| RequestCount {
            cache_status: status.into(),
            reason: reason.into(),
            count,
            ..RequestCount::default()
        };
        let mut figures = Figures::default();
        figures.server.requests = counts.map(request).into();
        figures
    };
    let before =
        figures([("forward", "form", 100.0), ("hit", "", 0.0), ("forward", "consistent", 0.0)]);
    let before = Totals::from_figures(&before, &CacheTotals::default());
    let now =
        figures([("forward", "form", 106.0), ("hit", "", 60.0), ("forward", "consistent", 54.0)]);
    let content = reasons::content(&moment(now, &before));
    let items = content["items"].as_array().unwrap();
    let reasons: Vec<_> = items.iter().map(|item| item["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["consistent", "form"]);
    assert_eq!(items[0]["shareOfRequests"], 0.45);
    assert_eq!(items[1]["total"], 106);
    assert_eq!(items[1]["perSecondOfMinute"], 0.1);
    assert!(items[0]["change"].as_str().unwrap().contains("resourceVersion"));
}
