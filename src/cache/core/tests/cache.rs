//! Step-by-step tests of the watch cache.

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::api::selector::shard::ShardSelector;
use crate::cache::core::watch_cache::{Change, Discontinuity, WatchRefusal};
use crate::cache::core::watcher::{ObjectBatch, SCAN_MAX, WatchStart};
use crate::codec::gzip::segment_cache::SegmentCache;
use crate::codec::held_bytes::HeldBytes;

fn upsert(pod: &Pod) -> Change {
    Change::Upsert(pod.object())
}

fn delete(pod: &Pod) -> Change {
    Change::Delete(pod.object())
}

fn ready(pods: &[Pod], resource_version: u64) -> WatchCache {
    let cache = cache_of(100, 1000, 1 << 20);
    let objects: Vec<_> = pods.iter().map(Pod::object).collect();
    cache.replace(objects, ResourceVersion(resource_version));
    cache
}

fn everything() -> WatchFilter {
    WatchFilter::default()
}

#[test]
fn is_not_ready_before_a_list_and_after_invalidate() {
    let cache = cache_of(10, 10, 1000);
    let progress = cache.progress();
    let refused = |cache: &WatchCache| cache.watch(everything(), WatchStart::Now).unwrap_err();
    assert_eq!(refused(&cache), WatchRefusal::NotReady);
    cache.apply(vec![upsert(&Pod::new("ns1", "a", 5))], at(0));
    assert!(cache.state().is_none());
    cache.replace(Vec::new(), ResourceVersion(7));
    assert_eq!(*progress.borrow(), Some(ResourceVersion(7)));
    assert!(cache.state().unwrap().is_empty());
    cache.invalidate(EndCause::Stopped);
    assert_eq!(*progress.borrow(), None);
    assert_eq!(refused(&cache), WatchRefusal::NotReady);
}

#[test]
fn lists_in_key_order_by_namespace_and_name() {
    let pods =
        [("ns1", "b"), ("ns1-a", "a"), ("ns1", "a"), ("ns10", "a"), ("ns1.x", "b"), ("ns0", "z")]
            .map(|(namespace, name)| Pod::new(namespace, name, 3));
    let state = ready(&pods, 5).state().unwrap();
    let select = |filter: &WatchFilter| -> Vec<String> {
        state.select(filter).iter().map(|object| object.key.as_str().to_owned()).collect()
    };
    let keys = ["ns0/z", "ns1-a/a", "ns1.x/b", "ns1/a", "ns1/b", "ns10/a"];
    assert_eq!(select(&everything()), keys);
    assert_eq!(select(&in_namespace("ns1")), ["ns1/a", "ns1/b"]);
    assert_eq!(select(&in_namespace("ns")), [""; 0]);
    let named = WatchFilter { name: Some("a".into()), ..everything() };
    assert_eq!(select(&named), ["ns1-a/a", "ns1/a", "ns10/a"]);
    let one = WatchFilter { fields: fields("metadata.name=b"), ..in_namespace("ns1") };
    assert_eq!(select(&one), ["ns1/b"]);
    assert!(state.get(&Key::new("ns1", "b")).is_some());
    assert!(state.get(&Key::new("ns1", "c")).is_none());
}

#[test]
fn finds_cluster_scoped_objects_by_name() {
    let state = ready(&[Pod::new("", "a", 1), Pod::new("", "b", 2)], 5).state().unwrap();
    let named = |name: &str| WatchFilter { name: Some(name.into()), ..everything() };
    assert_eq!(state.select(&named("b")).len(), 1);
    assert_eq!(state.select(&named("c")).len(), 0);
    let empty_namespace = WatchFilter { namespace: Some("".into()), ..everything() };
    assert_eq!(state.select(&empty_namespace).len(), 2);
}

