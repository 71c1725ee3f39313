//! Relists across which watches continue: what they receive, and from where a client can resume.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::cache::core::watch_cache::{Change, Discontinuity, WatchRefusal};
use crate::cache::core::watcher::WatchStart;

fn ready(pods: &[Pod], resource_version: u64) -> WatchCache {
    let cache = cache_of(100, 1000, 1 << 20);
    let objects: Vec<_> = pods.iter().map(Pod::object).collect();
    cache.replace(objects, ResourceVersion(resource_version));
    cache
}

fn relist(cache: &WatchCache, pods: &[Pod], at_version: u64) -> Result<usize, Discontinuity> {
    let objects: Vec<_> = pods.iter().map(Pod::object).collect();
    cache.relist(objects, ResourceVersion(at_version), at(0))
}

fn after(cache: &WatchCache, after: u64) -> Result<Watcher, WatchRefusal> {
    cache.watch(WatchFilter::default(), WatchStart::After(ResourceVersion(after)))
}

fn expired(oldest: u64) -> WatchRefusal {
    WatchRefusal::Expired { oldest: ResourceVersion(oldest), began_after: false }
}

fn pod(name: &str, resource_version: u64) -> Pod {
    Pod::new("ns1", name, resource_version)
}

/// The cache starts with `removed`, `left`, `stays` and `again` at 3 to 6, `stays` changes at 12,
/// and a list at 30 follows.
fn relisted() -> (WatchCache, Watcher, Watcher) {
    let cache = ready(&[pod("removed", 3), pod("left", 4), pod("stays", 5), pod("again", 6)], 10);
    let every_object = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let selected = cache.watch(by_app("a"), WatchStart::Now).unwrap();
    cache.apply(vec![Change::Upsert(pod("stays", 12).object())], at(0));
    let list =
        [pod("again", 22).uid("v"), pod("left", 25).app("b"), pod("new", 21), pod("stays", 24)];
    assert_eq!(relist(&cache, &list, 30), Ok(7));
    (cache, every_object, selected)
}

#[test]
fn an_older_list_does_not_replace_a_newer_state() {
    for (pods, keeps_watches) in
        [(vec![pod("a", 3)], true), (vec![pod("a", 3), pod("b", 12)], true), (vec![], false)]
    {
        let cache = ready(&[pod("a", 3)], 10);
        let mut watcher = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
        // A progress notification for 20 arrived while the list was being read.
        cache.apply(vec![Change::Progress(ResourceVersion(20))], at(0));
        if keeps_watches {
            assert_eq!(relist(&cache, &pods, 15), Err(Discontinuity::Overtaken));
        } else {
            assert!(!cache.replace(Vec::new(), ResourceVersion(15)));
        }
        assert_eq!(cache.state().unwrap().resource_version(), ResourceVersion(20));
        assert_eq!(drain(&mut watcher), (vec![], Stop::Idle(20)));
    }
}

const BATCH: [&str; 6] = [
    "DELETED ns1/again 12",
    "DELETED ns1/removed 12",
    "ADDED ns1/new 21",
    "ADDED ns1/again 22",
    "MODIFIED ns1/stays 24",
    "MODIFIED ns1/left 25",
];

#[test]
fn watches_continue_with_the_changes_of_the_list() {
    let (cache, mut every_object, mut selected) = relisted();
    let (deliveries, stop) = drain(&mut every_object);
    assert_eq!((&deliveries[1..], stop), (BATCH.map(str::to_owned).as_slice(), Stop::Idle(30)));
    assert!(every_object.take_bookmark_due());
    assert!(!every_object.take_bookmark_due());
    let left = [&BATCH[..2], &["DELETED ns1/left 12"], &BATCH[2..5]].concat();
    assert_eq!(drain(&mut selected).0[1..], left);
    cache.apply(vec![Change::Upsert(pod("new", 31).object())], at(0));
    assert_eq!(drain(&mut every_object), (vec!["MODIFIED ns1/new 31".to_owned()], Stop::Idle(31)));
    assert!(!every_object.take_bookmark_due());
}

