//! Tests of resources that go away and of definitions that change.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_resource_that_disappears_or_changes_retires_its_cache() {
    let rig = Rig::new(config(), many(&["gone", "changed", "same"], 1));
    let handles =
        [rig.ready("gone", "").await, rig.ready("changed", "").await, rig.ready("same", "").await]
            .map(Result::unwrap);
    let mut watcher = handles[0].cache().watch(WatchFilter::default(), WatchStart::Now).unwrap();
    {
        let mut resources = rig.source.resources.lock();
        resources.retain(|resource| &*resource.gvr.resource != "gone");
        for resource in
            resources.iter_mut().filter(|candidate| &*candidate.gvr.resource == "changed")
        {
            *resource = Arc::new(ApiResource { kind: "Other".into(), ..(**resource).clone() });
        }
    }
    rig.source.changes.send_modify(|changes| *changes += 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A watcher continues until the upstream ends its own watch, or until a time-out. A new request
    // gets the present definition.
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Idle));
    let kinds = rig
        .registry
        .inner
        .caches
        .to_vec()
        .into_iter()
        .map(|cached| cached.resource.kind.to_string());
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["Kind", "Other"], "a cache in use is replaced at once");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let ready = handles.each_ref().map(|handle| handle.cache().state().is_some());
    assert_eq!(ready, [false, false, true]);
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Ended(EndCause::Stopped)));
    assert_eq!(rig.ready("gone", "").await.unwrap_err(), Refusal::Unknown);
    assert_eq!(&*rig.ready("changed", "").await.unwrap().resource().kind, "Other");
}

/// Both have streams of their own, and that of the new one can be later.
#[tokio::test(start_paused = true)]
async fn a_successor_shows_nothing_older_than_the_retired_cache_shows_its_watchers() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let retired = rig.ready("configmaps", "").await.unwrap();
    let mut watcher = retired.cache().watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let successor = full(&script, 1);
    rig.source.resources.lock()[0] =
        Arc::new(ApiResource { kind: "Other".into(), ..config_maps() });
    rig.source.changes.send_modify(|changes| *changes += 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(&*rig.ready("configmaps", "").await.unwrap().resource().kind, "Other");

    feed.send(vec![upsert("new", 2000)]);
    let retired_version = || retired.cache().state().unwrap().resource_version();
    eventually("the event", || retired_version() == ResourceVersion(2000)).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 1, .. }));
    let event = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        successor.send(vec![upsert("new", 2000)]);
    };
    let (ready, ()) = tokio::join!(rig.ready("configmaps", ""), event);
    assert_eq!(ready.unwrap().cache().state().unwrap().resource_version(), ResourceVersion(2000));

    feed.send(vec![upsert("newer", 2001)]);
    eventually("the event", || retired_version() == ResourceVersion(2001)).await;
    feed.fail(UpstreamError::Lost("ended".to_owned()));
    eventually("it ends", || rig.registry.inner.caches.retired_len() == 0).await;
    let event = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        successor.send(vec![upsert("newer", 2001)]);
    };
    let (ready, ()) = tokio::join!(rig.ready("configmaps", ""), event);
    assert_eq!(ready.unwrap().cache().state().unwrap().resource_version(), ResourceVersion(2001));
}

/// A cache of a changed definition may list from an instance of the upstream that lags.
#[tokio::test(start_paused = true)]
async fn a_cache_of_a_changed_definition_verifies_its_bytes() {
    let script = Arc::new(Script::default());
    script.stream_lists();
    script.on_probe(10);
    // A cache stops before its first watch times out, so that it has one watch.
    let idle_timeout = Duration::from_secs(60);
    let rig = Rig::with(config(), Seams { idle_timeout, ..seams() }, one(&script));
    rig.registry.inner.context.watch_list.set_supported(Some(false));
    let exact_lists = || {
        let lists = script.lists.lock();
        lists.iter().filter(|list| list.resource_version_match == "Exact").count()
    };
    for (is_redefined, verifications) in [(false, 0), (true, 1)] {
        rig.source.is_redefined.store(is_redefined, std::sync::atomic::Ordering::Relaxed);
        let list = script.on_watch();
        list.send(vec![listed(10)]);
        script.keep(script.on_watch_at(10));
        let handle = rig.ready("configmaps", "").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(exact_lists(), verifications);
        drop(handle);
        tokio::time::sleep(2 * idle_timeout).await;
        assert_eq!(rig.registry.inner.caches.len(), 0);
    }
}