#[test]
fn events_become_added_or_deleted_when_an_object_starts_or_stops_matching() {
    let pod = Pod::new("ns1", "a", 0);
    let cache = ready(&[], 10);
    let mut watcher = cache.watch(by_app("a"), WatchStart::Now).unwrap();
    let changes = vec![
        upsert(&pod.at(11)),
        upsert(&pod.at(12)),
        upsert(&pod.at(13).app("b")),
        upsert(&pod.at(14).app("b")),
        upsert(&pod.at(15)),
        delete(&pod.at(16)),
    ];
    cache.apply(changes, at(0));
    let mut deliveries = Vec::new();
    assert_eq!(read_all(&mut watcher, &mut deliveries), Stop::Idle(16));
    let expected =
        [("ADDED", 11), ("MODIFIED", 12), ("DELETED", 13), ("ADDED", 15), ("DELETED", 16)]
            .map(|(event, at)| Delivery::Event(event.to_owned(), pod.at(at)));
    assert_eq!(deliveries, expected);
}

#[test]
fn a_watch_that_ended_keeps_no_object_before_its_client_reads() {
    let pod = Pod::new("ns1", "a", 9);
    let cache = ready(std::slice::from_ref(&pod), 10);
    let mut watcher = cache.watch(everything(), WatchStart::Now).unwrap();
    let held = Arc::downgrade(&cache.state().unwrap().get(&pod.object().key).unwrap());
    cache.replace(vec![pod.at(15).object()], ResourceVersion(20));
    assert!(held.upgrade().is_none());
    assert_eq!(drain(&mut watcher), (vec![], Stop::Ended(EndCause::Relist)));
}

#[test]
fn drops_changes_that_are_not_newer() {
    let pod = Pod::new("ns1", "a", 0);
    let cache = ready(&[], 10);
    let mut watcher = cache.watch(everything(), WatchStart::Now).unwrap();
    let progress = |at| Change::Progress(ResourceVersion(at));
    cache.apply(vec![upsert(&pod.at(10)), delete(&pod.at(9)), progress(10)], at(0));
    assert_eq!(drain(&mut watcher), (vec![], Stop::Idle(10)));
    cache.apply(vec![progress(13), upsert(&pod.at(12)), upsert(&pod.at(14))], at(0));
    assert_eq!(drain(&mut watcher), (vec!["ADDED ns1/a 14".to_owned()], Stop::Idle(14)));
    cache.apply(vec![delete(&Pod::new("ns1", "unknown", 15))], at(0));
    assert_eq!(drain(&mut watcher), (vec![], Stop::Idle(15)));
}

#[test]
fn delivers_initial_events_in_batches_and_their_end_once() {
    let pods: Vec<Pod> = (0..50).map(|n| Pod::new("ns1", &format!("p{n:02}"), n)).collect();
    let cache = ready(&pods, 100);
    let mut watcher = cache.watch(everything(), WatchStart::InitialEvents).unwrap();
    cache.apply(vec![delete(&Pod::new("ns1", "p07", 101))], at(0));
    let (mut deliveries, mut batches) = (Vec::new(), 0);
    while read_batch(&mut watcher, 600, &mut deliveries).is_none() {
        batches += 1;
    }
    assert!(batches > 10, "{batches}");
    assert_eq!(deliveries.len(), 52);
    let initial: Vec<Delivery> =
        pods.into_iter().map(|pod| Delivery::Event("ADDED".to_owned(), pod)).collect();
    assert_eq!(deliveries[..50], initial);
    assert_eq!(deliveries[50], Delivery::InitialEventsEnd(100));
    let mut empty = cache.watch(in_namespace("ns2"), WatchStart::InitialEvents).unwrap();
    assert_eq!(drain(&mut empty), (vec!["END 101".to_owned()], Stop::Idle(101)));
}

