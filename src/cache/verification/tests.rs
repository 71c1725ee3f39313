//! The comparison and the walk against a naive model of the upstream: every planted corruption is
//! found within one round, and nothing is found where nothing was planted, whatever the order of
//! events and pages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use crate::api::resource_version::ResourceVersion;
use crate::cache::core::page_comparison::{
    ExactPage, KeyDifference, MalformedPage, PageComparison, compare,
};
use crate::cache::core::watch_cache::{Change, Now, WatchCache, WindowLimits};
use crate::cache::verification::check::{page_objects, pages, whole_every};
use crate::cache::verification::walk::{RoundPages, Walk, WholePages};
use crate::codec::json;
use crate::codec::object::{Key, Object};
use crate::codec::unreadable::UnreadableObject;
use crate::testing::config_maps;

#[test]
fn large_collections_have_larger_pages_and_not_more() {
    let sizes = [0, 10, 25_000, 100_000, 250_000, 1_000_000].map(page_objects);
    assert_eq!(sizes, [500, 500, 500, 2_000, 5_000, 5_000]);
    let round = |objects, weight, every| {
        let RoundPages { total, whole } = pages(objects, weight, every);
        (total, whole)
    };
    for (objects, weight, expected) in [
        (0, 0, (1, WholePages::All)),
        (499, 1 << 20, (1, WholePages::All)),
        // Pages of whole objects have at most 4 MiB.
        (499, 100 << 20, (26, WholePages::All)),
        (25_000, 20 << 20, (51, WholePages::All)),
        (100_000, 100 << 20, (51, WholePages::All)),
        (100_000, 1 << 30, (145, WholePages::Run(33))),
        (100_000, 100 << 30, (730, WholePages::Run(534))),
    ] {
        let every = Some(whole_every(weight, 128 << 20));
        assert_eq!(round(objects, weight, every), expected, "{objects} of {weight} bytes");
    }
    assert_eq!(round(100_000, 100 << 20, None), (51, WholePages::None));
    assert_eq!(round(100, 60 << 10, Some(50)), (1, WholePages::Run(0)), "whole anyway");
}

#[test]
fn all_pages_have_whole_objects_while_these_are_few_bytes() {
    let sizes = [0, 1, 128 << 20, (128 << 20) + 1, 1 << 30, 1 << 40]
        .map(|bytes| whole_every(bytes, 128 << 20));
    assert_eq!(sizes, [1, 1, 1, 2, 8, 48]);
}

/// The objects of the upstream: each key's resourceVersion and uid.
type World = BTreeMap<Key, (u64, u64)>;

fn object(key: &Key, (resource_version, uid): (u64, u64), text: &str) -> Object {
    let (namespace, name) = (key.namespace(), key.name());
    let body = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{resource_version}"}},"data":{{"of":"{text}"}}}}"#
    );
    json::object(body.as_bytes(), &config_maps()).unwrap()
}

/// An object whose content follows from its resourceVersion.
fn proper(key: &Key, state: (u64, u64)) -> Object {
    object(key, state, &state.0.to_string())
}

/// A damage of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Corruption {
    /// An event was lost: the object is missing, or one is left that was deleted.
    LostEvent,
    /// An event was applied twice: a deleted object is there again.
    Doubled,
    /// An object has the content of before under its resourceVersion.
    OldBody,
    /// Two events of an object were applied in the wrong order: the older state won.
    WrongOrder,
    /// An object is in another namespace.
    WrongNamespace,
    /// An object was replaced by another one of its name, which the cache has not noticed.
    OldUid,
}

const CORRUPTIONS: [Corruption; 6] = [
    Corruption::LostEvent,
    Corruption::Doubled,
    Corruption::OldBody,
    Corruption::WrongOrder,
    Corruption::WrongNamespace,
    Corruption::OldUid,
];

struct Rig {
    cache: WatchCache,
    /// The upstream's state after each resourceVersion.
    worlds: BTreeMap<u64, World>,
    /// The changes that the cache has not received yet.
    pending: VecDeque<Change>,
    walk: Walk,
    page_objects: usize,
}

