//! The admin listener: health, and metrics that stay bounded and well-formed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::client::{Call, fetch};
use crate::harness::{Proxy, configmap};
use crate::wait::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_endpoints_report_each_check() {
    let proxy = Proxy::seeded().await;
    for path in ["/livez", "/readyz", "/readyz/upstream"] {
        let answer = proxy.admin(path).await;
        assert_eq!((answer.status.as_u16(), answer.text().trim()), (200, "ok"), "{path}");
    }
    let verbose = proxy.admin("/readyz?verbose").await.text();
    for check in ["upstream", "discovery", "warm-caches", "startup", "shutdown"] {
        assert!(verbose.contains(&format!("[+]{check} ok")), "{verbose}");
    }
    assert_eq!(proxy.admin("/nothing").await.status, 404);
    proxy.upstream.stop();
    eventually("not ready without an upstream", async || {
        proxy.admin("/readyz").await.status == 500
    })
    .await;
    assert_eq!(proxy.admin("/livez").await.status, 200, "alive all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_names_create_no_metric_series() {
    let proxy = Proxy::seeded().await;
    let made_up = |number: usize| {
        let group = format!("g{number}.example");
        match number % 6 {
            0 => Call::get(&format!("/api/v1/thing{number}?resourceVersion=0")),
            1 => Call::get(&format!("/apis/{group}/v1/things")),
            2 => Call::get(&format!("/x{number}")),
            3 => Call::new(format!("VERB{number}").parse().unwrap(), "/api/v1/pods"),
            4 => Call::get(&format!("/api/v{number}/pods?watch=1&resourceVersion=0")),
            _ => Call::get(&format!("/api/v1/namespaces/ns{number}/pods/p/sub{number}")),
        }
    };
    for number in 0..6 {
        proxy.call(&made_up(number)).await;
    }
    let before = series(&proxy.admin("/metrics").await.text());
    let plain = proxy.plain();
    let calls: Vec<_> = (6..1006).map(made_up).collect();
    for some in calls.chunks(50) {
        futures::future::join_all(some.iter().map(|call| fetch(plain, call))).await;
    }
    let after = series(&proxy.admin("/metrics").await.text());
    let new: Vec<_> = after.difference(&before).collect();
    // Counts of upstream connections and status codes may differ a little with the load; clients'
    // names never appear.
    assert!(new.len() < 10, "{new:#?}");
    assert!(after.iter().all(|line| !line.contains(".example") && !line.contains("VERB")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_follow_prometheus_conventions() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/pods").await;
    let mut watch = proxy.watch("/api/v1/pods?watch=1&resourceVersion=0").await;
    watch.next().await;
    let answer = proxy.admin("/metrics").await;
    assert!(
        answer.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4")
    );
    let text = answer.text();
    let mut kinds = BTreeMap::new();
    let mut helped = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(help.ends_with('.'), "{line}: a whole sentence");
                assert!(helped.insert(name.to_owned()), "{line}: reported twice");
            }
            ["#", "TYPE", name, kind] => drop(kinds.insert(name.to_owned(), kind.to_owned())),
            _ => {
                let name = line.split(['{', ' ']).next().unwrap();
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end).filter(|base| kinds.contains_key(*base)))
                    .unwrap_or(name);
                assert!(helped.contains(family) && kinds.contains_key(family), "{line}");
                line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            }
        }
    }
    for (name, kind) in &kinds {
        assert!(name.starts_with("weir_") || name.starts_with("process_"), "{name}");
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
            "{name}"
        );
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        assert!(!name.contains("_ms") && !name.contains("_milli"), "{name}: base units");
    }
    assert!(kinds.len() > 20, "{kinds:#?}");
    promtool(&text);
}

/// The metrics for alerts, and the contents of the pages, come from the running process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_z_pages_show_the_running_process() {
    let proxy = Proxy::seeded().await;
    proxy.warm("/api/v1/configmaps").await;
    proxy.upstream.store().create(configmap("ns1", "new", 0)).unwrap();
    proxy.catch_up("/api/v1/configmaps").await;
    proxy.admin("/readyz").await;
    eventually("the version of the API server", async || {
        proxy.admin("/metrics").await.text().contains("weir_upstream_info{version=\"v1.")
    })
    .await;
    let has = |text: &str, part: &str| assert!(text.contains(part), "{part} is missing in\n{text}");
    let metrics = proxy.admin("/metrics").await.text();
    for part in [
        "weir_ready{check=\"startup\"} 1",
        "weir_cache_fill_duration_seconds_count{cause=\"start\"}",
        "weir_watch_delivery_delay_seconds_bucket{stage=\"applied\"",
        "weir_upstream_received_bytes_total{identity=\"own\",purpose=\"cache\"}",
    ] {
        has(&metrics, part);
    }
    let received = metrics.lines().find(|line| {
        line.starts_with("weir_reflector_events_total{")
            && line.contains("resource=\"configmaps\"")
            && line.contains("type=\"upsert\"")
    });
    assert!(received.is_some_and(|line| !line.ends_with(" 0")), "{received:?}");
    has(&proxy.admin("/metrics/slis").await.text(), "kubernetes_healthcheck{name=\"upstream\"");
    has(&proxy.admin("/statusz").await.text(), "\nweir statusz\n");
    has(&proxy.admin("/flagz").await.text(), "\nweir flags\n");
    has(&proxy.admin("/configz").await.text(), "\"kind\": \"Configz\"");
    has(&proxy.admin("/debug/memory").await.text(), "\"unaccountedBytes\"");
    // The test has a logger of its own.
    assert_eq!(proxy.admin("/debug/log").await.status, 404);
}

/// promtool checks the metrics too, where it is installed; the checks above do not depend on it.
fn promtool(text: &str) {
    let command = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else { return };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    // The client library chooses the names of its process collector.
    let ours: Vec<_> = report.lines().filter(|line| line.starts_with("weir_")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

/// Returns the series without their values.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}