#[test]
fn a_watch_from_a_future_version_delivers_only_later_events() {
    let cache = ready(&[], 10);
    let mut watcher = cache.watch(everything(), WatchStart::After(ResourceVersion(12))).unwrap();
    cache.apply(vec![upsert(&Pod::new("ns1", "a", 12))], at(0));
    assert_eq!(drain(&mut watcher), (vec![], Stop::Idle(12)));
    cache.apply(vec![upsert(&Pod::new("ns1", "a", 13))], at(0));
    assert_eq!(drain(&mut watcher), (vec!["MODIFIED ns1/a 13".to_owned()], Stop::Idle(13)));
}

#[test]
fn a_replaced_state_ends_watchers_after_their_pending_events() {
    let cache = ready(&[Pod::new("ns1", "a", 3)], 10);
    let mut live = cache.watch(everything(), WatchStart::Now).unwrap();
    let mut initial = cache.watch(everything(), WatchStart::InitialEvents).unwrap();
    cache.apply(vec![upsert(&Pod::new("ns1", "b", 11))], at(0));
    cache.replace(Vec::new(), ResourceVersion(20));
    cache.apply(vec![upsert(&Pod::new("ns1", "c", 21))], at(0));
    let ended = Stop::Ended(EndCause::Relist);
    assert_eq!(drain(&mut live), (vec!["ADDED ns1/b 11".to_owned()], ended));
    let pending_events = ["ADDED ns1/a 3", "END 10", "ADDED ns1/b 11"].map(str::to_owned);
    assert_eq!(drain(&mut initial), (pending_events.to_vec(), ended));
    assert_eq!(drain(&mut initial), (vec![], ended));
    assert_eq!(cache.watchers(), 2);
    drop((live, initial));
    assert_eq!(cache.watchers(), 0);
}

#[test]
fn dropping_the_cache_ends_its_watchers() {
    let cache = ready(&[], 10);
    let mut watcher = cache.watch(everything(), WatchStart::Now).unwrap();
    cache.apply(vec![upsert(&Pod::new("ns1", "b", 11))], at(0));
    drop(cache);
    let ended = Stop::Ended(EndCause::Stopped);
    assert_eq!(drain(&mut watcher), (vec!["ADDED ns1/b 11".to_owned()], ended));
}

#[test]
fn an_initial_state_is_held_until_it_is_read_and_keeps_no_event() {
    let cache = cache_of(2, 2, 1 << 20);
    cache.replace(vec![Pod::new("ns1", "gone", 9).object()], ResourceVersion(10));
    cache.apply(vec![upsert(&Pod::new("ns1", "a", 11))], at(0));
    let state = cache.state().unwrap();
    let event = Arc::downgrade(state.history().events(0, u64::MAX).next().unwrap().1);
    let object = Arc::downgrade(&state.get(&Key::new("ns1", "gone")).unwrap());
    drop(state);
    let mut watcher = cache.watch(everything(), WatchStart::InitialEvents).unwrap();
    cache.apply(vec![delete(&Pod::new("ns1", "gone", 12))], at(0));
    for version in 13..16 {
        cache.apply(vec![upsert(&Pod::new("ns2", "b", version))], at(0));
    }
    assert!(event.upgrade().is_none(), "the evicted event is still held");
    assert!(object.upgrade().is_some());
    drain(&mut watcher);
    cache.keep_unread(0);
    cache.apply(vec![upsert(&Pod::new("ns2", "b", 16))], at(0));
    assert!(object.upgrade().is_none(), "the state is still held");
}

/// Events that a watcher does not want drop objects of its initial state too, which it holds: they
/// stay until it has read it, since it would else end although it missed nothing.
#[test]
fn an_initial_state_is_not_outrun_by_events_of_others() {
    let cache = cache_of(4, 4, 1 << 10);
    cache.replace(vec![Pod::new("ns1", "a", 1).object()], ResourceVersion(1));
    let mut watcher = cache.watch(in_namespace("ns1"), WatchStart::InitialEvents).unwrap();
    for version in 2..100 {
        cache.apply(vec![upsert(&Pod::new("ns2", "b", version))], at(0));
        cache.keep_unread(1 << 20);
    }
    let expected = vec!["ADDED ns1/a 1".to_owned(), "END 1".to_owned()];
    assert_eq!(drain(&mut watcher), (expected, Stop::Idle(99)));
}