impl Rig {
    fn new(keys: &[u8], page_objects: usize, start: u8) -> Self {
        let world: World = keys.iter().zip(2..).map(|(id, n)| (key(*id), (n, n))).collect();
        let at = world.values().map(|(version, _)| *version).max().unwrap_or(0) + 1;
        let limits = WindowLimits {
            events_min: 4,
            events_max: 64,
            age: std::time::Duration::from_secs(75),
            bytes_max: 1 << 20,
            unread_from: u64::MAX,
            unread_bytes_max: 0,
        };
        let cache = WatchCache::new(limits);
        let objects: Vec<_> = world.iter().map(|(key, state)| proper(key, *state)).collect();
        cache.replace(objects, ResourceVersion(at));
        let worlds = BTreeMap::from([(at, world)]);
        let walk = Walk::new((start > 0).then(|| key(start)));
        Self { cache, worlds, pending: VecDeque::new(), walk, page_objects }
    }

    fn now(&self) -> (u64, World) {
        self.worlds.last_key_value().map(|(at, world)| (*at, world.clone())).unwrap()
    }

    /// Creates, updates or deletes an object upstream.
    fn write(&mut self, id: u8, is_delete: bool) {
        let (at, mut world) = self.now();
        let (key, at) = (key(id), at + 1);
        let change = match world.get(&key).copied() {
            Some(before) if is_delete => {
                world.remove(&key);
                Change::Delete(proper(&key, (at, before.1)))
            }
            before => {
                let state = (at, before.map_or(at, |(_, uid)| uid));
                world.insert(key.clone(), state);
                Change::Upsert(proper(&key, state))
            }
        };
        self.worlds.insert(at, world);
        self.pending.push_back(change);
    }

    /// Delivers the oldest pending changes to the cache.
    fn deliver(&mut self, count: usize) {
        let count = count.min(self.pending.len());
        let changes: Vec<_> = self.pending.drain(..count).collect();
        self.cache.apply(changes, NOW);
    }

    /// Compares the next page. Returns the comparison and whether a round is complete.
    fn check(&mut self) -> (PageComparison, bool) {
        let state = self.cache.state().unwrap();
        let world = self.worlds.get(&state.resource_version().0).unwrap();
        let after = self.walk.after().cloned();
        let mut rest = world.iter().filter(|(key, _)| Some(*key) > after.as_ref());
        let page = rest.by_ref().take(self.page_objects);
        let objects: Vec<_> = page.map(|(key, state)| proper(key, *state)).collect();
        let has_more = rest.next().is_some();
        let page = ExactPage {
            after: after.as_ref(),
            objects: &objects,
            has_more,
            has_unreadable: false,
            is_whole: true,
        };
        let compared = compare(&state, page).unwrap();
        let is_round = self.walk.advance(compared.through.clone(), 0);
        (compared, is_round)
    }

    /// Damages the cache, if it has a fitting object. Returns whether it did.
    fn corrupt(&self, corruption: Corruption, id: usize) -> bool {
        let state = self.cache.state().unwrap();
        let mut objects: Vec<Object> =
            state.store().iter().map(|object| (**object).clone()).collect();
        if objects.is_empty() {
            return false;
        }
        let index = id % objects.len();
        let (before, version) = (objects[index].key.clone(), objects[index].resource_version.0);
        let (at, world) = (state.resource_version(), &self.worlds[&state.resource_version().0]);
        let uid = world[&before].1;
        match corruption {
            Corruption::LostEvent => drop(objects.remove(index)),
            Corruption::Doubled => {
                let ghost = (100..).map(key).find(|key| !world.contains_key(key)).unwrap();
                objects.push(proper(&ghost, (at.0, at.0)));
            }
            Corruption::OldBody => objects[index] = object(&before, (version, uid), "old"),
            Corruption::WrongOrder => objects[index] = proper(&before, (version - 1, uid)),
            Corruption::WrongNamespace => {
                objects[index] = proper(&Key::new("other", before.name()), (version, uid));
            }
            Corruption::OldUid => {
                let text = version.to_string();
                objects[index] = object(&before, (version, uid + 1000), &text);
            }
        }
        self.cache.replace(objects, at)
    }

    /// Whether the cache has the upstream's state at its own resourceVersion.
    fn is_right(&self) -> bool {
        let state = self.cache.state().unwrap();
        let world = &self.worlds[&state.resource_version().0];
        let held = state.store().iter().map(|object| (object.key.clone(), object.body().to_vec()));
        held.eq(world.iter().map(|(key, state)| (key.clone(), proper(key, *state).body().to_vec())))
    }
}