#[test]
fn a_client_resumes_before_or_after_the_batch_but_not_within() {
    let (cache, ..) = relisted();
    let resumed = |from: u64| drain(&mut after(&cache, from).unwrap()).0;
    assert_eq!(resumed(10)[1..], BATCH);
    assert_eq!(resumed(11)[1..], BATCH);
    assert_eq!(resumed(12), BATCH);
    for ambiguous in 13..30 {
        assert_eq!(after(&cache, ambiguous).err(), Some(expired(30)));
    }
    assert_eq!(resumed(30), [""; 0]);
    assert_eq!(resumed(35), [""; 0]);
    assert_eq!(cache.state().unwrap().exact_from(), ResourceVersion(30));
}

#[test]
fn an_empty_batch_still_refuses_versions_within_the_relist() {
    let cache = ready(&[pod("a", 3)], 10);
    assert_eq!(relist(&cache, &[pod("a", 3)], 10), Ok(0));
    assert!(after(&cache, 10).is_ok());
    assert_eq!(relist(&cache, &[pod("a", 3)], 20), Ok(0));
    assert!(after(&cache, 10).is_ok());
    assert_eq!(after(&cache, 15).err(), Some(expired(20)));
    assert!(after(&cache, 20).is_ok());
}

#[test]
fn the_number_of_empty_relists_is_limited() {
    let cache = ready(&[], 10);
    (11..40).for_each(|to| assert_eq!(relist(&cache, &[], to * 10), Ok(0)));
    assert_eq!(after(&cache, 10).err(), Some(expired(230)));
    assert!(after(&cache, 230).is_ok());
    assert_eq!(after(&cache, 235).err(), Some(expired(240)));
}

#[test]
fn a_watch_from_a_future_version_within_the_relist_ends() {
    let cache = ready(&[pod("a", 3), pod("b", 4)], 10);
    let [mut reached, mut between, mut at_list, mut beyond] =
        [12, 15, 20, 25].map(|from| after(&cache, from).unwrap());
    cache.apply(vec![Change::Upsert(pod("a", 12).object())], at(0));
    assert_eq!(relist(&cache, &[pod("c", 17)], 20), Ok(3));
    let batch = ["DELETED ns1/a 12", "DELETED ns1/b 12", "ADDED ns1/c 17"].map(str::to_owned);
    assert_eq!(drain(&mut reached), (batch.to_vec(), Stop::Idle(20)));
    assert_eq!(drain(&mut between), (Vec::new(), Stop::Ended(EndCause::Relist)));
    assert_eq!(drain(&mut at_list), (Vec::new(), Stop::Idle(20)));
    let changes = [24, 26].map(|at| Change::Upsert(pod("c", at).object()));
    cache.apply(changes.into(), at(0));
    assert_eq!(drain(&mut at_list).0.len(), 2);
    assert_eq!(drain(&mut beyond), (vec!["MODIFIED ns1/c 26".to_owned()], Stop::Idle(26)));
    drop((reached, between, at_list, beyond));
    assert!(cache.indexes_are_empty());
}

#[test]
fn watches_end_if_they_cannot_continue() {
    let other = |mut pod: Pod| {
        "Changed".clone_into(&mut pod.phase);
        pod
    };
    for (list, to, why) in [
        (vec![other(pod("a", 3))], 20, Discontinuity::ChangedBytes),
        (vec![pod("a", 3), pod("b", 7)], 20, Discontinuity::Inconsistent),
        (vec![pod("a", 2)], 20, Discontinuity::Inconsistent),
        (vec![pod("a", 21)], 20, Discontinuity::Inconsistent),
        (vec![], 10, Discontinuity::Inconsistent),
    ] {
        let cache = ready(&[pod("a", 3)], 10);
        let mut watcher = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
        assert_eq!(relist(&cache, &list, to), Err(why));
        assert_eq!(drain(&mut watcher), (Vec::new(), Stop::Ended(EndCause::Relist)));
        assert_eq!(cache.state().unwrap().len(), list.len());
        if to > 10 {
            assert_eq!(after(&cache, 10).err(), Some(expired(to)));
        }
    }
    let cache = cache_of(100, 1000, 20_000);
    cache.replace(Vec::new(), ResourceVersion(10));
    let many: Vec<_> = (0..100).map(|n| pod(&format!("p{n}"), n + 11)).collect();
    assert_eq!(relist(&cache, &many, 200), Err(Discontinuity::TooHeavy));
    assert_eq!(cache.state().unwrap().len(), 100);
}

