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
    for cause in RELIST_CAUSES {
        series.relist(cause);
    }
    for step in PROOF_STEPS {
        series.proof(step, Duration::from_millis(7));
    }
    for outcome in CHECK_OUTCOMES {
        series.checked(outcome);
    }
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