/// A watcher that reads more slowly than the window moves has all events, as long as the history
/// stays within the bytes that it may have for that.
#[test]
fn events_that_a_watcher_has_still_to_read_stay() {
    let expected = |versions: std::ops::Range<u64>| -> Vec<String> {
        versions.map(|version| format!("MODIFIED ns1/a {version}")).collect()
    };
    for (bytes_max, gives_back, ended) in [
        (1 << 20, false, None),
        (1, false, Some(EndCause::Slow)),
        (1 << 20, true, Some(EndCause::Slow)),
    ] {
        let cache = cache_of(4, 4, 1 << 12);
        cache.replace(vec![Pod::new("ns1", "a", 1).object()], ResourceVersion(1));
        let mut watcher = cache.watch(everything(), WatchStart::InitialEvents).unwrap();
        let apply = |versions: std::ops::Range<u64>| {
            for version in versions {
                cache.apply(vec![upsert(&Pod::new("ns1", "a", version))], at(0));
            }
        };
        let len = || cache.state().unwrap().history().len();
        apply(2..5);
        assert_eq!(cache.keep_unread(bytes_max), 1);
        apply(5..1_000);
        if gives_back {
            cache.trim_history(1 << 10);
        }
        let (deliveries, stop) = drain(&mut watcher);
        if let Some(cause) = ended {
            assert_eq!(stop, Stop::Ended(cause));
            continue;
        }
        assert_eq!(deliveries.get(2..).unwrap(), expected(2..1_000));
        assert_eq!(stop, Stop::Idle(999));
        assert_eq!((cache.keep_unread(bytes_max), len()), (0, 998));
        // It shrinks step by step.
        apply(1_000..1_002);
        assert!((400..900).contains(&len()), "{}", len());
        apply(1_002..1_010);
        assert_eq!(len(), 4);
    }
}

#[tokio::test]
async fn wakes_only_watchers_that_an_event_may_match() {
    let cache = ready(&[Pod::new("ns1", "a", 3)], 10);
    let mut here = cache.watch(on_node("n1"), WatchStart::Now).unwrap();
    let there = cache.watch(on_node("n3"), WatchStart::Now).unwrap();
    let is_waiting =
        |watcher: &Watcher| futures::FutureExt::now_or_never(watcher.until_woken()).is_none();
    assert!(is_waiting(&here) && is_waiting(&there));
    cache.apply(vec![upsert(&Pod::new("ns1", "a", 11).node("n2"))], at(0));
    assert!(!is_waiting(&here), "an object left the selector");
    assert!(is_waiting(&there));
    assert_eq!(drain(&mut here), (vec!["DELETED ns1/a 11".to_owned()], Stop::Idle(11)));
    cache.apply(vec![Change::Progress(ResourceVersion(12))], at(0));
    assert!(is_waiting(&there));
    cache.invalidate(EndCause::Stopped);
    assert!(!is_waiting(&there) && !is_waiting(&here));
}

#[test]
fn a_batch_checks_a_limited_number_of_objects_or_events() {
    let count = 2 * SCAN_MAX as u64 + 1;
    let cache = cache_of(100_000, 100_000, usize::MAX);
    let pod = |n: u64| {
        let pod = Pod::new("ns1", &format!("p{n:06}"), n);
        if n == count { pod.app("last") } else { pod }
    };
    cache.replace((1..=count).map(|n| pod(n).object()).collect::<Vec<_>>(), ResourceVersion(count));
    let mut watcher = cache.watch(by_app("last"), WatchStart::InitialEvents).unwrap();
    let results = [(); 4].map(|()| read_short(&mut watcher));
    assert_eq!(results, ["yield", "yield", "1 events", "end"]);

    let changes = (1..=count).map(|n| upsert(&pod(n).at(count + n)));
    cache.apply(changes.collect(), at(1));
    let after = WatchStart::After(ResourceVersion(count));
    let mut watcher = cache.watch(by_app("last"), after).unwrap();
    let results = [(); 4].map(|()| read_short(&mut watcher));
    assert_eq!(results, ["yield", "yield", "1 events", "idle"]);
    assert_eq!(watcher.resource_version().0, 2 * count);
}

