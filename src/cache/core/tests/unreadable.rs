//! Objects that the cache cannot read. Clients read at the cache as long as it answers, and at the
//! upstream where it does not; they never miss an object or an event.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::cache::core::watch_cache::{Change, State, WatchRefusal};
use crate::cache::core::watcher::WatchStart;
use crate::codec::list::ListedObjects;
use crate::codec::unreadable::UnreadableObject;

/// The name of every object whose name cannot be read.
const ODD_NAME: &str = "r\u{fffd}";
const NAMESPACES: [&str; 3] = ["ns1", "ns1-a", "ns2"];
/// The names of the objects of a namespace. The last one can be read at even resourceVersions only.
const NAMES: [&str; 5] = ["a", "b", ODD_NAME, ODD_NAME, "t"];

/// The place of an object: the number of its namespace, and its own.
type Place = (usize, usize);

fn is_readable((_, number): Place, resource_version: u64) -> bool {
    match NAMES[number] {
        ODD_NAME => false,
        "t" => resource_version.is_multiple_of(2),
        _ => true,
    }
}

fn uid((namespace, number): Place) -> String {
    format!("u{namespace}{number}")
}

fn pod((namespace, number): Place, resource_version: u64) -> Pod {
    let uid = uid((namespace, number));
    Pod::new(NAMESPACES[namespace], NAMES[number], resource_version).uid(&uid)
}

fn unreadable((namespace, number): Place, resource_version: u64) -> UnreadableObject {
    UnreadableObject {
        namespace: NAMESPACES[namespace].into(),
        name: NAMES[number].into(),
        uid: uid((namespace, number)).into(),
        resource_version: ResourceVersion(resource_version),
    }
}

fn change(place: Place, resource_version: u64, is_deletion: bool) -> Change {
    match (is_readable(place, resource_version), is_deletion) {
        (true, true) => Change::Delete(pod(place, resource_version).object()),
        (true, false) => Change::Upsert(pod(place, resource_version).object()),
        (false, is_deletion) => {
            Change::Unreadable { object: unreadable(place, resource_version), is_deletion }
        }
    }
}

/// The upstream: every state, by resourceVersion.
#[derive(Debug)]
struct Upstream {
    /// The objects at each resourceVersion, each with its own.
    states: BTreeMap<u64, BTreeMap<Place, u64>>,
    /// The object that was changed at each resourceVersion.
    changed: BTreeMap<u64, Place>,
    pending: Vec<Change>,
}

impl Upstream {
    fn now(&self) -> u64 {
        *self.states.last_key_value().unwrap().0
    }

    fn at(&self, resource_version: u64) -> &BTreeMap<Place, u64> {
        self.states.range(..=resource_version).next_back().unwrap().1
    }

    fn write(&mut self, place: Place, is_deletion: bool) {
        let now = self.now() + 1;
        let mut state = self.at(now).clone();
        let existed = if is_deletion { state.remove(&place) } else { state.insert(place, now) };
        if is_deletion && existed.is_none() {
            return;
        }
        self.states.insert(now, state);
        self.changed.insert(now, place);
        self.pending.push(change(place, now, is_deletion));
    }

    fn listed(&self) -> ListedObjects {
        let (mut objects, mut others) = (Vec::new(), Vec::new());
        for (place, at) in self.at(self.now()) {
            match is_readable(*place, *at) {
                true => objects.push(pod(*place, *at).object()),
                false => others.push(unreadable(*place, *at)),
            }
        }
        ListedObjects { objects, unreadable: others }
    }

    /// Returns the objects that match a filter at a resourceVersion.
    fn matching(&self, filter: &Filter, resource_version: u64) -> BTreeMap<Place, u64> {
        let objects = self.at(resource_version).iter();
        objects.filter(|(place, _)| filter.matches(**place)).map(|(k, v)| (*k, *v)).collect()
    }

    /// Whether an object of a filter's namespace, or a change of one, could not be read at or after
    /// a resourceVersion.
    fn was_unreadable(&self, filter: &Filter, since: u64) -> bool {
        let later = self.changed.range(since + 1..).map(|(at, place)| (place, at));
        self.at(since).iter().chain(later).any(|(place, at)| {
            let is_of = filter.namespace.is_none_or(|wanted| wanted == place.0);
            is_of && !is_readable(*place, *at)
        })
    }
}

/// A filter by namespace and name. Each pod has the label.
#[derive(Clone, Copy, Debug)]
struct Filter {
    namespace: Option<usize>,
    number: Option<usize>,
    by_label: bool,
}

