//! Events from before the list: watches that start there get what a cache that was there all along
//! would send.

use super::*;
use crate::cache::core::earlier::{DoesNotJoin, EarlierEvents};
use crate::cache::core::watch_cache::{Change, WatchRefusal};
use crate::cache::core::watcher::WatchStart;
use crate::codec::unreadable::UnreadableObject;

/// A write: the pod after it, and whether it was deleted by it.
type Write = (Pod, bool);

const NEVER: usize = 1 << 20;

/// Returns writes at the resourceVersions from 11 to 60: pods come and go, and change their labels
/// and nodes.
fn writes() -> Vec<Write> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut present = BTreeMap::new();
    (11..=60)
        .map(|at| {
            let pod = Pod::new(
                random.choice(["ns1", "ns2"]).unwrap(),
                &random.char('a'..='d').to_string(),
                at,
            )
            .app(random.choice(["a", "b"]).unwrap())
            .node(random.choice(["n1", "n2"]).unwrap());
            match present.remove(&pod.key()) {
                Some(before) if random.u8(..) < 80 => (Pod::at(&before, at), true),
                _ => {
                    present.insert(pod.key(), pod.clone());
                    (pod, false)
                }
            }
        })
        .collect()
}

fn change((pod, is_deleted): &Write) -> Change {
    if *is_deleted { Change::Delete(pod.object()) } else { Change::Upsert(pod.object()) }
}

/// Returns the pods after the writes up to and including `at`.
fn pods_at(writes: &[Write], at: u64) -> Vec<Pod> {
    let mut pods = BTreeMap::new();
    for (pod, is_deleted) in writes.iter().filter(|(pod, _)| pod.resource_version <= at) {
        if *is_deleted {
            pods.remove(&pod.key());
        } else {
            pods.insert(pod.key(), pod.clone());
        }
    }
    pods.into_values().collect()
}

/// Returns a cache that listed at `listed`, and got the later writes as events.
fn cache_from(writes: &[Write], listed: u64) -> WatchCache {
    let cache = cache_of(4, 1000, NEVER);
    let objects: Vec<_> = pods_at(writes, listed).iter().map(Pod::object).collect();
    cache.replace(objects, ResourceVersion(listed));
    let later = writes.iter().filter(|(pod, _)| pod.resource_version > listed);
    later.for_each(|write| cache.apply(vec![change(write)], at(0)));
    cache
}

/// Returns the events after `from` up to `through`, with the state at `from`.
fn earlier(writes: &[Write], from: u64, through: u64, bytes_max: usize) -> EarlierEvents {
    let mut earlier = EarlierEvents::new(ResourceVersion(from), NEVER, bytes_max);
    let range = from + 1..=through;
    let between = writes.iter().filter(|(pod, _)| range.contains(&pod.resource_version));
    between.for_each(|write| earlier.push(change(write)));
    pods_at(writes, from).iter().for_each(|pod| earlier.take_listed(pod.object()));
    earlier
}

fn prepend(cache: &WatchCache, earlier: EarlierEvents, through: u64) -> Result<(), DoesNotJoin> {
    prepend_within(cache, earlier, through, usize::MAX)
}

fn prepend_within(
    cache: &WatchCache,
    earlier: EarlierEvents,
    through: u64,
    weight_max: usize,
) -> Result<(), DoesNotJoin> {
    let range = (earlier.from(), ResourceVersion(through));
    let events = earlier.into_events(&cache.state().unwrap(), at(0))?;
    cache.prepend(events, range, weight_max)
}

fn watch(cache: &WatchCache, filter: WatchFilter, after: u64) -> Result<Vec<String>, WatchRefusal> {
    let mut watcher = cache.watch(filter, WatchStart::After(ResourceVersion(after)))?;
    Ok(drain(&mut watcher).0)
}

#[test]
fn watches_from_before_the_list_get_the_events_that_they_would_have_got() {
    let writes = writes();
    let (all_along, late) = (cache_from(&writes, 10), cache_from(&writes, 40));
    assert!(watch(&late, WatchFilter::default(), 39).is_err());
    // In two steps: watchers may come that want to start at an even older resourceVersion.
    prepend(&late, earlier(&writes, 25, 40, NEVER), 40).unwrap();
    assert!(watch(&late, WatchFilter::default(), 24).is_err());
    prepend(&late, earlier(&writes, 10, 25, NEVER), 25).unwrap();
    let filters =
        [WatchFilter::default(), in_namespace("ns1"), by_app("a"), by_app("b"), on_node("n2")];
    for filter in filters {
        for after in 10..=60 {
            let expected = watch(&all_along, filter.clone(), after).unwrap();
            assert_eq!(watch(&late, filter.clone(), after).unwrap(), expected, "{after}");
        }
    }
    assert!(watch(&late, WatchFilter::default(), 9).is_err());
    // Later events are delivered as before, and the states before the list are not there.
    let next = Pod::new("ns1", "next", 70);
    late.apply(vec![Change::Upsert(next.object())], at(1));
    assert_eq!(watch(&late, WatchFilter::default(), 60).unwrap(), ["ADDED ns1/next 70"]);
    assert_eq!(late.state().unwrap().exact_from(), ResourceVersion(40));
}

