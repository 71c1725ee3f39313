//! Events that come twice, too late, or many at once.

use super::*;
use crate::cache::reflector::watch::APPLY_MAX;

/// Nobody waits for all of them.
#[tokio::test(start_paused = true)]
async fn many_events_at_once_are_applied_in_parts_before_the_error_after_them() {
    let config = CacheConfig { resource_bytes_max: 1 << 30, ..config() };
    let (rig, feed) = Rig::established(context(config)).await;
    let mut progress = rig.cached.watch_cache.progress();
    progress.mark_unchanged();
    let most = APPLY_MAX as u64;
    let mut events: Vec<_> = (11..=10 + 2 * most).map(|at| upsert("b", at)).collect();
    events.push(UpstreamEvent::Error(status(410, "too old")));
    let next = rig.script.on_watch();
    feed.send(events);
    for at in [10 + most, 10 + 2 * most] {
        progress.changed().await.unwrap();
        assert_eq!(*progress.borrow_and_update(), Some(ResourceVersion(at)));
    }
    let at = 20 + 2 * most;
    next.send(vec![upsert("a", 9), bookmark(at, true)]);
    rig.reaches(at).await;
    assert!(!feed.is_held() && rig.names() == ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_doubled_event_changes_nothing() {
    let (rig, feed) = Rig::established(context(config())).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    feed.send(vec![upsert("b", 11), upsert("b", 11)]);
    feed.send(vec![upsert("b", 11), upsert("c", 12)]);
    rig.reaches(12).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 2, .. }));
    assert!(feed.is_held() && !rig.cached.findings.is_suspected());
}

/// The second one comes before the first is applied.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_doubled_in_one_read_costs_no_list() {
    let (rig, feed) = Rig::established(context(config())).await;
    feed.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    let delete = || UpstreamEvent::Delete(object("b", 12));
    feed.send(vec![delete(), delete(), upsert("c", 13)]);
    rig.reaches(13).await;
    assert!(feed.is_held() && !rig.cached.findings.is_suspected());
    assert_eq!(rig.names(), ["a", "c"]);
}

/// The cache ignores it, as it does after a list, and has its pages compared.
#[tokio::test(start_paused = true)]
async fn an_event_after_a_newer_one_is_suspect() {
    let (rig, feed) = Rig::established(context(config())).await;
    feed.send(vec![upsert("b", 12)]);
    rig.reaches(12).await;
    assert!(!rig.cached.findings.is_suspected());
    feed.send(vec![upsert("c", 11), upsert("d", 13)]);
    rig.reaches(13).await;
    assert!(rig.cached.findings.is_suspected() && feed.is_held());
    assert_eq!(rig.names(), ["a", "b", "d"]);
}

/// Another Weir sends so what is gone after a relist. The events between show nothing of that.
#[tokio::test(start_paused = true)]
async fn a_second_deletion_at_one_resource_version_costs_a_list() {
    let (rig, feed) = Rig::established(context(config())).await;
    feed.send(vec![upsert("b", 11), upsert("c", 12)]);
    rig.reaches(12).await;
    let delete = |name| UpstreamEvent::Delete(object(name, 13));
    feed.send(vec![delete("b"), delete("c")]);
    let next = rig.script.on_watch();
    next.send(vec![upsert("a", 9), bookmark(14, true)]);
    rig.reaches(14).await;
    assert_eq!(rig.names(), ["a"]);
}