impl Filter {
    fn matches(&self, (namespace, number): Place) -> bool {
        self.namespace.is_none_or(|wanted| wanted == namespace)
            && self.number.is_none_or(|wanted| wanted == number)
    }

    fn watch_filter(&self) -> WatchFilter {
        let labels = if self.by_label { by_app("a").labels } else { LabelSelector::default() };
        WatchFilter {
            namespace: self.namespace.map(|namespace| NAMESPACES[namespace].into()),
            name: self.number.map(|number| NAMES[number].into()),
            labels,
            ..WatchFilter::default()
        }
    }
}

/// A client that watches, and reads at the upstream where the cache refuses.
struct Client {
    filter: Filter,
    objects: BTreeMap<Place, u64>,
    last: u64,
    watcher: Option<Watcher>,
    /// The state before the first relist: what was unreadable then counts as changed by a list.
    listed_after: u64,
}

impl Client {
    fn receive(&mut self, delivery: &Delivery) {
        let Delivery::Event(event, pod) = delivery else { panic!("it has a state") };
        let namespace = NAMESPACES.iter().position(|name| **name == pod.namespace).unwrap();
        let place = (namespace, NAMES.iter().position(|name| **name == pod.name).unwrap());
        assert!(self.filter.matches(place));
        let before = match &**event {
            "DELETED" => self.objects.remove(&place),
            _ => self.objects.insert(place, pod.resource_version),
        };
        assert_eq!(before.is_some(), event != "ADDED", "{event} {place:?}");
        assert!(pod.resource_version > self.last || event == "DELETED");
        self.last = self.last.max(pod.resource_version);
    }

    /// Reads all that there is.
    fn read(&mut self, cache: &WatchCache, upstream: &Upstream) {
        loop {
            if self.watcher.is_none() {
                let start = WatchStart::After(ResourceVersion(self.last));
                match cache.watch(self.filter.watch_filter(), start) {
                    Ok(watcher) => self.watcher = Some(watcher),
                    Err(refusal) => {
                        let at = cache.state().unwrap().resource_version().0;
                        return self.read_upstream(refusal, at, upstream);
                    }
                }
            }
            let Some(watcher) = &mut self.watcher else { return };
            let mut deliveries = Vec::new();
            let stop = read_all(watcher, &mut deliveries);
            deliveries.iter().for_each(|delivery| self.receive(delivery));
            match stop {
                Stop::Idle(at) => {
                    self.last = self.last.max(at);
                    let expected = upstream.matching(&self.filter, self.last);
                    assert_eq!(self.objects, expected, "{:?}", self.filter);
                    return;
                }
                Stop::Ended(_) => self.watcher = None,
            }
        }
    }

    /// Reads at the upstream what the cache, which has the state `at`, refused.
    fn read_upstream(&mut self, refusal: WatchRefusal, at: u64, upstream: &Upstream) {
        if refusal == WatchRefusal::Unreadable {
            let since = self.last.min(self.listed_after).min(at);
            assert!(upstream.was_unreadable(&self.filter, since), "{:?}", self.filter);
        }
        self.last = upstream.now();
        self.objects = upstream.matching(&self.filter, self.last);
    }
}

