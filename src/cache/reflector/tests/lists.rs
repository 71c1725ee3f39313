//! Tests of how a reflector lists (by a watch-list, a streamed list, pages, or at an exact
//! resourceVersion), and of lists that fail.
//!
//! `on_watch`, `on_list` and `on_probe` queue the responses of a scripted upstream. `watches` and
//! `lists` are the requests that the upstream received.

use super::*;
use crate::cache::core::watch_cache::WatchRefusal;
use crate::cache::reflector::accumulator::ListAccumulator;
use crate::codec::ingest::Ingested;

#[tokio::test(start_paused = true)]
async fn a_watch_list_provides_the_state_and_continues_as_the_watch() {
    let rig = Rig::new();
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("a", 9)]);
    feed.send(vec![upsert("b", 7), bookmark(10, true), upsert("c", 11)]);
    rig.reaches(11).await;
    assert_eq!(rig.names(), ["a", "b", "c"]);
    let asked = rig.script.watches.lock().first().cloned().unwrap();
    assert!(asked.send_initial_events);
    assert_eq!(asked.resource_version, None);
    assert!((300..=600).contains(&asked.timeout_seconds));
    assert!(rig.cached.context.watch_list.is_supported());
    assert!(rig.cached.learned.has_bookmark());
    assert!(rig.script.lists.lock().is_empty());
    feed.send(vec![UpstreamEvent::Delete(object("a", 12)), bookmark(20, false)]);
    rig.reaches(20).await;
    assert_eq!(rig.names(), ["b", "c"]);
}

/// The cache of an older definition, say, may have stopped further ahead meanwhile.
#[tokio::test(start_paused = true)]
async fn a_list_that_was_on_its_way_while_the_floor_rose_is_not_shown_yet() {
    let rig = Rig::new();
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("a", 5)]);
    eventually("the list begins", || !rig.script.watches.lock().is_empty()).await;
    let floors = &rig.cached.context.floors;
    floors.raise(&rig.cached.key.gvr, ResourceVersion(15), 0);
    feed.send(vec![bookmark(10, true)]);
    rig.reaches(10).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!rig.cached.is_ready());
    floors.raise(&rig.cached.key.gvr, ResourceVersion(16), 0);
    feed.send(vec![upsert("b", 15)]);
    rig.reaches(15).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!rig.cached.is_ready());
    feed.send(vec![upsert("b", 16)]);
    eventually("it has come as far", || rig.cached.is_ready()).await;
}

/// The relist is requested as not older than the held state. The form of a bookmark is already
/// known, so no watch-list is requested for it.
#[tokio::test(start_paused = true)]
async fn a_streamed_relist_requests_not_older_than_and_no_bookmark() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.stream_lists();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("b", 19), listed(20)]);
    let feed = rig.script.on_watch();
    feed.send(vec![upsert("c", 21)]);
    rig.reaches(21).await;
    assert_eq!(rig.names(), ["b", "c"]);
    let asked = rig.script.lists.lock().first().cloned().unwrap();
    assert_eq!(asked.resource_version, Some(ResourceVersion(10)));
    assert_eq!(asked.resource_version_match, "NotOlderThan");
}

/// The cache keeps its state, and the next attempt is a watch-list, which no request time-out ends.
#[tokio::test(start_paused = true)]
async fn a_broken_streamed_list_keeps_the_state_and_a_watch_list_follows() {
    let (rig, feed) = Rig::established(context(config())).await;
    rig.script.stream_lists();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("b", 19)]);
    drop(list);
    eventually("the list", || rig.script.lists.lock().len() == 1).await;
    let again = rig.script.on_watch();
    eventually("the second watch", || rig.script.watches.lock().len() == 2).await;
    assert_eq!((rig.held(), rig.names()), (Some(10), vec!["a".to_owned()]));
    assert!(rig.script.watches.lock().last().unwrap().send_initial_events);
    again.send(vec![upsert("c", 19), bookmark(20, true)]);
    rig.reaches(20).await;
    assert_eq!(rig.names(), ["c"]);
    // The next list is streamed again.
    again.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("d", 29), listed(30)]);
    rig.reaches(30).await;
    assert_eq!(rig.script.lists.lock().len(), 2);
}

