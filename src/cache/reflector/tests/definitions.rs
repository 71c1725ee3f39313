//! Tests that a cache never keeps the bytes of an old definition of a custom resource.

use super::*;
use crate::codec::object::Object;

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
    rig.script.on_list(Ok(page(20, "", vec![rewritten(&object("a", 20))])));
    let other = rig.script.on_watch();
    other.send(vec![UpstreamEvent::Upsert(rewritten(&object("a", 20))), bookmark(30, true)]);
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

/// Returns a cache whose definition has just changed. It lists `a` at 10 in the old bytes, from an
/// instance that has not seen the change.
async fn redefined() -> (Rig, Feed) {
    let options = StartOptions { is_redefined: true, ..StartOptions::default() };
    let context = context(config());
    context.watch_list.set_supported(Some(false));
    let rig = Rig::with_options(widgets(), context, options);
    rig.script.stream_lists();
    rig.script.on_probe(20);
    let list = rig.script.on_watch();
    list.send(vec![upsert("a", 9), listed(10)]);
    rig.script.keep(list);
    let watch = rig.script.on_watch();
    rig.reaches(10).await;
    (rig, watch)
}

/// Returns the lists of the exact state.
fn exact_lists(rig: &Rig) -> usize {
    rig.script.lists.lock().iter().filter(|list| list.resource_version_match == "Exact").count()
}

fn holds(rig: &Rig, expected: &Object) -> bool {
    let state = rig.cached.watch_cache.state().unwrap();
    state.get(&expected.key).is_some_and(|held| held.body() == expected.body())
}

#[tokio::test(start_paused = true)]
async fn the_first_watch_after_a_change_of_definition_verifies_bytes() {
    let (rig, first) = redefined().await;
    first.send(vec![upsert("b", 11)]);
    rig.script.on_list(Ok(page(10, "", vec![rewritten(&object("a", 9))])));
    let list = rig.script.on_watch();
    list.send(vec![UpstreamEvent::Upsert(rewritten(&object("a", 9))), listed(10)]);
    let second = rig.script.on_watch();
    rig.script.on_list(Ok(page(10, "", vec![rewritten(&object("a", 9))])));
    eventually("the new bytes", || holds(&rig, &rewritten(&object("a", 9)))).await;
    assert!(!first.is_held(), "its events do not follow the new list");
    second.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    assert_eq!((rig.names(), exact_lists(&rig)), (vec!["a".to_owned(), "b".to_owned()], 2));
}

/// The list, the watch and the first verification may all reach an instance that lags.
#[tokio::test(start_paused = true)]
async fn bytes_are_verified_again_when_every_instance_must_have_seen_the_change() {
    let (rig, watch) = redefined().await;
    rig.script.on_list(Ok(page(10, "", vec![object("a", 9)])));
    eventually("the first verification", || exact_lists(&rig) == 1).await;
    watch.send(vec![upsert("b", 11)]);
    rig.reaches(11).await;
    let began = Instant::now();
    let now = || vec![rewritten(&object("a", 9)), rewritten(&object("b", 11))];
    rig.script.on_list(Ok(page(11, "", now())));
    let list = rig.script.on_watch();
    list.send(now().into_iter().map(UpstreamEvent::Upsert).chain([listed(11)]).collect());
    let next = rig.script.on_watch();
    rig.script.on_list(Ok(page(11, "", now())));
    eventually("the new bytes", || holds(&rig, &rewritten(&object("a", 9)))).await;
    assert!(began.elapsed() >= Duration::from_secs(25));
    next.send(vec![upsert("c", 12)]);
    rig.reaches(12).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(exact_lists(&rig), 3, "and not again and again");
}

/// Instances of different versions may write different bytes for as long as they run side by side.
#[tokio::test(start_paused = true)]
async fn instances_that_disagree_for_long_do_not_cause_lists_for_ever() {
    let (rig, _watch) = redefined().await;
    for _ in 0..10 {
        rig.script.on_list(Ok(page(10, "", vec![rewritten(&object("a", 9))])));
        let list = rig.script.on_watch();
        list.send(vec![upsert("a", 9), listed(10)]);
        rig.script.keep(list);
        rig.script.keep(rig.script.on_watch());
    }
    let watching = rig.cached.lifecycle.watching();
    eventually("the cache follows the upstream", || *watching.borrow()).await;
    let lists = rig.script.lists.lock();
    assert_eq!(lists.iter().filter(|list| list.limit.is_none()).count(), 5);
}