/// Checks what the cache would answer to lists and GETs at its state.
fn check(state: &State, filter: Filter, upstream: &Upstream) {
    let at = state.resource_version().0;
    let expected = upstream.matching(&filter, at);
    if state.covers(&filter.watch_filter()) {
        let listed = state.select(&filter.watch_filter());
        let versions: Vec<_> = listed.iter().map(|object| object.resource_version.0).collect();
        let mut expected: Vec<_> = expected.values().copied().collect();
        expected
            .sort_by_key(|at| listed.iter().position(|object| object.resource_version.0 == *at));
        assert_eq!(versions, expected, "{filter:?}");
    } else {
        assert!(upstream.was_unreadable(&filter, at), "{filter:?}");
    }
    if let (Some(namespace), Some(number)) = (filter.namespace, filter.number) {
        let key = Key::new(NAMESPACES[namespace], NAMES[number]);
        let is_absent = state.get(&key).is_none() && !state.unreadable().may_have(&key);
        assert_eq!(
            is_absent,
            !expected.keys().any(|place| NAMES[place.1] == NAMES[number]),
            "{key:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Place, bool),
    /// The cache receives what was written.
    Apply,
    Relist,
    Read(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let place = (0..NAMESPACES.len(), 0..NAMES.len());
    prop_oneof![
        6 => (place, prop::bool::weighted(0.4)).prop_map(|(place, is_deletion)| Step::Write(place, is_deletion)),
        4 => Just(Step::Apply),
        1 => Just(Step::Relist),
        5 => any::<usize>().prop_map(Step::Read),
    ]
}

fn any_filter() -> impl Strategy<Value = Filter> {
    let namespace = prop::option::weighted(0.7, 0..NAMESPACES.len());
    let number = prop::option::weighted(0.4, prop::sample::select(vec![0, 1, 4]));
    (namespace, number, any::<bool>()).prop_map(|(namespace, number, by_label)| Filter {
        namespace,
        number,
        by_label,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_client_misses_anything(
        first in vec((0..NAMESPACES.len(), 0..NAMES.len()), 0..6),
        filters in vec(any_filter(), 1..5),
        steps in vec(any_step(), 1..60),
    ) {
        let states = BTreeMap::from([(100, BTreeMap::new())]);
        let mut upstream = Upstream { states, changed: BTreeMap::new(), pending: Vec::new() };
        first.into_iter().for_each(|place| upstream.write(place, false));
        let cache = cache_of(100, 1000, 1 << 20);
        cache.replace(upstream.listed(), ResourceVersion(upstream.now()));
        upstream.pending.clear();
        let mut clients: Vec<_> = filters.iter().map(|filter| {
            let (last, objects) = (upstream.now(), upstream.matching(filter, upstream.now()));
            Client { filter: *filter, objects, last, watcher: None, listed_after: u64::MAX }
        }).collect();
        let mut follower = cache.follow(WatchStart::InitialEvents).unwrap();
        let mut followed = BTreeMap::new();
        let reads_last = (0..clients.len()).map(Step::Read);
        for step in steps.into_iter().chain([Step::Apply]).chain(reads_last) {
            match step {
                Step::Write(place, is_deletion) => upstream.write(place, is_deletion),
                Step::Apply => {
                    cache.apply(std::mem::take(&mut upstream.pending), at(0));
                }
                Step::Relist => {
                    upstream.pending.clear();
                    let before = cache.state().unwrap().resource_version().0;
                    for client in &mut clients {
                        client.listed_after = client.listed_after.min(before);
                    }
                    cache.relist(upstream.listed(), ResourceVersion(upstream.now()), at(0)).unwrap();
                }
                Step::Read(number) => {
                    let number = number % clients.len();
                    clients[number].read(&cache, &upstream);
                }
            }
            let state = cache.state().unwrap();
            filters.iter().for_each(|filter| check(&state, *filter, &upstream));
            let readable = upstream.at(state.resource_version().0).iter();
            let readable = readable.filter(|(place, at)| is_readable(**place, **at));
            let mut deliveries = Vec::new();
            prop_assert!(matches!(read_all(&mut follower, &mut deliveries), Stop::Idle(_)));
            for delivery in deliveries {
                match delivery {
                    Delivery::Event(event, pod) if event == "DELETED" => drop(followed.remove(&pod.key())),
                    Delivery::Event(_, pod) => drop(followed.insert(pod.key(), pod.resource_version)),
                    Delivery::InitialEventsEnd(_) => {}
                }
            }
            let expected: BTreeMap<_, _> = readable.map(|(place, at)| (pod(*place, *at).key(), *at)).collect();
            prop_assert_eq!(&followed, &expected);
        }
        prop_assert!(cache.state().unwrap().weight() > 0 || upstream.at(upstream.now()).is_empty());
    }
}

#[test]
fn the_last_changes_of_many_namespaces_are_remembered_together() {
    let cache = cache_of(100, 1000, 1 << 20);
    cache.replace(Vec::new(), ResourceVersion(10));
    let object = |number: u64| UnreadableObject {
        namespace: format!("ns{number}").into(),
        name: ODD_NAME.into(),
        uid: format!("u{number}").into(),
        resource_version: ResourceVersion(11 + number),
    };
    for is_deletion in [false, true] {
        let offset = if is_deletion { 1_000 } else { 0 };
        let changes = (0..300).map(|number| {
            let at = ResourceVersion(11 + number + offset);
            let object = UnreadableObject { resource_version: at, ..object(number) };
            Change::Unreadable { object, is_deletion }
        });
        cache.apply(changes.collect(), at(0));
    }
    let state = cache.state().unwrap();
    assert!(state.unreadable().is_empty() && state.weight() == 0);
    let last = |number: u64| ResourceVersion(11 + number + 1_000);
    for number in [0, 100, 299] {
        let filter = in_namespace(&format!("ns{number}"));
        assert!(state.covers(&filter));
        assert!(!state.covers_since(&filter, ResourceVersion(last(number).0 - 1)));
    }
    assert!(state.covers_since(&in_namespace("ns299"), last(299)));
    assert!(state.covers_since(&WatchFilter::default(), last(299)));
}