/// Namespaces and names whose byte order is not that of their pairs.
fn key(id: u8) -> Key {
    Key::new(["ns", "ns-a", "ns.b"][usize::from(id % 3)], &format!("n{}", id / 3))
}

const NOW: Now = Now(std::time::Duration::ZERO);

#[derive(Clone, Debug)]
enum Step {
    Write(u8, bool),
    Deliver(usize),
    Check,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u8..60, any::<bool>()).prop_map(|(id, is_delete)| Step::Write(id, is_delete)),
        3 => (1usize..5).prop_map(Step::Deliver),
        4 => Just(Step::Check),
    ]
}

proptest! {
    /// No false alarm, whatever the order of writes, deliveries and pages.
    #[test]
    fn a_right_cache_never_differs(
        keys in prop::collection::btree_set(0u8..60, 0..40),
        page in 1usize..12,
        start in 0u8..60,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut rig = Rig::new(&keys.into_iter().collect::<Vec<_>>(), page, start);
        for step in steps {
            match step {
                Step::Write(id, is_delete) => rig.write(id, is_delete),
                Step::Deliver(count) => rig.deliver(count),
                Step::Check => {
                    let (compared, _) = rig.check();
                    prop_assert_eq!(compared.count, 0, "{:?}", compared.differences);
                }
            }
        }
    }

    /// Each corruption is found within one round, unless an event repairs it before.
    #[test]
    fn a_corruption_is_found_within_one_round(
        keys in prop::collection::btree_set(0u8..60, 1..40),
        page in 1usize..12,
        start in 0u8..60,
        kind in 0..CORRUPTIONS.len(),
        id in any::<usize>(),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut rig = Rig::new(&keys.into_iter().collect::<Vec<_>>(), page, start);
        prop_assert!(rig.corrupt(CORRUPTIONS[kind], id));
        let (mut differences, mut is_round) = (0, false);
        for step in steps {
            match step {
                Step::Write(id, is_delete) => rig.write(id, is_delete),
                Step::Deliver(count) => rig.deliver(count),
                Step::Check if !is_round => {
                    let (compared, is_complete) = rig.check();
                    (differences, is_round) = (differences + compared.count, is_complete);
                }
                Step::Check => {}
            }
        }
        while !is_round {
            let (compared, is_complete) = rig.check();
            (differences, is_round) = (differences + compared.count, is_complete);
        }
        prop_assert!(differences > 0 || rig.is_right());
    }

    /// While keys come and go, the bytes of each other object are compared within as many rounds as
    /// the collection has runs, and two: a run may be cut by the end of a round.
    #[test]
    fn the_runs_of_several_rounds_pass_all_objects(
        keys in prop::collection::btree_set(0u16..400, 1..60),
        start in prop::option::of(0u16..400),
        (run, more, whole) in (1u32..4, 0usize..15, 1usize..6),
        changes in prop::collection::vec(0u16..400, 1..50),
    ) {
        let name = |number: u16| Key::new("ns", &format!("{number:03}"));
        let lasting: BTreeSet<Key> = keys.into_iter().map(name).collect();
        let mut names: BTreeSet<Key> = changes.iter().copied().map(name).collect();
        names.extend(lasting.iter().cloned());
        // The end of the collection and the place of the start cut pages.
        let rounds = (names.len() / whole + 2).div_ceil(run as usize) + 2;
        let mut changes = changes.into_iter().map(name).cycle();
        let mut walk = Walk::new(start.map(name));
        let mut unseen = lasting.clone();
        let mut complete = 0;
        while complete < rounds {
            let is_whole = walk.is_in_run(run);
            let after = walk.after().cloned();
            let mut rest = names.iter().filter(|key| Some(*key) > after.as_ref());
            let objects: Vec<_> = rest.by_ref().take(if is_whole { whole } else { whole + more }).collect();
            let through = objects.last().filter(|_| rest.next().is_some()).map(|key| (*key).clone());
            if is_whole {
                unseen.retain(|key| !objects.contains(&key));
            }
            complete += usize::from(walk.advance(through, run));
            let change = changes.next().unwrap();
            if !lasting.contains(&change) && !names.remove(&change) {
                names.insert(change);
            }
        }
        prop_assert!(unseen.is_empty(), "{unseen:?} after {rounds} rounds");
    }

    /// The comparison finds exactly what a look at each key finds.
    #[test]
    fn the_comparison_equals_a_naive_one(
        held in prop::collection::btree_map(0u8..30, (1u64..4, 1u64..3), 0..20),
        listed in prop::collection::btree_map(0u8..30, (1u64..4, 1u64..3), 0..20),
        after in prop::option::of(0u8..30),
        has_more in any::<bool>(),
        is_whole in any::<bool>(),
    ) {
        let world = |versions: BTreeMap<u8, (u64, u64)>| -> World {
            versions.into_iter().map(|(id, state)| (key(id), state)).collect()
        };
        let after = after.map(key);
        let (held, mut listed) = (world(held), world(listed));
        listed.retain(|key, _| Some(key) > after.as_ref());
        let has_more = has_more && !listed.is_empty();
        let through = listed.last_key_value().map(|(key, _)| key.clone()).filter(|_| has_more);
        let rig = Rig::new(&[], 1, 0);
        let objects = |world: &World, text| {
            world.iter().map(|(key, state)| object(key, *state, text)).collect::<Vec<_>>()
        };
        rig.cache.replace(objects(&held, "held"), ResourceVersion(9));
        let listed_objects = objects(&listed, "listed");
        let page =
            ExactPage { after: after.as_ref(), objects: &listed_objects, has_more, has_unreadable: false, is_whole };
        let compared = compare(&rig.cache.state().unwrap(), page).unwrap();
        let mut keys: Vec<_> = held.keys().chain(listed.keys()).cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| Some(key) > after.as_ref());
        keys.retain(|key| through.as_ref().is_none_or(|through| key <= through));
        // The texts differ, so that whole objects always differ.
        keys.retain(|key| is_whole || held.get(key) != listed.get(key));
        prop_assert_eq!(compared.count, keys.len());
        for (key, difference) in keys.iter().zip(compared.differences) {
            let version = |world: &World| world.get(key).map(|(at, _)| ResourceVersion(*at));
            let (held, upstream) = (version(&held), version(&listed));
            prop_assert_eq!(difference, KeyDifference { key: key.clone(), held, upstream });
        }
    }
}

