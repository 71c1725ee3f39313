//! WATCH: the rows of `docs/semantics.md` §1.6.4, and §5.

use std::time::Duration;

use serde_json::json;

use super::client::{Watch, config_map, create, get, revision, start, start_with};
use crate::SimulatorOptions;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const END: &str = "k8s.io/initial-events-end";

#[tokio::test]
async fn unset_and_zero_begin_with_the_state_and_an_end_bookmark() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    for query in [
        "allowWatchBookmarks=true",
        "allowWatchBookmarks=true&resourceVersion=0",
        "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ] {
        let mut watch = Watch::open(&simulator, MAPS, query).await;
        assert_eq!(watch.events(1).await, [format!("ADDED a@{rv}")]);
        let line = String::from_utf8(watch.line().await.unwrap().unwrap()).unwrap();
        assert_eq!(
            line,
            format!(
                "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{rv}\",\"annotations\":{{\"{END}\":\"true\"}}}}}}}}"
            )
        );
    }
    let mut quiet = Watch::open(&simulator, MAPS, "resourceVersion=0").await;
    let next = create(&simulator, "default", "b");
    assert_eq!(quiet.events(2).await, [format!("ADDED a@{rv}"), format!("ADDED b@{next}")]);
}

#[tokio::test]
async fn an_older_upstream_has_no_watch_list() {
    let options = SimulatorOptions { minor: 30, ..SimulatorOptions::default() };
    let simulator = start_with(options).await;
    create(&simulator, "default", "a");
    let mut watch = Watch::open(&simulator, MAPS, "allowWatchBookmarks=true").await;
    let rv = create(&simulator, "default", "b");
    assert_eq!(watch.events(2).await.last().unwrap(), &format!("ADDED b@{rv}"));
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let answer = get(&simulator, &format!("{MAPS}?{query}")).await;
    assert_eq!(answer.code, 422);
    assert!(answer.message().contains("unless the WatchList feature gate is enabled"));
}

/// As kube-apiserver: it asks etcd for the revision, and its cache may be behind that.
#[tokio::test]
async fn a_consistent_watch_of_the_events_to_come_shows_none_from_before_although_the_cache_lags() {
    let simulator = start().await;
    create(&simulator, "default", "a");
    simulator.pause_caches(0);
    create(&simulator, "default", "before");
    let query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = Watch::open(&simulator, MAPS, query).await;
    let rv = create(&simulator, "default", "after");
    simulator.resume_caches(0);
    assert_eq!(watch.events(1).await, [format!("ADDED after@{rv}")]);
}

#[tokio::test]
async fn replays_from_a_revision_and_deletes_with_the_old_object() {
    let simulator = start().await;
    let start = create(&simulator, "default", "a");
    let created = create(&simulator, "default", "b");
    simulator.store().delete("v1", "configmaps", "default", "b").unwrap();
    let mut watch = Watch::open(&simulator, MAPS, &format!("resourceVersion={start}")).await;
    let deleted = created + 1;
    assert_eq!(
        watch.events(2).await,
        [format!("ADDED b@{created}"), format!("DELETED b@{deleted}")]
    );
}

#[tokio::test]
async fn selectors_rewrite_events() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    let mut watch =
        Watch::open(&simulator, MAPS, &format!("resourceVersion={rv}&labelSelector=l=2")).await;
    let api = simulator.store();
    let change = |label: &str| {
        let patch = json!({"metadata": {"labels": {"l": label}}});
        revision(&api.patch("v1", "configmaps", "default", "a", &patch).unwrap())
    };
    let (entered, left) = (change("2"), change("3"));
    let event = watch.next().await;
    assert_eq!((&event["type"], revision(&event["object"])), (&json!("ADDED"), entered));
    let event = watch.next().await;
    assert_eq!((&event["type"], revision(&event["object"])), (&json!("DELETED"), left));
    assert_eq!(event["object"]["metadata"]["labels"]["l"], "2", "the old object");
}

#[tokio::test]
async fn too_old_a_revision_is_an_error_event() {
    let options = SimulatorOptions { history_events_max: 2, ..SimulatorOptions::default() };
    let simulator = start_with(options).await;
    let first = create(&simulator, "default", "a");
    for name in ["b", "c", "d"] {
        create(&simulator, "default", name);
    }
    let mut watch = Watch::open(&simulator, MAPS, &format!("resourceVersion={first}")).await;
    let line = String::from_utf8(watch.line().await.unwrap().unwrap()).unwrap();
    let oldest = first + 1;
    assert_eq!(
        line,
        format!(
            "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"too old resource version: {first} ({oldest})\",\"reason\":\"Expired\",\"code\":410}}}}"
        )
    );
    watch.ends().await;
    let mut watch = Watch::open(&simulator, MAPS, &format!("resourceVersion={oldest}")).await;
    assert_eq!(watch.events(2).await.len(), 2);
}

#[tokio::test]
async fn a_compaction_leaves_running_watches_alone() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    let mut watch = Watch::open(&simulator, MAPS, &format!("resourceVersion={rv}")).await;
    // Advances the global revision past that of the configmaps.
    simulator
        .store()
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}))
        .unwrap();
    let before = create(&simulator, "default", "b");
    assert_eq!(watch.events(1).await, [format!("ADDED b@{before}")]);
    simulator.compact();
    let after = create(&simulator, "default", "c");
    assert_eq!(watch.events(1).await, [format!("ADDED c@{after}")]);
    let mut late = Watch::open(&simulator, MAPS, &format!("resourceVersion={rv}")).await;
    assert_eq!(late.next().await["object"]["code"], 410);
}

