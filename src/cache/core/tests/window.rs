//! The history's window: its limits in events, age and bytes, and the refusal of watches from
//! before it.

use super::*;
use crate::cache::core::watch_cache::{Change, EndCause, WatchRefusal};
use crate::cache::core::watcher::{Batch, WatchStart};

fn put(cache: &WatchCache, resource_version: u64, seconds: u64) {
    cache.apply(vec![Change::Upsert(Pod::new("ns1", "a", resource_version).object())], at(seconds));
}

fn refusal(cache: &WatchCache, after: u64) -> Option<WatchRefusal> {
    let start = WatchStart::After(ResourceVersion(after));
    cache.watch(WatchFilter::default(), start).err()
}

fn expired(oldest: u64, began_after: bool) -> Option<WatchRefusal> {
    Some(WatchRefusal::Expired { oldest: ResourceVersion(oldest), began_after })
}

fn listed(events_min: usize, events_max: usize, bytes_max: usize) -> WatchCache {
    let cache = cache_of(events_min, events_max, bytes_max);
    cache.replace(Vec::new(), ResourceVersion(10));
    cache
}

fn len(cache: &WatchCache) -> usize {
    cache.state().unwrap().history().len()
}

#[test]
fn the_window_grows_while_young_and_shrinks_when_old() {
    let cache = listed(4, 16, 1 << 20);
    (11..111).for_each(|at| put(&cache, at, 0));
    assert_eq!(len(&cache), 16);
    // At 100 s the newest quarter is older than 75 s, so the capacity halves, but not below the
    // minimum.
    put(&cache, 111, 100);
    assert_eq!(len(&cache), 8);
    put(&cache, 112, 100);
    assert_eq!(len(&cache), 4);
    put(&cache, 113, 300);
    assert_eq!(len(&cache), 4);
    // The oldest event is old and the newest quarter is not, so the capacity stays.
    put(&cache, 114, 310);
    assert_eq!(len(&cache), 4);
    (115..118).for_each(|at| put(&cache, at, 311));
    assert_eq!(len(&cache), 5, "all are young: doubled, and filling");
}

/// Returns the weight of an event of [`put`].
fn weight_of_an_event() -> usize {
    let cache = listed(100, 100, usize::MAX);
    (11..14).for_each(|at| put(&cache, at, 0));
    let before = cache.state().unwrap().weight();
    put(&cache, 14, 0);
    cache.state().unwrap().weight() - before
}

#[test]
fn the_byte_limit_applies_first_but_keeps_the_current_batch() {
    let weight = weight_of_an_event();
    let cache = listed(100, 100, weight * 5);
    (11..61).for_each(|at| put(&cache, at, 0));
    assert_eq!(len(&cache), 5);
    assert!(cache.state().unwrap().history().weight() <= weight * 5);
    let burst = (61..81).map(|at| Change::Upsert(Pod::new("ns1", "a", at).object()));
    let mut watcher = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    cache.apply(burst.collect(), at(0));
    assert_eq!(len(&cache), 20);
    assert_eq!(drain(&mut watcher).0.len(), 20);
    put(&cache, 81, 0);
    assert_eq!(len(&cache), 5);
}

#[test]
fn the_byte_limit_keeps_the_current_read_over_all_its_steps() {
    let weight = weight_of_an_event();
    let cache = listed(100, 100, weight * 5);
    let events = |numbers: std::ops::Range<u64>| -> Vec<Change> {
        numbers.map(|at| Change::Upsert(Pod::new("ns1", "a", at).object())).collect()
    };
    let mut watcher = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    cache.apply(events(11..31), at(0));
    cache.apply_rest(events(31..51), at(0));
    assert_eq!(drain(&mut watcher).0.len(), 40, "who reads misses none");
    cache.apply(events(51..52), at(0));
    assert_eq!(len(&cache), 5);
}

/// A reload may change the limit.
#[test]
fn another_byte_limit_holds_at_once_and_for_later_events() {
    let weight = weight_of_an_event();
    let cache = listed(100, 100, usize::MAX);
    (11..31).for_each(|at| put(&cache, at, 0));
    let lag = cache.lag(&cache.state().unwrap());
    cache.limit_history(weight * 5);
    assert_eq!(len(&cache), 5);
    assert_eq!(refusal(&cache, 10), expired(25, false));
    (31..46).for_each(|at| put(&cache, at, 0));
    assert_eq!(len(&cache), 5);
    assert!(lag.is_exceeded(), "a reader may keep as much as the history");
    cache.limit_history(weight * 10);
    assert!(!lag.is_exceeded());
    (46..66).for_each(|at| put(&cache, at, 0));
    assert_eq!(len(&cache), 10);
}

