//! Tests of the metrics of the caches.

use std::time::Duration;

use super::*;

fn lines(registry: &Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[test]
fn a_retired_cache_leaves_no_series() {
    let registry = Registry::new();
    let metrics = CacheMetrics::register(&registry).unwrap();
    let series = metrics.series(["", "v1", "pods", "", "json"]);
    series.contents(3, 300, 17);
    series.state("watching");
    series.progress();
    series.watchers(5, 2);
    series.listed();
    series.history(7, 700, None);
    for label in [EventLabel::Upsert, EventLabel::Delete, EventLabel::Bookmark, EventLabel::Error] {
        series.event(label, 10);
    }
    for cause in RELIST_CAUSES {
        series.relist(cause);
    }
    for step in PROOF_STEPS {
        series.proof(step, Duration::from_millis(7));
    }
    for outcome in CHECK_OUTCOMES {
        CHECKS.iter().for_each(|check| series.checked(check, outcome));
    }
    series.page_checked();
    for result in WATCH_RESULTS {
        series.watch_ended(result);
    }
    let text = lines(&registry);
    assert!(text.contains(
        r#"weir_reflector_state{group="",namespace="",representation="json",resource="pods",state="watching",version="v1"} 1"#
    ));
    series.retire();
    series.retire();
    series.relist("start");
    assert!(!lines(&registry).contains("pods"), "{}", lines(&registry));
}

#[test]
fn budgets_are_counted_from_zero_on() {
    let registry = Registry::new();
    let metrics = CacheMetrics::register(&registry).unwrap();
    metrics.budget_refusal("total");
    for (budget, count) in [("resource", 0), ("total", 1), ("caches", 0)] {
        let line = format!("weir_cache_budget_refusals_total{{budget=\"{budget}\"}} {count}\n");
        assert!(lines(&registry).contains(&line), "{line} is missing in\n{}", lines(&registry));
    }
}

#[test]
fn a_cache_shows_its_history_and_the_events_that_it_received() {
    let registry = Registry::new();
    let metrics = CacheMetrics::register(&registry).unwrap();
    let series = metrics.series(["", "v1", "pods", "", "json"]);
    series.contents(3, 300, 12_345_678_901_234_567);
    series.watchers(5, 2);
    series.event(EventLabel::Upsert, 10);
    series.event(EventLabel::Upsert, 20);
    series.event(EventLabel::Delete, 5);
    metrics.filled("start", Duration::from_millis(20));
    metrics.applied(Duration::from_micros(70));
    metrics.written(Duration::from_millis(2));
    let text = lines(&registry);
    let cache = r#"group="",namespace="",representation="json",resource="pods""#;
    for line in [
        format!(r#"weir_reflector_resource_version{{{cache},version="v1"}} 345678901234567"#),
        format!(r#"weir_watchers_behind{{{cache},version="v1"}} 2"#),
        format!(r#"weir_reflector_events_total{{{cache},type="upsert",version="v1"}} 2"#),
        format!(r#"weir_reflector_bytes_total{{{cache},type="upsert",version="v1"}} 30"#),
        format!(r#"weir_reflector_events_total{{{cache},type="delete",version="v1"}} 1"#),
        r#"weir_cache_fill_duration_seconds_bucket{cause="start",le="0.025"} 1"#.to_owned(),
        r#"weir_watch_delivery_delay_seconds_bucket{stage="applied",le="0.0001"} 1"#.to_owned(),
        r#"weir_watch_delivery_delay_seconds_bucket{stage="written",le="0.001"} 0"#.to_owned(),
    ] {
        assert!(text.lines().any(|candidate| candidate == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(r#"type="error""#), "there was none:\n{text}");
}

#[test]
fn a_reflector_shows_its_present_state_and_whether_it_watches() {
    let registry = Registry::new();
    let series = CacheMetrics::register(&registry).unwrap().series(["", "v1", "pods", "", "json"]);
    let states = || {
        let text = lines(&registry);
        let states = text.lines().filter(|line| line.starts_with("weir_reflector_state{"));
        let state = |line: &str| {
            let (_, state) = line.split_once("state=\"")?;
            Some((state.split('"').next()?.to_owned(), line.ends_with(" 1")))
        };
        states.filter_map(state).collect::<Vec<_>>()
    };
    let (other, watching) =
        (|name: &str| (name.to_owned(), true), |is| ("watching".to_owned(), is));
    assert_eq!(states(), [watching(false)]);
    series.state("listing");
    assert_eq!(states(), [other("listing"), watching(false)]);
    series.state("backing-off");
    series.state("backing-off");
    assert_eq!(states(), [other("backing-off"), watching(false)]);
    series.state("watching");
    assert_eq!(states(), [watching(true)]);
    series.retire();
    series.state("listing");
    series.event(EventLabel::Upsert, 10);
    assert_eq!(states(), []);
    assert!(!lines(&registry).contains("pods"));
}

#[test]
fn a_retired_cache_leaves_the_series_of_its_successor() {
    let registry = Registry::new();
    let metrics = CacheMetrics::register(&registry).unwrap();
    let series = || metrics.series(["", "v1", "pods", "", "json"]);
    let old = series();
    old.state("listing");
    old.retire();
    let new = series();
    new.state("listing");
    // Its reflector ends a moment later.
    old.state("watching");
    old.state("backing-off");
    old.event(EventLabel::Upsert, 10);
    let text = lines(&registry);
    assert!(text.contains(r#"state="listing",version="v1"} 1"#), "{text}");
    assert!(!text.contains("backing-off") && !text.contains("upsert"), "{text}");
}

#[test]
fn the_oldest_time_is_that_of_the_list_until_an_event_leaves_the_history() {
    let registry = Registry::new();
    let series = CacheMetrics::register(&registry).unwrap().series(["", "v1", "pods", "", "json"]);
    let oldest = || {
        let text = lines(&registry);
        let name = "weir_cache_history_oldest_timestamp_seconds{";
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    series.history(0, 0, None);
    assert_eq!(oldest(), 0.0);
    series.listed();
    series.history(2, 200, None);
    let listed = oldest();
    assert!(listed > 1.7e9, "{listed}");
    series.history(2, 200, Some(Duration::from_secs(1_000)));
    let age = listed - oldest();
    assert!((900.0..=1_000.0).contains(&age), "{age}");
}