#[tokio::test]
async fn bookmarks_come_only_when_the_cache_moved() {
    let options = SimulatorOptions {
        bookmark_interval: Duration::from_millis(20),
        ..SimulatorOptions::default()
    };
    let simulator = start_with(options).await;
    let rv = create(&simulator, "default", "a");
    let query = format!("resourceVersion={rv}&allowWatchBookmarks=true");
    let mut watch = Watch::open(&simulator, MAPS, &query).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let moved = revision(&simulator.store().create(namespace).unwrap());
    // A write of another resource does not advance it; a consistent read advances the cache.
    let stale = get(&simulator, &format!("{MAPS}?resourceVersion=0")).await.json();
    assert_eq!(revision(&stale), rv);
    get(&simulator, &format!("{MAPS}?limit=1")).await;
    assert_eq!(watch.events(1).await, [format!("BOOKMARK @{moved}")]);
}

#[tokio::test(start_paused = true)]
async fn ends_cleanly_at_its_deadline_after_a_last_bookmark() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    let query = format!("resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=5", rv - 1);
    let mut watch = Watch::open(&simulator, MAPS, &query).await;
    assert_eq!(watch.events(2).await, [format!("ADDED a@{rv}"), format!("BOOKMARK @{rv}")]);
    watch.ends().await;
}

#[tokio::test]
async fn a_rewound_store_ends_watches_and_reuses_revisions() {
    let simulator = start().await;
    let kept = create(&simulator, "default", "a");
    let snapshot = simulator.snapshot();
    let lost = create(&simulator, "default", "b");
    let mut watch = Watch::open(&simulator, MAPS, &format!("resourceVersion={lost}")).await;
    simulator.rewind(&snapshot);
    watch.ends().await;
    assert_eq!(simulator.store().revision(), kept);
    assert_eq!(create(&simulator, "default", "c"), lost);
    let list = get(&simulator, MAPS).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn one_object_is_watched_by_its_name() {
    let simulator = start().await;
    create(&simulator, "default", "a");
    let b = create(&simulator, "default", "b");
    let mut watch =
        Watch::open(&simulator, "/api/v1/configmaps", "fieldSelector=metadata.name%3Db").await;
    assert_eq!(watch.events(1).await, [format!("ADDED b@{b}")]);
    simulator.store().create(config_map("kube-system", "b", "1")).unwrap();
    assert_eq!(watch.next().await["object"]["metadata"]["namespace"], "kube-system");
    let logged = simulator.requests().recent().pop().unwrap();
    assert_eq!((logged.verb.as_str(), logged.resource.as_str()), ("watch", "configmaps"));
    assert_eq!(simulator.requests().watches_open(), 1);
}

#[tokio::test]
async fn watches_by_path_prefix_have_no_end_bookmark() {
    let simulator = start().await;
    let a = create(&simulator, "default", "a");
    let path = "/api/v1/watch/namespaces/default/configmaps";
    let mut watch = Watch::at(&simulator, &format!("{path}?allowWatchBookmarks=1"), &[]).await;
    let b = create(&simulator, "default", "b");
    assert_eq!(watch.events(2).await, [format!("ADDED a@{a}"), format!("ADDED b@{b}")]);
    let mut one =
        Watch::at(&simulator, &format!("{path}/b?watch=1&allowWatchBookmarks=1"), &[]).await;
    assert_eq!(one.events(2).await, [format!("ADDED b@{b}"), format!("BOOKMARK @{b}")]);
    let other = get(&simulator, &format!("{path}/b?fieldSelector=metadata.name%3Da")).await;
    assert_eq!(other.message(), "fieldSelector metadata.name doesn't match requested name");
    assert_eq!(get(&simulator, &format!("{path}?sendInitialEvents=true")).await.code, 422);
}

#[tokio::test]
async fn a_future_revision_fails_in_the_stream() {
    let options = SimulatorOptions {
        freshness_timeout: Duration::from_millis(50),
        ..SimulatorOptions::default()
    };
    let simulator = start_with(options).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999";
    let mut watch = Watch::open(&simulator, MAPS, query).await;
    let event = watch.next().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(504)));
    watch.ends().await;
    let mut none = Watch::open(&simulator, MAPS, "timeoutSeconds=-1").await;
    none.ends().await;
}

#[tokio::test]
async fn an_older_upstream_shows_zero_times() {
    let options = SimulatorOptions {
        minor: 30,
        bookmark_interval: Duration::from_millis(20),
        ..SimulatorOptions::default()
    };
    let simulator = start_with(options).await;
    let rv = create(&simulator, "default", "a");
    let query = format!("resourceVersion={}&allowWatchBookmarks=1", rv - 1);
    let mut watch = Watch::open(&simulator, MAPS, &query).await;
    watch.next().await;
    let line = String::from_utf8(watch.line().await.unwrap().unwrap()).unwrap();
    assert!(
        line.ends_with(&format!(
            "\"metadata\":{{\"resourceVersion\":\"{rv}\",\"creationTimestamp\":null}}}}}}"
        )),
        "{line}"
    );
}