#[test]
fn refuses_versions_before_the_window() {
    let cache = listed(4, 4, 1 << 20);
    put(&cache, 15, 0);
    assert_eq!(refusal(&cache, 10), None);
    assert_eq!(refusal(&cache, 9), expired(10, true));
    [20, 25, 30].into_iter().for_each(|at| put(&cache, at, 0));
    assert_eq!(refusal(&cache, 10), None, "nothing is evicted yet");
    put(&cache, 35, 0);
    assert_eq!(refusal(&cache, 19), None);
    assert_eq!(refusal(&cache, 18), expired(19, false));
    assert_eq!(refusal(&cache, 10), expired(19, false));
    assert_eq!(refusal(&cache, 9), expired(19, true));
    cache.replace(Vec::new(), ResourceVersion(50));
    assert_eq!(refusal(&cache, 50), None);
    assert_eq!(refusal(&cache, 49), expired(50, false));
    assert_eq!(refusal(&cache, 9), expired(50, true));
    cache.invalidate(EndCause::Stopped);
    cache.replace(Vec::new(), ResourceVersion(60));
    assert_eq!(refusal(&cache, 59), expired(60, false));
}

#[test]
fn ends_watchers_with_evicted_events_and_keeps_idle_ones() {
    let cache = listed(4, 4, 1 << 20);
    let now = |filter| cache.watch(filter, WatchStart::Now).unwrap();
    let (mut slow, mut idle, mut late) =
        (now(in_namespace("ns1")), now(in_namespace("ns2")), now(on_node("n2")));
    (11..31).for_each(|at| put(&cache, at, 0));
    cache.apply(vec![Change::Upsert(Pod::new("ns1", "a", 31).node("n2").object())], at(0));
    assert_eq!(drain(&mut slow), (vec![], Stop::Ended(EndCause::Slow)));
    assert_eq!(drain(&mut idle), (vec![], Stop::Idle(31)));
    assert_eq!(drain(&mut late), (vec!["ADDED ns1/a 31".to_owned()], Stop::Idle(31)));
}

#[test]
fn after_a_rewind_versions_of_the_lost_history_are_too_old() {
    let cache = listed(4, 4, 1 << 20);
    put(&cache, 90, 0);
    let mut watcher = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    cache.rewind(ResourceVersion(100));
    assert!(matches!(watcher.next_batch(1 << 20), Batch::Ended(EndCause::Relist)));
    assert_eq!(refusal(&cache, 90), Some(WatchRefusal::NotReady));
    cache.replace(Vec::new(), ResourceVersion(60));
    for after in [5, 11, 59] {
        assert_eq!(refusal(&cache, after), expired(60, false), "{after}");
    }
    assert_eq!(refusal(&cache, 60), None);
    // A relist within the new history changes nothing. Versions above the lost history belong to
    // the current one.
    cache.replace(Vec::new(), ResourceVersion(120));
    assert_eq!(refusal(&cache, 59), expired(120, false));
    cache.rewind(ResourceVersion(80));
    cache.replace(Vec::new(), ResourceVersion(120));
    assert_eq!(refusal(&cache, 100), expired(120, false));
    assert_eq!(refusal(&cache, 101), expired(120, true));
}

/// A slow reader of a state may keep as much of it in memory as a full history has.
#[test]
fn a_reader_of_an_old_state_falls_behind_by_bytes() {
    let weight = {
        let cache = listed(1, 1, usize::MAX);
        (11..13).for_each(|at| put(&cache, at, 0));
        cache.state().unwrap().history().weight()
    };
    // The history has one event, five while a watcher has to read them, and a reader may keep four
    // more.
    let cache = listed(1, 1, weight * 4);
    put(&cache, 11, 0);
    let filter = WatchFilter::default();
    let mut watcher = cache.watch(filter.clone(), WatchStart::InitialEvents).unwrap();
    let lag = cache.lag(&cache.state().unwrap());
    (12..21).for_each(|at| put(&cache, at, 0));
    assert!(!lag.is_exceeded());
    put(&cache, 21, 0);
    assert!(lag.is_exceeded());
    assert_eq!(drain(&mut watcher), (vec![], Stop::Ended(EndCause::Slow)));
    let mut fresh = cache.watch(filter, WatchStart::InitialEvents).unwrap();
    assert!(!cache.lag(&cache.state().unwrap()).is_exceeded());
    let drained = drain(&mut fresh);
    assert_eq!(drained, (vec!["ADDED ns1/a 21".to_owned(), "END 21".to_owned()], Stop::Idle(21)));
}

#[test]
fn a_list_that_replaces_the_state_drops_all_of_it() {
    let objects =
        || (0..10).map(|n| Pod::new("ns1", &format!("p{n}"), 10).object()).collect::<Vec<_>>();
    let weight = {
        let cache = cache_of(4, 4, usize::MAX);
        cache.replace(objects(), ResourceVersion(10));
        cache.state().unwrap().weight()
    };
    for (bytes_max, exceeded) in [(weight, false), (weight - 1, true)] {
        let cache = cache_of(4, 4, bytes_max);
        cache.replace(objects(), ResourceVersion(10));
        let lag = cache.lag(&cache.state().unwrap());
        assert!(!lag.is_exceeded());
        cache.invalidate(EndCause::Stopped);
        assert_eq!(lag.is_exceeded(), exceeded, "stopped");
        cache.replace(objects(), ResourceVersion(20));
        assert_eq!(lag.is_exceeded(), exceeded, "listed");
    }
}