#[test]
fn a_partly_evicted_batch_is_not_delivered() {
    let cache = cache_of(3, 3, 1 << 20);
    cache.replace(vec![pod("a", 3).object()], ResourceVersion(10));
    assert_eq!(relist(&cache, &[pod("b", 15), pod("c", 16)], 20), Ok(3));
    assert!(after(&cache, 10).is_ok());
    cache.apply(vec![Change::Upsert(pod("b", 21).object())], at(0));
    assert_eq!(after(&cache, 10).err(), Some(expired(20)));
    assert!(after(&cache, 20).is_ok());
    for at_version in 22..25 {
        cache.apply(vec![Change::Upsert(pod("b", at_version).object())], at(0));
    }
    assert_eq!(after(&cache, 20).err(), Some(expired(21)));
}

/// A write at one resourceVersion. Deleting a missing pod writes nothing.
#[derive(Clone, Debug)]
enum Write {
    Put(&'static str, &'static str),
    Delete(&'static str),
}

fn any_write() -> impl Strategy<Value = (Write, u64)> {
    let name = || select(&["a", "b", "c", "d"][..]);
    let write = prop_oneof![
        3 => (name(), select(&["a", "b"][..])).prop_map(|(name, app)| Write::Put(name, app)),
        2 => name().prop_map(Write::Delete),
    ];
    (write, 1..3_u64)
}

/// The upstream's writes, in order.
#[derive(Default)]
struct Upstream {
    now: u64,
    /// The resourceVersion, the change, and the state after it.
    log: Vec<(u64, Option<Change>, BTreeMap<String, Pod>)>,
}

impl Upstream {
    fn new(writes: &[(Write, u64)]) -> Self {
        let mut upstream = Self { now: 10, log: Vec::new() };
        let mut pods = BTreeMap::new();
        for (write, increase) in writes {
            upstream.now += increase;
            let at = upstream.now;
            let change = match write {
                Write::Put(name, app) => {
                    let fresh = || pod(name, at).uid(&at.to_string());
                    let old = pods.get(*name).map(|old: &Pod| old.at(at));
                    let put = old.unwrap_or_else(fresh).app(app);
                    pods.insert((*name).to_owned(), put.clone());
                    Some(Change::Upsert(put.object()))
                }
                Write::Delete(name) => {
                    pods.remove(*name).map(|old| Change::Delete(old.at(at).object()))
                }
            };
            upstream.log.push((at, change, pods.clone()));
        }
        upstream
    }

    fn at(&self, resource_version: u64) -> BTreeMap<String, Pod> {
        let entry = self.log.iter().rev().find(|(at, ..)| *at <= resource_version);
        entry.map(|(.., pods)| pods.clone()).unwrap_or_default()
    }

    fn list(&self, resource_version: u64) -> Vec<Object> {
        self.at(resource_version).values().map(Pod::object).collect()
    }

