//! Tests of what a reflector does when another cluster, or an API server that lags, answers.

use std::sync::atomic::Ordering;

use super::*;

fn break_watch(rig: &Rig, feed: &Feed) {
    rig.script.connections.fetch_add(1, Ordering::Relaxed);
    feed.fail(UpstreamError::Lost("reset".to_owned()));
}

async fn identified(cluster: &str) -> (Rig, Feed) {
    let rig = Rig::new();
    *rig.script.cluster.lock() = Some(cluster.to_owned());
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("a", 9), bookmark(10, true)]);
    rig.reaches(10).await;
    (rig, feed)
}

/// Its resourceVersions are higher, so that they show nothing.
#[tokio::test(start_paused = true)]
async fn events_of_another_cluster_are_never_applied() {
    let (rig, feed) = identified("a").await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    *rig.script.cluster.lock() = Some("b".to_owned());
    rig.script.on_probe(5000);
    let poisoned = rig.script.on_watch();
    poisoned.send(vec![upsert("poison", 4000)]);
    break_watch(&rig, &feed);
    eventually("the cache to be dropped", || rig.held().is_none()).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Ended(_)));
    let relisted = rig.script.on_watch();
    relisted.send(vec![upsert("other", 4900), bookmark(5000, true)]);
    rig.reaches(5000).await;
    assert_eq!(rig.names(), ["other"]);
    assert_eq!(rig.cached.context.history.generation(), 1);
    // A client's resourceVersion of the lost history is too old.
    let lost = WatchStart::After(ResourceVersion(10));
    rig.cached.watch_cache.watch(WatchFilter::default(), lost).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_asks_for_the_cluster_once() {
    let (rig, feed) = identified("a").await;
    let asked = rig.script.cluster_requests.load(Ordering::Relaxed);
    rig.script.on_probe(10);
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 11)]);
    break_watch(&rig, &feed);
    rig.reaches(11).await;
    assert_eq!(rig.script.cluster_requests.load(Ordering::Relaxed), asked + 1);
    assert_eq!(rig.cached.context.history.generation(), 0);
}

/// The list came from the cluster, and the watch after it leads to another one.
#[tokio::test(start_paused = true)]
async fn the_first_watch_after_a_list_is_compared_too() {
    let rig = Rig::new();
    *rig.script.cluster.lock() = Some("a".to_owned());
    rig.cached.context.watch_list.set_unsupported();
    rig.cached.learned.learn_bookmark(
        br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1"}}"#,
    );
    rig.script.on_list(Ok(page(10, "", vec![object("a", 9)])));
    rig.reaches(10).await;
    *rig.script.cluster.lock() = Some("b".to_owned());
    rig.script.connections.fetch_add(1, Ordering::Relaxed);
    let poisoned = rig.script.on_watch();
    poisoned.send(vec![upsert("poison", 4000)]);
    eventually("the cache to be dropped", || rig.held().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn one_api_server_that_lags_is_no_rewind() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(4);
    *rig.script.elsewhere.lock() = Some(ResourceVersion(10));
    let unverified = rig.script.on_watch();
    unverified.send(vec![upsert("b", 11)]);
    break_watch(&rig, &feed);
    eventually("the probe", || rig.script.probes() == 1).await;
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 12)]);
    rig.script.on_probe(12);
    rig.reaches(12).await;
    assert_eq!(rig.cached.context.history.generation(), 0);
}

/// A proof of freshness showed a later state than the cache holds.
#[tokio::test(start_paused = true)]
async fn a_relist_is_not_older_than_what_a_client_was_shown() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.stream_lists();
    rig.cached.context.floors.raise(&rig.cached.key.gvr, ResourceVersion(15), 0);
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("b", 12), listed(12)]);
    *rig.script.elsewhere.lock() = Some(ResourceVersion(20));
    eventually("the list", || rig.script.lists.lock().len() == 1).await;
    assert_eq!(rig.script.lists.lock()[0].resource_version, Some(ResourceVersion(15)));
    let again = rig.script.on_watch();
    again.send(vec![upsert("b", 19), bookmark(20, true)]);
    rig.reaches(20).await;
    assert_eq!(rig.cached.context.history.generation(), 0, "an older list is refused");
}