#[test]
fn a_damaged_page_is_the_upstreams_own_fault() {
    let rig = Rig::new(&[0, 1, 2], 10, 0);
    let state = rig.cache.state().unwrap();
    let [one, two] = [3, 6].map(|id| proper(&key(id), (1, 1)));
    let malformed = |after: Option<&Key>, objects: &[Object], has_more| {
        compare(
            &state,
            ExactPage { after, objects, has_more, has_unreadable: false, is_whole: false },
        )
        .unwrap_err()
    };
    assert_eq!(malformed(None, &[two, one.clone()], false), MalformedPage::Order);
    assert_eq!(malformed(None, &[one.clone(), one.clone()], false), MalformedPage::Order);
    assert_eq!(malformed(Some(&one.key), std::slice::from_ref(&one), false), MalformedPage::Order);
    assert_eq!(malformed(None, &[], true), MalformedPage::Empty);
    let newer = proper(&key(9), (1000, 1));
    assert_eq!(malformed(None, &[newer], false), MalformedPage::Newer);
}

/// A page may have nothing else, and the upstream may read by its metadata what the cache cannot
/// read as a whole.
#[test]
fn objects_that_cannot_be_read_are_not_compared() {
    let rig = Rig::new(&[0, 1, 2], 10, 0);
    let object = UnreadableObject {
        namespace: key(9).namespace().into(),
        name: key(9).name().into(),
        uid: "u".into(),
        resource_version: ResourceVersion(100),
    };
    rig.cache.apply(vec![Change::Unreadable { object, is_deletion: false }], NOW);
    let state = rig.cache.state().unwrap();
    // The order of the keys is 1, 2, 0.
    let compared = |after, objects: &[Object], has_more| {
        let (after, has_unreadable) = (key(after), true);
        let after = Some(&after);
        let page = ExactPage { after, objects, has_more, has_unreadable, is_whole: false };
        let compared = compare(&state, page).unwrap();
        (compared.count, compared.through)
    };
    assert_eq!(compared(1, &[], true), (0, Some(key(2))));
    assert_eq!(compared(0, &[], true).1, None);
    let [compared_before, other] = [9, 12].map(|id| proper(&key(id), (1, 1)));
    assert_eq!(compared(0, &[compared_before], false).0, 0);
    assert_eq!(compared(0, &[other], false).0, 1);
}
