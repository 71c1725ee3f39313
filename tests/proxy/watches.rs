//! The frames of a watch through Weir equal those of the same watch at the upstream.

use std::time::Duration;

use serde_json::json;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Call, Next, Watch};
use crate::harness::{Proxy, configmap, pod, seed, widget};

const CONFIGMAPS: &str = "/api/v1/configmaps";
const SENTINEL: &str = "the-last-one";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_equal_the_upstreams_from_every_start() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    let now = proxy.upstream.store().revision();
    change(&proxy);
    proxy.catch_up(CONFIGMAPS).await;
    let starts = [
        "resourceVersion=0".to_owned(),
        "resourceVersion=0&allowWatchBookmarks=true".to_owned(),
        "allowWatchBookmarks=true".to_owned(),
        String::new(),
        format!("resourceVersion={now}"),
        format!("resourceVersion={now}&allowWatchBookmarks=1"),
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            .to_owned(),
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0".to_owned(),
        format!(
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={now}"
        ),
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0".to_owned(),
        format!("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={now}"),
        "sendInitialEvents=false&resourceVersionMatch=NotOlderThan".to_owned(),
    ];
    let selectors = [
        "",
        "&labelSelector=app%3Deven",
        "&labelSelector=app!%3Deven,app",
        "&fieldSelector=metadata.name!%3Dcm-b",
        "&fieldSelector=metadata.namespace%3Dns1",
        "&fieldSelector=metadata.name%3Dthe-last-one",
    ];
    let mut pairs = Vec::new();
    for start in &starts {
        for selector in selectors {
            for scope in ["", "/namespaces/ns1"] {
                let path = format!("/api/v1{scope}/configmaps?watch=1&{start}{selector}");
                let through = proxy.watch(&path).await;
                let direct = proxy.watch_direct(&path).await;
                assert_eq!(through.cache(), "hit", "{path}");
                pairs.push((path, through, direct));
            }
        }
    }
    // The last object matches each selector in turn, so that every watch gets it in the end.
    change(&proxy);
    let mut last = configmap("ns1", SENTINEL, 0);
    proxy.upstream.store().create(last.clone()).unwrap();
    last["metadata"]["labels"]["app"] = "odd".into();
    proxy.upstream.store().update(last).unwrap();
    proxy.upstream.store().delete("v1", "configmaps", "ns1", SENTINEL).unwrap();
    let end = format!("resourceVersion\":\"{}\"", proxy.upstream.store().revision() - 1);
    for (path, mut through, mut direct) in pairs {
        assert_eq!(through.headers.get("content-type"), direct.headers.get("content-type"));
        let end = if path.contains("app%3Deven") {
            "DELETED\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"the-last-one"
        } else {
            &end
        };
        assert_eq!(through.until(end).await, direct.until(end).await, "{path}");
    }
}

