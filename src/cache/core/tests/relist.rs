//! Relists that watches live through: what they are given, and from where a client may come back.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::cache::core::watch_cache::{Change, Discontinuity, WatchRefusal};
use crate::cache::core::watcher::WatchStart;

fn ready(pods: &[Pod], resource_version: u64) -> WatchCache {
    let cache = cache_of(100, 1000, 1 << 20);
    let objects = pods.iter().map(Pod::object).collect();
    cache.replace(objects, ResourceVersion(resource_version), at(0));
    cache
}

fn relist(cache: &WatchCache, pods: &[Pod], at_version: u64) -> Result<usize, Discontinuity> {
    let objects = pods.iter().map(Pod::object).collect();
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

/// `gone` and `left` at 3 and 4, `stays` at 5, `again` at 6, one event `stays` at 12; then a list at 30.
fn relisted() -> (WatchCache, Watcher, Watcher) {
    let cache = ready(&[pod("gone", 3), pod("left", 4), pod("stays", 5), pod("again", 6)], 10);
    let all = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
    let some = cache.watch(by_app("a"), WatchStart::Now).unwrap();
    cache.apply(vec![Change::Upsert(pod("stays", 12).object())], at(0));
    let list =
        [pod("again", 22).uid("v"), pod("left", 25).app("b"), pod("new", 21), pod("stays", 24)];
    assert_eq!(relist(&cache, &list, 30), Ok(7));
    (cache, all, some)
}

#[test]
fn nothing_goes_back_to_a_list_that_was_overtaken() {
    for (pods, keeps) in
        [(vec![pod("a", 3)], true), (vec![pod("a", 3), pod("b", 12)], true), (vec![], false)]
    {
        let cache = ready(&[pod("a", 3)], 10);
        let mut watcher = cache.watch(WatchFilter::default(), WatchStart::Now).unwrap();
        // A proof of freshness told that there is nothing up to 20 while the list was under way.
        cache.apply(vec![Change::Progress(ResourceVersion(20))], at(0));
        if keeps {
            assert_eq!(relist(&cache, &pods, 15), Err(Discontinuity::Overtaken));
        } else {
            assert!(!cache.replace(Vec::new(), ResourceVersion(15), at(0)));
        }
        assert_eq!(cache.state().unwrap().resource_version(), ResourceVersion(20));
        assert_eq!(drain(&mut watcher), (vec![], Rest::Idle(20)));
    }
}

const BATCH: [&str; 6] = [
    "DELETED ns1/again 12",
    "DELETED ns1/gone 12",
    "ADDED ns1/new 21",
    "ADDED ns1/again 22",
    "MODIFIED ns1/stays 24",
    "MODIFIED ns1/left 25",
];

#[test]
fn watches_live_on_and_are_given_the_difference() {
    let (cache, mut all, mut some) = relisted();
    let (seen, rest) = drain(&mut all);
    assert_eq!((&seen[1..], rest), (BATCH.map(str::to_owned).as_slice(), Rest::Idle(30)));
    assert!(all.take_bookmark_due());
    assert!(!all.take_bookmark_due());
    let left = [&BATCH[..2], &["DELETED ns1/left 12"], &BATCH[2..5]].concat();
    assert_eq!(drain(&mut some).0[1..], left);
    cache.apply(vec![Change::Upsert(pod("new", 31).object())], at(0));
    assert_eq!(drain(&mut all), (vec!["MODIFIED ns1/new 31".to_owned()], Rest::Idle(31)));
    assert!(!all.take_bookmark_due());
}

#[test]
fn a_client_comes_back_to_the_whole_batch_or_to_none_of_it() {
    let (cache, ..) = relisted();
    let seen = |from: u64| drain(&mut after(&cache, from).unwrap()).0;
    assert_eq!(seen(10)[1..], BATCH);
    assert_eq!(seen(11)[1..], BATCH);
    assert_eq!(seen(12), BATCH);
    for open in 13..30 {
        assert_eq!(after(&cache, open).err(), Some(expired(30)));
    }
    assert_eq!(seen(30), [""; 0]);
    assert_eq!(seen(35), [""; 0]);
    assert_eq!(cache.state().unwrap().exact_from(), ResourceVersion(30));
}

#[test]
fn an_empty_difference_leaves_open_what_came_and_went() {
    let cache = ready(&[pod("a", 3)], 10);
    assert_eq!(relist(&cache, &[pod("a", 3)], 10), Ok(0));
    assert!(after(&cache, 10).is_ok());
    assert_eq!(relist(&cache, &[pod("a", 3)], 20), Ok(0));
    assert!(after(&cache, 10).is_ok());
    assert_eq!(after(&cache, 15).err(), Some(expired(20)));
    assert!(after(&cache, 20).is_ok());
}

#[test]
fn many_empty_ones_take_a_bounded_place() {
    let cache = ready(&[], 10);
    (11..40).for_each(|to| assert_eq!(relist(&cache, &[], to * 10), Ok(0)));
    assert_eq!(after(&cache, 10).err(), Some(expired(230)));
    assert!(after(&cache, 230).is_ok());
    assert_eq!(after(&cache, 235).err(), Some(expired(240)));
}

#[test]
fn a_watch_from_the_future_ends_where_it_cannot_be_told() {
    let cache = ready(&[pod("a", 3), pod("b", 4)], 10);
    let [mut reached, mut between, mut at_list, mut beyond] =
        [12, 15, 20, 25].map(|from| after(&cache, from).unwrap());
    cache.apply(vec![Change::Upsert(pod("a", 12).object())], at(0));
    assert_eq!(relist(&cache, &[pod("c", 17)], 20), Ok(3));
    let batch = ["DELETED ns1/a 12", "DELETED ns1/b 12", "ADDED ns1/c 17"].map(str::to_owned);
    assert_eq!(drain(&mut reached), (batch.to_vec(), Rest::Idle(20)));
    assert_eq!(drain(&mut between), (Vec::new(), Rest::Ended(EndCause::Relist)));
    assert_eq!(drain(&mut at_list), (Vec::new(), Rest::Idle(20)));
    let changes = [24, 26].map(|at| Change::Upsert(pod("c", at).object()));
    cache.apply(changes.into(), at(0));
    assert_eq!(drain(&mut at_list).0.len(), 2);
    assert_eq!(drain(&mut beyond), (vec!["MODIFIED ns1/c 26".to_owned()], Rest::Idle(26)));
    drop((reached, between, at_list, beyond));
    assert!(cache.indexes_are_empty());
}

#[test]
fn streams_end_where_they_cannot_live_on() {
    let other = |mut pod: Pod| {
        "Otherwise".clone_into(&mut pod.phase);
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
        assert_eq!(drain(&mut watcher), (Vec::new(), Rest::Ended(EndCause::Relist)));
        assert_eq!(cache.state().unwrap().len(), list.len());
        if to > 10 {
            assert_eq!(after(&cache, 10).err(), Some(expired(to)));
        }
    }
    let cache = cache_of(100, 1000, 20_000);
    cache.replace(Vec::new(), ResourceVersion(10), at(0));
    let many: Vec<_> = (0..100).map(|n| pod(&format!("p{n}"), n + 11)).collect();
    assert_eq!(relist(&cache, &many, 200), Err(Discontinuity::TooHeavy));
    assert_eq!(cache.state().unwrap().len(), 100);
}

#[test]
fn a_batch_that_leaves_the_window_in_part_is_owed_to_nobody() {
    let cache = cache_of(3, 3, 1 << 20);
    cache.replace(vec![pod("a", 3).object()], ResourceVersion(10), at(0));
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

/// What happens upstream at one resourceVersion; a pod that is not there cannot be deleted.
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

/// The upstream: what happened, in order, with the resourceVersions.
#[derive(Default)]
struct Truth {
    now: u64,
    /// The changed pod, and the state after it.
    log: Vec<(u64, Option<Change>, BTreeMap<String, Pod>)>,
}

impl Truth {
    fn new(writes: &[(Write, u64)]) -> Self {
        let mut truth = Self { now: 10, log: Vec::new() };
        let mut pods = BTreeMap::new();
        for (write, up) in writes {
            truth.now += up;
            let at = truth.now;
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
            truth.log.push((at, change, pods.clone()));
        }
        truth
    }

    fn at(&self, resource_version: u64) -> BTreeMap<String, Pod> {
        let known = self.log.iter().rev().find(|(at, ..)| *at <= resource_version);
        known.map(|(.., pods)| pods.clone()).unwrap_or_default()
    }

    fn list(&self, resource_version: u64) -> Vec<Object> {
        self.at(resource_version).values().map(Pod::object).collect()
    }

    /// Tells a cache what happened after the first and up to the second.
    fn tell(self, cache: &WatchCache, from: u64, to: u64) {
        for (_, change, _) in self.log.into_iter().filter(|(at, ..)| from < *at && *at <= to) {
            cache.apply(change.into_iter().collect(), at(0));
        }
        cache.apply(vec![Change::Progress(ResourceVersion(to))], at(0));
    }
}

/// A client, with what it has and the resourceVersion that it would come back with.
#[derive(Clone)]
struct Client {
    pods: BTreeMap<String, Pod>,
    last: u64,
}

impl Client {
    fn told(&mut self, seen: &Seen) {
        let Seen::Event(event, pod) = seen else { return };
        self.last = pod.resource_version;
        if event == "DELETED" {
            self.pods.remove(&pod.name);
            return;
        }
        let older = self.pods.insert(pod.name.clone(), pod.clone());
        let newer = older.is_none_or(|older| older.resource_version < pod.resource_version);
        assert!(newer, "{event} of what the client has already, or of something older");
    }

    /// Comes back with what it has, or learns that it has to list; `None` then.
    fn comes_back(mut self, cache: &WatchCache, filter: &WatchFilter) -> Option<Self> {
        let start = WatchStart::After(ResourceVersion(self.last));
        let mut watcher = match cache.watch(filter.clone(), start) {
            Ok(watcher) => watcher,
            Err(WatchRefusal::Expired { .. }) => return None,
            Err(WatchRefusal::NotReady) => panic!("it is ready"),
        };
        let mut seen = Vec::new();
        assert!(matches!(take_all(&mut watcher, &mut seen), Rest::Idle(_)));
        seen.iter().for_each(|seen| self.told(seen));
        Some(self)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A client is cut after each event of a relist, and comes back here, and where the history was never broken.
    #[test]
    fn a_client_that_is_cut_anywhere_converges(
        writes in vec(any_write(), 3..24),
        held in 0..24_usize,
        missed in 0..24_usize,
        by_label in any::<bool>(),
    ) {
        let truth = || Truth::new(&writes);
        let end = truth().now;
        let rv = |index: usize| truth().log.get(index).map_or(end, |(at, ..)| *at);
        let (from, to) = (rv(held), rv(held.saturating_add(missed)));
        let filter = if by_label { by_app("a") } else { WatchFilter::default() };
        let matching = |resource_version: u64| -> BTreeMap<String, Pod> {
            let pods = truth().at(resource_version);
            pods.into_iter().filter(|(_, pod)| !by_label || pod.app == "a").collect()
        };

        let [broken, whole] = [(); 2].map(|()| {
            let cache = cache_of(100, 1000, 1 << 20);
            cache.replace(Vec::new(), ResourceVersion(10), at(0));
            cache
        });
        truth().tell(&broken, 10, from);
        truth().tell(&whole, 10, end);
        let mut watcher = broken.watch(filter.clone(), WatchStart::Now).unwrap();
        broken.relist(truth().list(to), ResourceVersion(to), at(0)).unwrap();
        let mut batch = Vec::new();
        prop_assert_eq!(take_all(&mut watcher, &mut batch), Rest::Idle(to));
        truth().tell(&broken, to, end);

        let mut client = Client { pods: matching(from), last: from };
        for seen in std::iter::once(None).chain(batch.iter().map(Some)) {
            seen.into_iter().for_each(|seen| client.told(seen));
            for cache in [&broken, &whole] {
                if let Some(back) = client.clone().comes_back(cache, &filter) {
                    prop_assert_eq!(&back.pods, &matching(end));
                }
            }
            prop_assert!(client.clone().comes_back(&whole, &filter).is_some());
        }
        prop_assert_eq!(&client.pods, &matching(to));
        client.last = to;
        let back = client.comes_back(&broken, &filter).unwrap();
        prop_assert_eq!(back.pods, matching(end));

        // Those who come with a resourceVersion from elsewhere, and what is true then.
        for last in 10..=end {
            let elsewhere = Client { pods: matching(last), last };
            if let Some(back) = elsewhere.comes_back(&broken, &filter) {
                prop_assert_eq!(back.pods, matching(end), "from {}", last);
            } else {
                prop_assert!(from < last && last < to);
            }
        }
    }
}