/// The list of the new one was computed before an event that the retired one has shown.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_on_its_way_is_not_shown_before_it_is_as_far_as_the_retired_cache() {
    let (script, rig) = scripted();
    let feed = full(&script, 1);
    let retired = rig.ready("configmaps", "").await.unwrap();
    let successor = script.on_watch();
    rig.source.resources.lock()[0] =
        Arc::new(ApiResource { kind: "Other".into(), ..config_maps() });
    rig.source.changes.send_modify(|changes| *changes += 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    feed.send(vec![upsert("new", 2000)]);
    let retired_version = || retired.cache().state().unwrap().resource_version();
    eventually("the event", || retired_version() == ResourceVersion(2000)).await;
    let events = async {
        successor.send(vec![upsert("1", 1), bookmark(objects_end(), true)]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        successor.send(vec![upsert("new", 2000)]);
    };
    let (ready, ()) = tokio::join!(rig.ready("configmaps", ""), events);
    assert_eq!(ready.unwrap().cache().state().unwrap().resource_version(), ResourceVersion(2000));
}

/// That server may answer each user differently, so that nothing that was received may be shown.
#[tokio::test(start_paused = true)]
async fn an_aggregated_server_that_takes_over_ends_caches_at_once() {
    let (script, rig) = scripted();
    let feed = full(&script, 3);
    let held = rig.ready("configmaps", "").await.unwrap();
    let state = held.newest_start();
    let mut watcher =
        held.cache().watch(WatchFilter::default(), WatchStart::InitialEvents).unwrap();
    let take_over = |is_aggregated: bool| {
        rig.source.is_aggregated.store(is_aggregated, std::sync::atomic::Ordering::Relaxed);
        rig.source.resources.lock()[0] =
            Arc::new(ApiResource { aggregated: is_aggregated, ..config_maps() });
        rig.source.changes.send_modify(|changes| *changes += 1);
    };
    take_over(true);
    eventually("the watch ends", || {
        matches!(watcher.next_batch(1 << 20), Batch::Ended(EndCause::Aggregated))
    })
    .await;
    eventually("the reflector ends", || !feed.is_held()).await;
    assert!(held.newest_state().is_none() && held.cache().is_closed());
    held.watch_from(WatchFilter::default(), &state).unwrap_err();
    assert_eq!(held.wait_until_ready(WAIT).await.unwrap_err(), Refusal::Aggregated);
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Aggregated);

    // A list that is on its way is ignored.
    take_over(false);
    let list = script.on_watch();
    let filling = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        take_over(true);
        list.send(vec![upsert("secret", 1), bookmark(objects_end(), true)]);
    };
    let (waiting, ()) = tokio::join!(rig.ready("configmaps", ""), filling);
    assert_eq!(waiting.unwrap_err(), Refusal::Aggregated);
    assert_eq!(rig.registry.inner.caches.len(), 0);

    // Its successor begins again, whatever was shown.
    take_over(false);
    let successor = script.on_watch();
    successor.send(vec![upsert("a", 1), bookmark(5, true)]);
    let next = rig.ready("configmaps", "").await.unwrap();
    assert_eq!(next.cache().state().unwrap().resource_version(), ResourceVersion(5));
}

#[tokio::test(start_paused = true)]
async fn a_lost_history_has_the_definitions_listed_again() {
    let rig = Rig::new(config(), many(&["configmaps"], 1));
    rig.ready("configmaps", "").await.unwrap();
    rig.registry.inner.context.history.rewind();
    let doubts = || rig.source.doubts.load(std::sync::atomic::Ordering::Relaxed);
    eventually("discovery lists again", || doubts() == 1).await;
}