/// As from 1.37 on: a watch-list is compressed for its whole life, and no other watch is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_lists_are_compressed_where_the_upstream_compresses_them() {
    for (minor, is_compressed) in [(37, true), (36, false)] {
        let options = SimulatorOptions { minor, ..SimulatorOptions::default() };
        let upstream = Simulator::start(options).await.unwrap();
        seed(&upstream);
        for number in 0..2_000 {
            upstream.store().create(configmap("ns1", &format!("many-{number}"), number)).unwrap();
        }
        let proxy = Proxy::before(upstream, "", |_| {}).await;
        proxy.warm(CONFIGMAPS).await;
        let mut pairs = Vec::new();
        for (query, is_watch_list) in [
            ("resourceVersion=0&allowWatchBookmarks=true", true),
            ("allowWatchBookmarks=true&labelSelector=app%3Dodd", true),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                true,
            ),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", false),
            ("resourceVersion=0", false),
        ] {
            let path = format!("{CONFIGMAPS}?watch=1&{query}");
            let call = Call::get(&path).header("accept-encoding", "gzip");
            let through = Watch::open(proxy.plain(), &call).await;
            let direct = Watch::open(proxy.upstream.address(), &call).await;
            assert_eq!(through.cache(), "hit", "{path}");
            for watch in [&through, &direct] {
                let is_named = |name: &str, value: &str| {
                    watch.headers.get(name).is_some_and(|given| given == value)
                };
                let expected = is_compressed && is_watch_list;
                assert_eq!(is_named("content-encoding", "gzip"), expected, "{minor} {path}");
                assert_eq!(is_named("vary", "Accept-Encoding"), expected, "{minor} {path}");
            }
            pairs.push((path, through, direct));
        }
        let plain = proxy.watch(&format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true")).await;
        assert!(!plain.headers.contains_key("content-encoding"), "the client accepts no gzip");
        change(&proxy);
        let mut last = configmap("ns1", SENTINEL, 1);
        last["data"]["long"] = "x".repeat(4_000).into();
        proxy.upstream.store().create(last).unwrap();
        for (path, mut through, mut direct) in pairs {
            assert_eq!(through.until(SENTINEL).await, direct.until(SENTINEL).await, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_selectors_rewrite_events() {
    let proxy = Proxy::seeded().await;
    let node = "/api/v1/pods?watch=1&resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-x";
    let color =
        "/apis/example.com/v1/widgets?watch=1&resourceVersion=0&fieldSelector=spec.color%3Dblue";
    proxy.warm("/api/v1/pods").await;
    proxy.warm("/apis/example.com/v1/widgets").await;
    let mut watches: Vec<(&str, Watch, Watch)> = Vec::new();
    for path in [node, color] {
        let through = proxy.watch(path).await;
        assert_eq!(through.cache(), "hit", "{path}");
        watches.push((path, through, proxy.watch_direct(path).await));
    }
    let api = proxy.upstream.store();
    api.create(pod("ns1", "moving", "")).unwrap();
    api.create(widget("ns1", "moving", "red")).unwrap();
    for (node, color) in [("node-x", "blue"), ("node-x", "blue"), ("", "red"), ("node-x", "blue")] {
        let stamp = json!({"metadata": {"annotations": {"r": api.revision().to_string()}}, "spec": {"nodeName": node}});
        api.patch("v1", "pods", "ns1", "moving", &stamp).unwrap();
        let stamp = json!({"metadata": {"annotations": {"r": api.revision().to_string()}}, "spec": {"color": color}});
        api.patch("example.com/v1", "widgets", "ns1", "moving", &stamp).unwrap();
    }
    api.create(pod("ns1", SENTINEL, "node-x")).unwrap();
    api.create(widget("ns1", SENTINEL, "blue")).unwrap();
    for (path, mut through, mut direct) in watches {
        let frames = through.until(SENTINEL).await;
        assert_eq!(frames, direct.until(SENTINEL).await, "{path}");
        let types: Vec<_> = frames.iter().map(|frame| frame.split('"').nth(3).unwrap()).collect();
        assert_eq!(types, ["ADDED", "MODIFIED", "DELETED", "ADDED", "ADDED"], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_a_watch_cleanly_after_a_bookmark() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    let path = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=6&resourceVersion=0&labelSelector=none%3Dsuch";
    let begun = tokio::time::Instant::now();
    let mut through = proxy.watch(path).await;
    let mut direct = proxy.watch_direct(path).await;
    assert_eq!(through.event().await, direct.event().await, "the end of the initial events");
    // No event matches, but both servers make progress; both know it before their bookmarks, two
    // seconds before the end.
    proxy.upstream.store().create(configmap("ns1", "unseen", 1)).unwrap();
    let mut frames = through.rest().await;
    assert!(begun.elapsed() >= Duration::from_secs(6), "it lasts as long as asked");
    let mut expected = direct.rest().await;
    frames.dedup();
    expected.dedup();
    assert_eq!(frames, expected);
    assert!(frames[0].contains("BOOKMARK"), "{frames:?}");

    let short =
        "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0&labelSelector=none%3Dsuch";
    assert_eq!(proxy.watch(short).await.next().await, Next::End);
    let negative = "/api/v1/configmaps?watch=1&timeoutSeconds=-1&resourceVersion=0";
    assert_eq!(
        proxy.watch(negative).await.rest().await,
        proxy.watch_direct(negative).await.rest().await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_watches_equal_the_upstreams() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    for query in [
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=0&labelSelector=a%3Db%3Dc",
        "resourceVersion=0&fieldSelector=spec.x%3D1",
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan&resourceVersion=0",
        "timeoutSeconds=abc",
        "limit=abc&resourceVersion=0",
    ] {
        let call = Call::get(&format!("{CONFIGMAPS}?watch=1&{query}"));
        let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
        assert_ne!(direct.status, 200, "{query}");
        assert_eq!((through.status, through.text()), (direct.status, direct.text()), "{query}");
        assert_eq!(through.headers["content-type"], direct.headers["content-type"]);
    }
}

/// Weir's own 410, where Weir's history is the shorter one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_before_the_history_gets_the_upstreams_410() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |config| config.cache.history_bytes_max = 20_000).await;
    proxy.warm(CONFIGMAPS).await;
    let first = proxy.upstream.store().revision();
    for number in 0..200 {
        let mut object = configmap("ns2", "growing", number);
        object["data"]["text"] = "x".repeat(2000).into();
        match number {
            0 => proxy.upstream.store().create(object).unwrap(),
            _ => proxy.upstream.store().update(object).unwrap(),
        };
    }
    let last = proxy.upstream.store().revision();
    proxy.catch_up(CONFIGMAPS).await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={first}");
    let mut gone = proxy.watch(&path).await;
    assert_eq!((gone.status.as_u16(), gone.cache()), (200, "hit"));
    let frames = gone.rest().await;
    assert_eq!(frames.len(), 1, "{frames:?}");
    let start = format!(
        r#"{{"type":"ERROR","object":{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"too old resource version: {first} ("#
    );
    let end = r#")","reason":"Expired","code":410}}"#;
    let oldest = frames[0].strip_prefix(&start).and_then(|rest| rest.strip_suffix(end));
    let oldest: u64 = oldest.unwrap_or_else(|| panic!("{frames:?}")).parse().unwrap();
    assert!(first < oldest && oldest < last);
    // A watch can resume from the resourceVersion in the message.
    let resumed = format!("{CONFIGMAPS}?watch=1&resourceVersion={oldest}");
    let end = format!("\"resourceVersion\":\"{last}\"");
    let mut through = proxy.watch(&resumed).await;
    assert_eq!(through.cache(), "hit");
    let frames = through.until(&end).await;
    assert_eq!(frames, proxy.watch_direct(&resumed).await.until(&end).await);
}

/// One change of each kind: an object whose labels change, a deleted object, a new object.
fn change(proxy: &Proxy) {
    let api = proxy.upstream.store();
    let stamp = api.revision().to_string();
    for app in ["odd", "even", "odd", "even"] {
        let patch =
            json!({"metadata": {"labels": {"app": app}, "annotations": {"at": stamp.clone()}}});
        for namespace in ["ns1", "ns1-a"] {
            api.patch("v1", "configmaps", namespace, "cm-a", &patch).unwrap();
        }
    }
    let passing = format!("passing-{stamp}");
    api.create(configmap("ns2", &passing, 2)).unwrap();
    api.delete("v1", "configmaps", "ns2", &passing).unwrap();
    api.create(configmap("ns1", &format!("new-{stamp}"), 3)).unwrap();
}
