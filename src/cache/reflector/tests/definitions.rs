//! Tests that a cache never keeps the bytes of an old definition of a custom resource.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_broken_watch_of_a_custom_resource_is_checked_for_a_changed_definition() {
    let (rig, feed) = Rig::established_with(widgets(), context(config())).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    rig.script.on_probe(40);
    tokio::time::sleep(Duration::from_secs(60)).await;

    // The bytes are unchanged, so no event is lost. No event is applied before the check is
    // complete.
    let same = rig.script.on_watch();
    same.send(vec![upsert("a", 15), upsert("a", 20)]);
    drop(feed);
    eventually("the second list", || rig.script.lists.lock().len() == 2).await;
    assert_eq!(rig.held(), Some(10));
    let exact = rig.script.lists.lock()[1].clone();
    assert_eq!(exact.resource_version_match, "Exact");
    assert_eq!(exact.resource_version, Some(ResourceVersion(10)));
    rig.script.on_list(Ok(page(10, "", vec![object("a", 9)])));
    rig.reaches(20).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 2, .. }));

    // The bytes differ under the same resourceVersion. This time the watch ends with an error.
    let dropped = rig.script.on_watch();
    rig.script.on_list(Ok(page(20, "", vec![rewritten(object("a", 20))])));
    let other = rig.script.on_watch();
    other.send(vec![UpstreamEvent::Upsert(rewritten(object("a", 20))), bookmark(30, true)]);
    same.fail(UpstreamError::Lost("reset".to_owned()));
    rig.reaches(30).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Ended(EndCause::Relist)));
    assert!(!dropped.is_held());
    let old = WatchStart::After(ResourceVersion(20));
    rig.cached.watch_cache.watch(WatchFilter::default(), old).unwrap_err();
    let asked: Vec<_> =
        rig.script.watches.lock().iter().map(|asked| asked.send_initial_events).collect();
    assert_eq!(asked, [true, false, false, true]);

    // A watch that ends at its own time-out is resumed, as for other resources.
    let lists = rig.script.lists.lock().len();
    let timeout_seconds = rig.script.watches.lock()[3].timeout_seconds;
    tokio::time::sleep(Duration::from_secs(timeout_seconds.into())).await;
    let resumed = rig.script.on_watch();
    resumed.send(vec![upsert("a", 35)]);
    drop(other);
    rig.reaches(35).await;
    assert_eq!(rig.script.lists.lock().len(), lists + 1, "a probe");
}