/// Otherwise the list would be older than the cache when it arrives, and be repeated. Between two
/// lists proofs count.
#[tokio::test(start_paused = true)]
async fn no_proof_moves_the_cache_while_it_is_listed() {
    let (rig, feed) = Rig::established(context(config())).await;
    let prove = |at| {
        let generation = rig.cached.writer.generation();
        rig.cached.apply_progress(generation, ResourceVersion(at))
    };
    let broken = rig.script.on_watch();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    eventually("the second watch", || rig.script.watches.lock().len() == 2).await;
    assert!(!prove(20));
    assert_eq!(rig.held(), Some(10));
    broken.fail(UpstreamError::Lost("reset".to_owned()));
    eventually("the end of the list", || prove(20)).await;
    let list = rig.script.on_watch();
    eventually("the third watch", || rig.script.watches.lock().len() == 3).await;
    let asked = rig.script.watches.lock().last().cloned().unwrap();
    assert_eq!(asked.resource_version, Some(ResourceVersion(20)));
    assert!(!prove(30));
    list.send(vec![upsert("a", 9), upsert("b", 19), bookmark(25, true)]);
    rig.reaches(25).await;
    assert_eq!(rig.names(), ["a", "b"]);
    assert!(prove(40));
    rig.reaches(40).await;
    assert_eq!(rig.script.watches.lock().len(), 3, "no list was repeated");
    assert_eq!(rig.cached.context.history.highest_lost(), None, "no rewind is reported");
}

#[tokio::test(start_paused = true)]
async fn without_watch_lists_it_reads_pages() {
    let rig = Rig::new();
    rig.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    rig.script.on_list(Ok(page(10, "next", vec![object("a", 3), object("b", 9)])));
    rig.script.on_list(Ok(page(10, "", vec![object("c", 5)])));
    rig.script.on_probe(10);
    let feed = rig.script.on_watch();
    rig.reaches(10).await;
    assert_eq!(rig.names(), ["a", "b", "c"]);
    assert!(!rig.cached.context.watch_list.is_worth_trying());
    eventually("the second watch", || rig.script.watches.lock().len() == 2).await;
    let asked = rig.script.watches.lock().last().cloned().unwrap();
    assert_eq!(asked.resource_version, Some(ResourceVersion(10)));
    assert!(!asked.send_initial_events);
    assert!(asked.timeout_seconds >= 300);
    feed.send(vec![bookmark(11, false)]);
    rig.reaches(11).await;
    let lists = rig.script.lists.lock().clone();
    let pages: Vec<_> = lists.iter().filter(|list| list.limit == Some(2)).collect();
    let [first, second] = pages.as_slice() else { panic!("{pages:?}") };
    assert_eq!((first.resource_version, first.resource_version_match), (None, ""));
    assert_eq!(second.continue_token, "next");
}