#[test]
fn open_watches_do_not_notice_earlier_events() {
    let writes = writes();
    let late = cache_from(&writes, 40);
    let start = WatchStart::After(ResourceVersion(50));
    let mut open = late.watch(WatchFilter::default(), start).unwrap();
    let mut progress = late.progress();
    progress.mark_unchanged();
    prepend(&late, earlier(&writes, 10, 40, NEVER), 40).unwrap();
    assert!(!progress.has_changed().unwrap(), "it is no news from the upstream");
    assert_eq!(drain(&mut open).0.len(), 10);
    assert_eq!(drain(&mut open).1, Stop::Idle(60));
}

#[test]
fn events_that_do_not_lead_to_the_list_are_refused() {
    let writes = writes();
    let late = cache_from(&writes, 40);
    // The last write of each object that is there.
    for pod in pods_at(&writes, 40) {
        let mut some = writes.clone();
        some.retain(|(written, _)| written.resource_version != pod.resource_version);
        assert_eq!(prepend(&late, earlier(&some, 10, 40, NEVER), 40), Err(DoesNotJoin));
    }
    let mut other = writes.clone();
    other[28] = (Pod::new("ns1", "never", 39), false);
    assert_eq!(prepend(&late, earlier(&other, 10, 40, NEVER), 40), Err(DoesNotJoin));
    // They must reach the place where the history begins.
    assert_eq!(prepend(&late, earlier(&writes, 10, 39, NEVER), 39), Err(DoesNotJoin));
    assert!(watch(&late, WatchFilter::default(), 39).is_err());
}

#[test]
fn the_newest_of_too_many_earlier_events_are_kept() {
    let writes = writes();
    let late = cache_from(&writes, 40);
    let some = earlier(&writes, 10, 40, 10_000);
    let from = some.from().0;
    assert!(from > 10, "{from}");
    prepend(&late, some, 40).unwrap();
    let all_along = cache_from(&writes, 10);
    for filter in [WatchFilter::default(), by_app("a")] {
        let expected = watch(&all_along, filter.clone(), from).unwrap();
        assert_eq!(watch(&late, filter, from).unwrap(), expected);
    }
    assert!(watch(&late, WatchFilter::default(), from - 1).is_err());

    // The state must not become too heavy.
    let late = cache_from(&writes, 40);
    let weight = late.state().unwrap().weight() + 5_000;
    prepend_within(&late, earlier(&writes, 10, 40, NEVER), 40, weight).unwrap();
    assert!(late.state().unwrap().weight() <= weight);
    assert!(watch(&late, WatchFilter::default(), 10).is_err());
    assert!(watch(&late, WatchFilter::default(), 38).is_ok());
}

#[test]
fn a_full_history_takes_no_earlier_events() {
    let writes = writes();
    let cache = cache_of(4, 4, NEVER);
    let objects: Vec<_> = pods_at(&writes, 40).iter().map(Pod::object).collect();
    cache.replace(objects, ResourceVersion(40));
    let later = writes.iter().filter(|(pod, _)| pod.resource_version > 40);
    later.for_each(|write| cache.apply(vec![change(write)], at(0)));
    assert_eq!(cache.state().unwrap().history().joins_at(), None);
    assert_eq!(prepend(&cache, earlier(&writes, 10, 40, NEVER), 40), Err(DoesNotJoin));
}

/// A change of an object that cannot be read is no event: watches must not start before it.
#[test]
fn earlier_events_begin_after_a_change_that_is_no_event() {
    let writes = writes();
    let mut some = EarlierEvents::new(ResourceVersion(10), 1_000, NEVER);
    for write in writes.iter().filter(|(pod, _)| (11..=40).contains(&pod.resource_version)) {
        if write.0.resource_version == 25 {
            some.push(Change::Unreadable {
                object: UnreadableObject {
                    namespace: "ns1".into(),
                    name: "r\u{fffd}".into(),
                    uid: "u".into(),
                    resource_version: ResourceVersion(25),
                },
                is_deletion: false,
            });
        } else {
            some.push(change(write));
        }
    }
    assert!(some.from() >= ResourceVersion(25) && some.last() == ResourceVersion(40));
}