    /// Applies the changes after `from` and up to `to` to `cache`.
    fn apply_to(self, cache: &WatchCache, from: u64, to: u64) {
        for (_, change, _) in self.log.into_iter().filter(|(at, ..)| from < *at && *at <= to) {
            cache.apply(change.into_iter().collect(), at(0));
        }
        cache.apply(vec![Change::Progress(ResourceVersion(to))], at(0));
    }
}

/// A client's objects, and the resourceVersion from which it would resume.
#[derive(Clone)]
struct Client {
    pods: BTreeMap<String, Pod>,
    last: u64,
}

impl Client {
    fn receive(&mut self, delivery: &Delivery) {
        let Delivery::Event(event, pod) = delivery else { return };
        self.last = pod.resource_version;
        if event == "DELETED" {
            self.pods.remove(&pod.name);
            return;
        }
        let older = self.pods.insert(pod.name.clone(), pod.clone());
        let newer = older.is_none_or(|older| older.resource_version < pod.resource_version);
        assert!(newer, "{event} of a state that the client already has, or of an older one");
    }

    /// Resumes and reads everything. Returns `None` if the client must list again.
    fn resume(mut self, cache: &WatchCache, filter: &WatchFilter) -> Option<Self> {
        let start = WatchStart::After(ResourceVersion(self.last));
        let mut watcher = match cache.watch(filter.clone(), start) {
            Ok(watcher) => watcher,
            Err(WatchRefusal::Expired { .. }) => return None,
            Err(refusal) => panic!("{refusal:?}"),
        };
        let mut deliveries = Vec::new();
        assert!(matches!(read_all(&mut watcher, &mut deliveries), Stop::Idle(_)));
        deliveries.iter().for_each(|delivery| self.receive(delivery));
        Some(self)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A client disconnects after each event of a relist. It resumes at the cache with the relist,
    /// and at one with the continuous history.
    #[test]
    fn a_client_that_disconnects_anywhere_converges(
        writes in vec(any_write(), 3..24),
        held in 0..24_usize,
        missed in 0..24_usize,
        by_label in any::<bool>(),
    ) {
        let upstream = || Upstream::new(&writes);
        let end = upstream().now;
        let rv = |index: usize| upstream().log.get(index).map_or(end, |(at, ..)| *at);
        let (from, to) = (rv(held), rv(held.saturating_add(missed)));
        let filter = if by_label { by_app("a") } else { WatchFilter::default() };
        let matching = |resource_version: u64| -> BTreeMap<String, Pod> {
            let pods = upstream().at(resource_version);
            pods.into_iter().filter(|(_, pod)| !by_label || pod.app == "a").collect()
        };

        let [relisted, continuous] = [(); 2].map(|()| {
            let cache = cache_of(100, 1000, 1 << 20);
            cache.replace(Vec::new(), ResourceVersion(10));
            cache
        });
        upstream().apply_to(&relisted, 10, from);
        upstream().apply_to(&continuous, 10, end);
        let mut watcher = relisted.watch(filter.clone(), WatchStart::Now).unwrap();
        relisted.relist(upstream().list(to), ResourceVersion(to), at(0)).unwrap();
        let mut batch = Vec::new();
        prop_assert_eq!(read_all(&mut watcher, &mut batch), Stop::Idle(to));
        upstream().apply_to(&relisted, to, end);

        let mut client = Client { pods: matching(from), last: from };
        for delivery in std::iter::once(None).chain(batch.iter().map(Some)) {
            delivery.into_iter().for_each(|delivery| client.receive(delivery));
            for cache in [&relisted, &continuous] {
                if let Some(resumed) = client.clone().resume(cache, &filter) {
                    prop_assert_eq!(&resumed.pods, &matching(end));
                }
            }
            prop_assert!(client.clone().resume(&continuous, &filter).is_some());
        }
        prop_assert_eq!(&client.pods, &matching(to));
        client.last = to;
        let resumed = client.resume(&relisted, &filter).unwrap();
        prop_assert_eq!(resumed.pods, matching(end));

        // Clients that have a resourceVersion, and the objects at that version, from elsewhere.
        for last in 10..=end {
            let elsewhere = Client { pods: matching(last), last };
            if let Some(resumed) = elsewhere.resume(&relisted, &filter) {
                prop_assert_eq!(resumed.pods, matching(end), "from {}", last);
            } else {
                prop_assert!(from < last && last < to);
            }
        }
    }
}