#[tokio::test(start_paused = true)]
async fn a_broken_relist_leaves_the_old_state() {
    let (rig, feed) = Rig::established(context(config())).await;
    let mut watcher =
        rig.cached.watch_cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let broken = rig.script.on_watch();
    broken.send(vec![upsert("x", 15)]);
    feed.send(vec![upsert("b", 12), UpstreamEvent::Error(status(410, "too old"))]);
    eventually("the second watch", || rig.script.watches.lock().len() == 2).await;
    broken.fail(UpstreamError::Lost("reset".to_owned()));
    eventually("the third watch", || rig.script.watches.lock().len() == 3).await;
    assert_eq!(rig.held(), Some(12));
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 1, .. }));
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Idle));
    let again = rig.script.on_watch();
    again.send(vec![upsert("y", 19), bookmark(20, true)]);
    rig.reaches(20).await;
    assert_eq!(rig.names(), ["y"]);
    // Three events: `a` and `b` were deleted, and `y` was added.
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 3, .. }));
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Idle));
    assert!(watcher.take_bookmark_due());
    for asked in rig.script.watches.lock().iter().skip(1) {
        assert!(asked.send_initial_events);
        assert_eq!(asked.resource_version, Some(ResourceVersion(12)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_pages_is_repeated_without_pages() {
    let rig = Rig::new();
    rig.script.on_watch_fail(status(400, "unknown"));
    rig.script.on_list(Ok(page(10, "next", vec![object("a", 3)])));
    rig.script.on_list(Err(status(410, "continue")));
    rig.script.on_list(Ok(page(30, "", vec![object("b", 29)])));
    rig.reaches(30).await;
    assert_eq!(rig.names(), ["b"]);
    assert_eq!(rig.script.lists.lock().get(2).unwrap().limit, None);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_list_is_replaced_by_pages() {
    let rig = Rig::new();
    let _silent = [rig.script.on_watch(), rig.script.on_watch()];
    rig.script.on_list(Ok(page(10, "", vec![object("a", 3)])));
    rig.reaches(10).await;
    assert!(!rig.cached.context.watch_list.is_worth_trying());
}

#[tokio::test(start_paused = true)]
async fn the_first_list_is_at_the_requested_resource_version() {
    let context = context(config());
    context.watch_list.set_supported(Some(false));
    let rig = Rig::with(context, Some(5));
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.script.on_probe(8);
    let feed = rig.script.on_watch();
    rig.reaches(5).await;
    let exact = rig.script.lists.lock().first().cloned().unwrap();
    assert_eq!(exact.resource_version, Some(ResourceVersion(5)));
    assert_eq!(exact.resource_version_match, "Exact");
    let after = WatchStart::After(ResourceVersion(5));
    let mut watcher = rig.cached.watch_cache.watch(WatchFilter::default(), after).unwrap();
    feed.send(vec![upsert("b", 8)]);
    rig.reaches(8).await;
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Frames { events: 1, .. }));
}

/// Pages would be hundreds of requests for a large collection, after each crash of Weir.
#[tokio::test(start_paused = true)]
async fn the_list_at_a_requested_resource_version_is_one_request_where_lists_are_streamed() {
    let context = context(config());
    context.watch_list.set_supported(Some(false));
    let rig = Rig::with(context, Some(5));
    rig.script.stream_lists();
    let _watch = rig.script.on_watch();
    let list = rig.script.on_watch();
    list.send(vec![upsert("a", 3), listed(5)]);
    rig.script.on_probe(8);
    rig.reaches(5).await;
    let lists = rig.script.lists.lock().clone();
    let asked: Vec<_> =
        lists.iter().map(|list| (list.limit, list.resource_version_match)).collect();
    assert_eq!(asked.first(), Some(&(None, "Exact")));
    assert!(asked.iter().skip(1).all(|(limit, _)| *limit == Some(1)), "{asked:?}");
}

/// Nobody has asked how far it must come, so that only a consistent list opens it.
#[tokio::test(start_paused = true)]
async fn a_cache_that_began_in_the_past_opens_when_it_lists_after_a_410() {
    let context = context(config());
    context.watch_list.set_supported(Some(false));
    let rig = Rig::with(context, Some(5));
    rig.cached.gate.begin_in_the_past();
    let first = rig.script.on_watch();
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.script.on_probe(8);
    rig.reaches(5).await;
    first.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let feed = rig.script.on_watch();
    feed.send(vec![bookmark(50, true)]);
    rig.reaches(50).await;
    eventually("it answers all reads", || !rig.cached.gate.is_behind()).await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_exact_list_falls_back_to_a_watch_list() {
    let context = context(config());
    context.watch_list.set_supported(Some(false));
    let rig = Rig::with(context, Some(5));
    let _open = rig.script.on_watch();
    rig.script.on_list(Err(status(410, "too old")));
    let feed = rig.script.on_watch();
    feed.send(vec![bookmark(50, true)]);
    rig.reaches(50).await;
    assert!(rig.script.watches.lock().last().unwrap().send_initial_events);
}

/// Else the relist after the 410 would refuse every watcher from before it.
#[tokio::test(start_paused = true)]
async fn a_state_without_the_events_after_it_is_no_beginning() {
    let context = context(config());
    context.watch_list.set_supported(Some(false));
    let rig = Rig::with(context, Some(5));
    let lost = rig.script.on_watch();
    lost.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    rig.script.on_list(Ok(page(5, "", vec![object("a", 3)])));
    rig.script.on_watch_at(50);
    eventually("a state", || rig.held().is_some()).await;
    assert_eq!(rig.held(), Some(50));
    let after = WatchStart::After(ResourceVersion(20));
    let refused = rig.cached.watch_cache.watch(WatchFilter::default(), after).err();
    assert!(matches!(refused, Some(WatchRefusal::Expired { began_after: true, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_list_over_budget_is_aborted_while_it_is_read() {
    let context = context(CacheConfig { resource_bytes_max: 1000, ..config() });
    let rig = Rig::with(context.clone(), None);
    let feed = rig.script.on_watch();
    feed.send((0..100).map(|n| upsert(&n.to_string(), 9)).collect());
    assert_eq!(rig.task.await.unwrap(), Refusal::OverBudget);
    assert_eq!(context.budget.used(), 0);
    assert!(rig.cached.watch_cache.state().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_larger_than_the_budget_ends_the_reflector() {
    let rig = Rig::new();
    rig.script.on_watch_fail(status(422, "sendInitialEvents is forbidden"));
    rig.script.on_list(Err(UpstreamError::TooLong(1000)));
    assert_eq!(rig.task.await.unwrap(), Refusal::OverBudget);
}

/// Another Weir that keeps its streams through a relist sends what is gone as DELETED at the
/// resourceVersion that its cache held before.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_not_newer_than_the_held_state_leads_to_a_list() {
    let (rig, feed) = Rig::established(context(config())).await;
    let _list = rig.script.on_watch_at(12);
    feed.send(vec![UpstreamEvent::Delete(object("a", 10))]);
    rig.reaches(12).await;
    assert_eq!(rig.names(), Vec::<String>::new());
}

/// An upstream may answer every watch with 410, for example if its history is very short.
#[tokio::test(start_paused = true)]
async fn a_relist_after_410_backs_off() {
    let (rig, mut feed) = Rig::established(context(config())).await;
    let mut waits = Vec::new();
    for at in 11..15 {
        let began = Instant::now();
        let asked = rig.script.watches.lock().len();
        feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
        eventually("the next list", || rig.script.watches.lock().len() > asked).await;
        waits.push(began.elapsed());
        feed = rig.script.on_watch();
        feed.send(vec![bookmark(at, true)]);
        rig.reaches(at).await;
    }
    assert!(waits[0] < Duration::from_millis(100), "the first list follows at once");
    for (wait, base) in waits[1..].iter().zip([1600, 3200, 6400]) {
        assert!(*wait >= Duration::from_millis(base), "{waits:?}");
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let asked = rig.script.watches.lock().len();
    let began = Instant::now();
    feed.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    eventually("the list after a quiet time", || rig.script.watches.lock().len() > asked).await;
    assert!(began.elapsed() < Duration::from_millis(100));
}

/// A watch of metadata ends without a word at an object that the API server cannot convert.
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_their_start_lead_to_a_list() {
    let (rig, feed) = Rig::established(context(config())).await;
    drop(feed);
    for _ in 0..4 {
        drop(rig.script.on_watch());
        rig.script.on_probe(10);
    }
    let list = rig.script.on_watch();
    list.send(vec![bookmark(14, true)]);
    rig.reaches(14).await;
}

/// Two slow answers must not cost watch-lists for ever.
#[tokio::test(start_paused = true)]
async fn watch_lists_are_tried_again_after_slow_answers() {
    let rig = Rig::new();
    let _silent = [rig.script.on_watch(), rig.script.on_watch()];
    rig.script.on_list(Ok(page(10, "", vec![object("a", 3)])));
    rig.script.on_probe(10);
    rig.reaches(10).await;
    assert_eq!(rig.cached.context.watch_list.last_answer(), Some(false));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let expired = rig.script.on_watch();
    expired.send(vec![UpstreamEvent::Error(status(410, "too old"))]);
    let list = rig.script.on_watch();
    list.send(vec![upsert("a", 19), bookmark(20, true)]);
    rig.reaches(20).await;
    assert!(rig.script.watches.lock().last().unwrap().send_initial_events);
    assert!(rig.cached.context.watch_list.is_supported());
}

/// A list of what has hardly changed takes hardly any memory: equal objects are those of the cache.
#[tokio::test(start_paused = true)]
async fn a_list_shares_what_the_cache_holds() {
    let (rig, _feed) = Rig::established(context(config())).await;
    let held = rig.cached.watch_cache.state().unwrap();
    let held = held.store().iter().next().unwrap();
    let before = rig.cached.context.budget.used();
    let mut list = ListAccumulator::new(&rig.cached);
    list.push(Ingested::Object(object("a", 9))).unwrap();
    assert_eq!(rig.cached.context.budget.used(), before);
    list.push(Ingested::Object(object("b", 11))).unwrap();
    assert!(rig.cached.context.budget.used() > before);
    let listed = list.take();
    assert!(Arc::ptr_eq(listed.objects.first().unwrap(), held));
    drop(list);
    assert_eq!(rig.cached.context.budget.used(), before);
}