#[test]
fn a_batch_hashes_a_limited_number_of_uids() {
    let count = SCAN_MAX as u64 / 15;
    let cache = cache_of(1000, 100_000, usize::MAX);
    let pods = |from: u64| {
        (1..=count).map(move |n| Pod::new("ns1", &format!("p{n:06}"), from + n).uid("u"))
    };
    cache.replace(pods(0).map(|pod| pod.object()).collect::<Vec<_>>(), ResourceVersion(count));
    let text = "shardRange(object.metadata.uid,'0x0000000000000000','0x0000000000000001')";
    let shard = ShardSelector::parse(text).map(Arc::new);
    let filter = WatchFilter { shard, ..WatchFilter::default() };
    let read = |start, results: [&str; 2]| {
        let mut watcher = cache.watch(filter.clone(), start).unwrap();
        assert_eq!([(); 2].map(|()| read_short(&mut watcher)), results);
    };
    read(WatchStart::InitialEvents, ["yield", "end"]);
    read(WatchStart::InitialEvents, ["end", "idle"]);
    cache.apply(pods(count).map(|pod| upsert(&pod)).collect(), at(1));
    read(WatchStart::After(ResourceVersion(count)), ["yield", "idle"]);
    read(WatchStart::After(ResourceVersion(count)), ["idle", "idle"]);
}

fn read_short(watcher: &mut Watcher) -> String {
    match watcher.next_batch(1 << 20) {
        Batch::Frames { events, .. } | Batch::InitialEvents { events, .. } => {
            format!("{events} events")
        }
        Batch::Yield => "yield".to_owned(),
        Batch::InitialEventsEnd(_) => "end".to_owned(),
        Batch::Idle => "idle".to_owned(),
        Batch::Ended(cause) => format!("{cause:?}"),
    }
}

#[test]
fn watchers_with_more_than_half_of_the_window_to_read_are_behind() {
    let cache = cache_of(10, 10, 1 << 20);
    cache.replace(Vec::new(), ResourceVersion(1));
    let mut watcher = cache.watch(everything(), WatchStart::Now).unwrap();
    let elsewhere = cache.watch(in_namespace("ns2"), WatchStart::Now).unwrap();
    let mut apply = {
        let mut version = 1;
        let cache = &cache;
        move |events: usize| {
            for _ in 0..events {
                version += 1;
                cache.apply(vec![upsert(&Pod::new("ns1", "a", version))], at(0));
            }
        }
    };
    apply(5);
    assert_eq!(cache.keep_unread(0), 0);
    apply(1);
    assert_eq!(cache.keep_unread(0), 1);
    drain(&mut watcher);
    assert_eq!(cache.keep_unread(0), 0);
    drop(elsewhere);
}

#[test]
fn the_history_reaches_back_to_the_list_until_an_event_leaves_it() {
    let cache = cache_of(2, 2, 1 << 20);
    cache.replace(Vec::new(), ResourceVersion(1));
    let oldest = || cache.state().unwrap().history().oldest_received();
    for (version, expected) in [(2, None), (3, None), (4, Some(at(3))), (5, Some(at(4)))] {
        cache.apply(vec![upsert(&Pod::new("ns1", "a", version))], at(version));
        assert_eq!(oldest(), expected, "{version}");
    }
}

