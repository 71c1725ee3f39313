//! Tests of what a reflector does when another cluster, or an API server that lags, answers.

use std::sync::atomic::Ordering;

use super::*;
use crate::cache::proof;

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

/// Breaks the watch of an established reflector until it waits for long.
async fn backs_off(rig: &Rig, feed: &Feed, failure: UpstreamError) {
    rig.script.on_probe(10);
    rig.script.refuse(None, Some(failure));
    break_watch(rig, feed);
    eventually("some attempts", || rig.script.watches.lock().len() >= 6).await;
}

async fn a_proof_below_ends_the_wait_after(failure: UpstreamError) {
    let (rig, feed) = Rig::established(context(config())).await;
    backs_off(&rig, &feed, failure).await;
    rig.script.refuse(None, None);
    rig.script.on_probe(4);
    let silent = rig.script.on_watch();
    let begin = Instant::now();
    proof::fresh_state(&rig.cached, None, Duration::from_secs(1)).await.unwrap_err();
    eventually("the cache to be dropped", || rig.held().is_none()).await;
    assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
    drop(silent);
}

/// A proof of freshness finds that etcd was restored while the reflector waits.
#[tokio::test(start_paused = true)]
async fn a_proof_below_the_held_state_ends_a_back_off() {
    a_proof_below_ends_the_wait_after(UpstreamError::Lost("reset".to_owned())).await;
}

/// An API server that starts refuses the watch before it has read the roles. Etcd was restored
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_proof_below_the_held_state_ends_the_wait_after_a_refusal() {
    a_proof_below_ends_the_wait_after(status(403, "starting")).await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_answers_proofs_ends_a_back_off() {
    let (rig, feed) = Rig::established(context(config())).await;
    backs_off(&rig, &feed, UpstreamError::Lost("reset".to_owned())).await;
    rig.script.refuse(None, None);
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 11)]);
    let begin = Instant::now();
    proof::probe(&rig.cached).await.unwrap();
    rig.reaches(11).await;
    assert!(begin.elapsed() < Duration::from_millis(1100), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_upstream_asked_for_does_not_end_early() {
    let (rig, feed) = Rig::established(context(config())).await;
    backs_off(&rig, &feed, UpstreamError::Lost("reset".to_owned())).await;
    let mut busy = status(429, "busy");
    if let UpstreamError::Status { retry_after, .. } = &mut busy {
        *retry_after = Some(Duration::from_secs(20));
    }
    rig.script.refuse(None, Some(busy));
    let refused = rig.script.watches.lock().len() + 1;
    eventually("the refused watch", || rig.script.watches.lock().len() == refused).await;
    rig.script.refuse(None, None);
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 11)]);
    let begin = Instant::now();
    while rig.held() != Some(11) {
        proof::probe(&rig.cached).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(22), "{took:?}");
}

/// The API server may refuse the first list for a moment, as while it starts.
#[tokio::test(start_paused = true)]
async fn a_rewind_resets_the_back_off() {
    let (rig, feed) = Rig::established(context(config())).await;
    backs_off(&rig, &feed, UpstreamError::Lost("reset".to_owned())).await;
    let begin = Instant::now();
    rig.script.refuse(Some(status(429, "starting")), Some(status(429, "starting")));
    rig.cached.context.history.rewind();
    let asked = rig.script.watches.lock().len() + 1;
    eventually("the refused list", || rig.script.watches.lock().len() == asked).await;
    rig.script.refuse(None, None);
    let _listed = rig.script.on_watch_at(4);
    rig.reaches(4).await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// A watch from a resourceVersion in the future of its API server is silent.
#[tokio::test(start_paused = true)]
async fn a_watch_leaves_an_api_server_that_lags_and_nothing_of_it_is_applied() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(20);
    rig.script.reached.lock().extend([false, false]);
    let lagging = [rig.script.on_watch(), rig.script.on_watch()];
    for feed in &lagging {
        feed.send(vec![upsert("b", 11)]);
    }
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 12)]);
    let broken = Instant::now();
    break_watch(&rig, &feed);
    rig.reaches(12).await;
    assert!(broken.elapsed() < Duration::from_secs(2), "only the break itself backs off");
    assert_eq!(rig.script.moves.load(Ordering::Relaxed), 2);
    assert!(lagging.iter().all(|feed| !feed.is_held()));
    let watches = rig.script.watches.lock();
    let from = watches.iter().rev().take(3).map(|watch| watch.resource_version);
    assert!(from.eq([Some(ResourceVersion(10)); 3]), "all resume at the held state");
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_while_all_api_servers_lag() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.on_probe(20);
    rig.script.reached.lock().extend([false; 4]);
    let lagging: Vec<_> = (0..4).map(|_| rig.script.on_watch()).collect();
    let next = rig.script.on_watch();
    next.send(vec![upsert("b", 12)]);
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let started = Instant::now();
    break_watch(&rig, &feed);
    rig.reaches(12).await;
    assert!(started.elapsed() >= Duration::from_millis(1600), "two back-offs");
    assert!(lagging.iter().all(|feed| !feed.is_held()));
    assert!(!matches!(watcher.next_batch(1 << 20), Batch::Ended(_)), "no client is ended");
    assert_eq!(rig.cached.context.history.generation(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_leaves_an_api_server_that_has_not_reached_the_floor() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.stream_lists();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    rig.script.on_watch_fail(status(504, "Timeout: Too large resource version: 10, current: 4"));
    let list = rig.script.on_watch();
    list.send(vec![upsert("b", 12), listed(12)]);
    rig.reaches(12).await;
    assert_eq!(rig.script.moves.load(Ordering::Relaxed), 1);
    assert_eq!(rig.script.lists.lock()[1].resource_version, Some(ResourceVersion(10)));
    assert_eq!(rig.cached.context.history.generation(), 0);
}

/// A list, and a resumed watch, of what an aggregated API server has taken over. Its
/// resourceVersions are its own, so that they show no rewind either.
#[tokio::test(start_paused = true)]
async fn nothing_of_an_aggregated_api_server_counts() {
    let rig = Rig::new();
    rig.script.is_aggregated.store(true, Ordering::Relaxed);
    rig.script.keep(rig.script.on_watch());
    let list = rig.script.on_watch();
    list.send(vec![upsert("secret", 9), bookmark(10, true)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.held(), None);

    let (rig, feed) = identified("a").await;
    for probed in [3, 5000] {
        rig.script.on_probe(probed);
        rig.script.is_aggregated.store(true, Ordering::Relaxed);
        let next = rig.script.on_watch();
        next.send(vec![upsert("secret", 11)]);
        rig.script.keep(next);
    }
    break_watch(&rig, &feed);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((rig.held(), rig.names()), (Some(10), vec!["a".to_owned()]));
    assert_eq!(rig.cached.context.history.generation(), 0);
}