#[test]
fn a_closed_cache_ends_its_watchers_before_their_pending_events_and_takes_no_list() {
    let cache = ready(&[Pod::new("ns1", "a", 3)], 10);
    let mut live = cache.watch(everything(), WatchStart::Now).unwrap();
    let mut initial = cache.watch(everything(), WatchStart::InitialEvents).unwrap();
    let mut objects = cache.watch(everything(), WatchStart::Now).unwrap();
    let listed = cache.state().unwrap();
    cache.apply(vec![upsert(&Pod::new("ns1", "b", 11))], at(0));
    cache.close(EndCause::Aggregated);
    assert!(cache.is_closed());
    let ended = Stop::Ended(EndCause::Aggregated);
    assert_eq!(drain(&mut live), (vec![], ended));
    assert_eq!(drain(&mut initial), (vec![], ended));
    assert!(matches!(objects.next_objects(), ObjectBatch::Ended(EndCause::Aggregated)));
    assert!(!cache.replace(Vec::new(), ResourceVersion(20)));
    assert_eq!(cache.relist(Vec::new(), ResourceVersion(20), at(0)), Err(Discontinuity::Overtaken));
    cache.apply(vec![upsert(&Pod::new("ns1", "c", 21))], at(0));
    assert!(cache.state().is_none());
    cache.watch_from(everything(), &listed).unwrap_err();
}

#[test]
fn compressed_watches_share_their_bytes() {
    let long = |number: u64| {
        let node = format!("node-{}", "x".repeat(2_000));
        Pod::new("ns1", &format!("pod-{number:03}"), number).node(&node)
    };
    let pods: Vec<_> = (1..=200).map(long).collect();
    let cache = ready(&pods, 200);
    let segments = SegmentCache::new(1 << 20, HeldBytes::new(1 << 20));
    let watch = |compressed: bool| {
        let watcher = cache.watch(everything(), WatchStart::InitialEvents).unwrap();
        if compressed { watcher.compressed_by(segments.clone()) } else { watcher }
    };
    let mut watchers = [watch(true), watch(true), watch(false)];
    let changed = long(1).at(201).app("b");
    cache.apply(vec![upsert(&changed), delete(&long(2).at(202))], at(1));
    let [one, other, plain] = watchers.each_mut().map(all_pieces);
    let compressed: Vec<_> = one.concat();
    assert_eq!(unzipped(&compressed), plain.concat());
    assert!(compressed.len() * 10 < plain.concat().len());
    let shared = one.iter().zip(&other).filter(|(one, other)| one.as_ptr() == other.as_ptr());
    assert!(shared.count() * 2 >= one.len(), "segments and frames, and the header of a member");
    assert!(segments.totals().0 >= 2, "several runs");
    // Go waits for the next member where the last block is not empty, or follows no flush.
    let is_last_block = |piece: &Bytes| piece.starts_with(&[1, 0, 0, 0xff, 0xff]);
    let mut ends = one.windows(2).filter(|pair| is_last_block(&pair[1])).peekable();
    assert!(ends.peek().is_some() && ends.all(|pair| pair[0].ends_with(&[0, 0, 0xff, 0xff])));
}

/// Returns the pieces of all batches until nothing is left to read.
fn all_pieces(watcher: &mut Watcher) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    loop {
        match watcher.next_batch(1 << 16) {
            Batch::InitialEvents { mut frames, .. } => {
                while frames.has_remaining() {
                    let length = frames.chunk().len();
                    pieces.push(frames.copy_to_bytes(length));
                }
            }
            Batch::Frames { chunks, .. } => pieces.extend(chunks),
            Batch::InitialEventsEnd(_) | Batch::Yield => {}
            Batch::Idle => return pieces,
            Batch::Ended(cause) => panic!("{cause:?}"),
        }
    }
}

fn unzipped(members: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(members).read_to_end(&mut plain).unwrap();
    plain
}
