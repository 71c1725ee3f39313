//! Tests of the dispatcher: which watchers an event marks, compared with an evaluation of every
//! filter, and indexes that are empty after all watchers were dropped.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::api::media_type::View;
use crate::api::selector::shard::{self, ShardSelector};
use crate::cache::core::event::Event;
use crate::cache::core::term_index::TermIndex;
use crate::cache::core::visible::VisibleObjects;
use crate::cache::core::watch_cache::Change;
use crate::cache::core::watcher::WatchStart;

/// A filter by a label selector and a field selector.
fn by(labels: &str, fields_text: &str) -> WatchFilter {
    let labels = LabelSelector::parse(labels).unwrap();
    WatchFilter { labels, fields: fields(fields_text), ..WatchFilter::default() }
}

/// A filter by the namespaces whose hash is that of this one.
fn in_shard_of(namespace: &str) -> WatchFilter {
    let hash = shard::hash(namespace.as_bytes());
    let (from, to) = (format!("0x{hash:016x}"), format!("0x{:016x}", hash + 1));
    let text = format!("shardRange(object.metadata.namespace,'{from}','{to}')");
    let shard = Some(Arc::new(ShardSelector::parse(&text).unwrap()));
    WatchFilter { shard, ..WatchFilter::default() }
}

fn visible(objects: VisibleObjects) -> WatchFilter {
    WatchFilter { visible: Some(Arc::new(objects)), ..WatchFilter::default() }
}

/// A pod with other labels, and with values of `spec.nodeName` and `spec.hostNetwork`. A pod
/// without these values has no fields.
fn pod(
    (namespace, name, revision): (&str, &str, u64),
    labels: &[(&str, &str)],
    values: Option<[&str; 2]>,
) -> Object {
    let object = Pod::new(namespace, name, revision).object();
    let mut fields = vec![Cow::Borrowed(&b""[..]); values.map_or(0, |_| pod_fields().len())];
    for (field, value) in
        [node_field(), network_field()].into_iter().zip(values.into_iter().flatten())
    {
        fields[field] = Cow::Borrowed(value.as_bytes());
    }
    let labels = labels.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
    let attrs = attrs::encode(&fields, labels);
    let (version, attrs) = (object.resource_version, Attrs::new(&attrs));
    Object::new((namespace, name), version, attrs, object.body(), object.layout)
}

fn network_field() -> usize {
    fields("spec.hostNetwork=true").required_values().next().unwrap().0
}

/// Returns which of the filters have a watch that is marked for a change of one object.
fn marked(filters: &[WatchFilter], before: Option<Object>, change: Change) -> Vec<usize> {
    let cache = cache_of(10, 10, 1 << 20);
    cache.replace(Vec::from_iter(before), ResourceVersion(5));
    let start = |filter: &WatchFilter| cache.watch(filter.clone(), WatchStart::Now).unwrap();
    let watchers: Vec<_> = filters.iter().map(start).collect();
    cache.apply(vec![change], at(0));
    (0..watchers.len()).filter(|number| !watchers[*number].is_idle()).collect()
}

#[test]
fn an_event_marks_the_watches_that_it_concerns_and_no_others() {
    let on_node = fields("spec.hostNetwork=false,spec.nodeName=n1");
    let named = WatchFilter { name: Some("a".into()), ..in_namespace("ns1") };
    let filters = [
        by("app=a", ""),
        by("app in (a,b)", ""),
        by("tier", ""),
        by("!odd", ""),
        by("app!=c", ""),
        by("app notin (c,d)", ""),
        by("tier>1", ""),
        by("app=a,!odd", "spec.nodeName!=n2"),
        by("", "spec.hostNetwork=false,spec.nodeName=n1"),
        WatchFilter { fields: on_node, ..in_namespace("ns1") },
        WatchFilter { labels: by("app=a", "").labels, ..in_namespace("ns1") },
        by("", "metadata.name=a"),
        named,
        in_namespace("ns1"),
        in_shard_of("ns1"),
        visible(VisibleObjects::in_namespaces(["ns", "ns1"])),
        WatchFilter {
            visible: visible(VisibleObjects::in_namespaces(["ns1"])).visible,
            ..by("app", "")
        },
    ];
    let every: Vec<_> = (0..filters.len()).collect();
    let matching =
        |at| pod(("ns1", "a", at), &[("app", "a"), ("tier", "2")], Some(["n1", "false"]));
    let other = |name: (&'static str, &'static str), at| {
        let labels = [("app", "c"), ("odd", "")];
        pod((name.0, name.1, at), &labels, Some(["n2", "false"]))
    };
    let none: [usize; 0] = [];
    let elsewhere = |at| other(("ns2", "b"), at);
    assert_eq!(marked(&filters, None, Change::Upsert(elsewhere(6))), none);
    assert_eq!(marked(&filters, Some(elsewhere(5)), Change::Upsert(elsewhere(6))), none);
    assert_eq!(marked(&filters, Some(elsewhere(5)), Change::Delete(elsewhere(6))), none);
    assert_eq!(marked(&filters, None, Change::Upsert(matching(6))), every);
    assert_eq!(marked(&filters, Some(matching(5)), Change::Upsert(matching(6))), every);
    assert_eq!(marked(&filters, Some(matching(5)), Change::Delete(matching(6))), every);
    // The object leaves the selectors, and enters them again.
    let left = |at| other(("ns1", "a"), at);
    assert_eq!(marked(&filters, Some(matching(5)), Change::Upsert(left(6))), every);
    assert_eq!(marked(&filters, Some(left(5)), Change::Upsert(matching(6))), every);
    let cluster_scoped =
        [visible(VisibleObjects::with_names(["a"])), visible(VisibleObjects::default())];
    let named = |name| Change::Upsert(pod(("", name, 6), &[], None));
    assert_eq!(marked(&cluster_scoped, None, named("a")), [0]);
    assert_eq!(marked(&cluster_scoped, None, named("b")), none);
}

/// With more comparisons than the mutex may be held for, a watch may be marked that nothing
/// concerns: it finds out itself.
#[test]
fn many_costly_filters_are_not_all_evaluated_under_the_mutex() {
    let values: Vec<String> = (0..480).map(|number| format!("v{number}")).collect();
    let mut filters = vec![by("app=v0", "")];
    let costly = |number| by(&format!("app notin ({}),!k{number}", values.join(",")), "");
    filters.extend((0..300).map(costly));
    let change = Change::Upsert(pod(("ns1", "a", 6), &[("app", "v0")], None));
    let marked = marked(&filters, None, change);
    assert!(marked.contains(&0), "the one that matches");
    assert!((100..300).contains(&marked.len()), "{}", marked.len());
}

#[test]
fn a_filter_is_found_by_its_narrowest_term() {
    let mut index = TermIndex::default();
    index.indexed = Some(node_field());
    let object = pod(("ns1", "a", 1), &[("app", "a"), ("tier", "x")], Some(["n1", "false"]));
    let event = Event::upserted(Arc::new(object), None, at(0));
    let in_ns2 = |filter| WatchFilter { namespace: Some("ns2".into()), ..filter };
    let others = [
        by("app=a", "metadata.name=b"),
        by("app=a", "spec.hostNetwork=false,spec.nodeName=n2"),
        by("tier in (x,y),app=b", "spec.hostNetwork=false"),
        by("app=b", "spec.hostNetwork=false"),
        by("odd", ""),
        in_ns2(by("app=a", "")),
        in_ns2(by("", "spec.nodeName=n1")),
        in_ns2(by("!odd", "")),
        visible(VisibleObjects::in_namespaces(["ns2", "ns3"])),
    ];
    let found =
        [by("tier=x,odd=a", ""), by("!app", ""), by("app", "spec.nodeName="), in_namespace("ns1")];
    let filters: Vec<_> = others.iter().chain(&found).cloned().map(Arc::new).collect();
    for (number, filter) in filters.iter().enumerate() {
        index.add(number as u64, filter);
    }
    let mut visited = BTreeSet::new();
    index.for_each(&event, |number, _| visited.extend([number]));
    assert!(visited.into_iter().eq(others.len() as u64..filters.len() as u64));
}

/// A filter with any combination of conditions.
fn any_filter() -> impl Strategy<Value = WatchFilter> {
    let many = (0..20).map(|number| format!("v{number}")).collect::<Vec<_>>().join(",");
    let labels = [
        "",
        "",
        "app=a",
        "app in (a,b)",
        "app in (,b)",
        "app",
        "!app",
        "app!=a",
        "app notin (a,b)",
        "tier=x,app=a",
        "tier in (x,y),!app",
        "app=a,app=b",
        "tier>1",
        "app=",
    ];
    let labels = labels.into_iter().map(str::to_owned).chain([format!("app in (a,{many})")]);
    let by_fields = [
        "",
        "",
        "",
        "spec.nodeName=n1",
        "spec.nodeName=",
        "spec.nodeName!=n1",
        "spec.hostNetwork=false",
        "spec.hostNetwork=false,spec.nodeName=n1",
        "spec.hostNetwork=",
        "metadata.name=a",
        "metadata.namespace=ns1",
        "metadata.namespace=ns1,spec.nodeName=n1",
        "metadata.namespace!=ns1",
    ];
    let namespace = weighted(0.3, select(&["", "ns1", "ns10"][..]));
    let name = weighted(0.1, select(&["a", "b"][..]));
    let names = prop_oneof![
        subsequence(&["ns1", "ns10", "ns2"][..], 0..=3).prop_map(VisibleObjects::in_namespaces),
        subsequence(&["a", "b"][..], 0..=2).prop_map(VisibleObjects::with_names),
    ];
    let shard = weighted(0.1, select(&["ns1", "ns10"][..]));
    let selectors = (select(labels.collect::<Vec<_>>()), select(by_fields.to_vec()));
    (namespace, name, selectors, weighted(0.2, names), shard).prop_map(
        |(namespace, name, (labels, fields), visible, shard)| WatchFilter {
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            visible: visible.map(Arc::new),
            shard: shard.and_then(|namespace| in_shard_of(namespace).shard),
            ..by(&labels, fields)
        },
    )
}

proptest! {
    /// An event marks exactly the watches for which it has a frame, whatever the filters are and
    /// whichever watches have ended since.
    #[test]
    fn marks_equal_those_of_a_naive_evaluation(
        filters in vec(any_filter(), 1..12),
        batches in vec((vec(any_change(), 1..4), 0..8_usize, 0..40_usize), 1..20),
    ) {
        let cache = cache_of(100, 100, 1 << 20);
        cache.replace(Vec::new(), ResourceVersion(1));
        let watch = |filter: &WatchFilter| (filter.clone(), cache.watch(filter.clone(), WatchStart::Now).unwrap());
        let mut watches: Vec<_> = filters.iter().chain(&filters).map(watch).collect();
        let mut revision = 1;
        for (changes, kind, dropped) in batches {
            let from = cache.state().unwrap().history().end_seq();
            let changes: Vec<_> = changes.into_iter().map(|(place, labels, values, is_deletion)| {
                revision += 1;
                let object = pod((place.0, place.1, revision), &labels, values);
                if is_deletion { Change::Delete(object) } else { Change::Upsert(object) }
            }).collect();
            if kind == 0 {
                // The last state of each of these objects, and no other ones.
                let listed = changes.into_iter().filter_map(|change| match change {
                    Change::Upsert(object) => Some((object.key.clone(), object)),
                    _ => None,
                });
                let listed: HashMap<_, _> = listed.collect();
                cache.relist(listed.into_values().collect::<Vec<_>>(), ResourceVersion(revision), at(0)).unwrap();
            } else {
                cache.apply(changes, at(0));
            }
            let state = cache.state().unwrap();
            let events: Vec<_> = state.history().events(from, state.history().end_seq()).collect();
            for (filter, watcher) in &mut watches {
                let frames = events.iter().filter(|(_, event)| event.frame(filter, View::Full).is_some());
                let frames = frames.count();
                prop_assert_eq!(watcher.is_idle(), frames == 0, "{:?} of {:?}", filter, events);
                let mut read = 0;
                while let Batch::Frames { events, .. } = watcher.next_batch(1 << 20) {
                    read += events;
                }
                prop_assert_eq!(read, frames);
                watcher.take_bookmark_due();
            }
            if dropped < watches.len() {
                watches.swap_remove(dropped);
            }
        }
        drop(watches);
        prop_assert!(cache.indexes_are_empty());
    }
}

type AnyChange = (
    (&'static str, &'static str),
    Vec<(&'static str, &'static str)>,
    Option<[&'static str; 2]>,
    bool,
);

/// Namespace and name, labels, fields, and whether the object is deleted.
fn any_change() -> impl Strategy<Value = AnyChange> {
    let place = (select(&["ns1", "ns10", "ns2", ""][..]), select(&["a", "b"][..]));
    let labels = [("app", "a"), ("app", "b"), ("app", "v3"), ("app", "")];
    let labels = (of(select(labels.to_vec())), of(select(&[("tier", "x"), ("tier", "2")][..])));
    let labels = labels.prop_map(|(app, tier)| app.into_iter().chain(tier).collect());
    let values = (select(&["n1", "n2", ""][..]), select(&["true", "false"][..]));
    let values = weighted(0.8, values.prop_map(|(node, network)| [node, network]));
    (place, labels, values, proptest::bool::weighted(0.25))
}

fn filters() -> Vec<WatchFilter> {
    let named = WatchFilter { name: Some("a".into()), ..WatchFilter::default() };
    let mut filters = vec![
        WatchFilter::default(),
        by_app("a"),
        named.clone(),
        WatchFilter { namespace: Some("ns1".into()), ..named },
    ];
    for n in 0..20 {
        filters.push(in_namespace(&format!("ns{n}")));
        filters.push(on_node(&format!("n{n}")));
        filters.push(WatchFilter {
            fields: fields(&format!("metadata.name=a,metadata.namespace=ns{n}")),
            ..WatchFilter::default()
        });
    }
    filters
}

#[test]
fn thousands_of_dropped_watchers_leave_the_indexes_empty() {
    let cache = cache_of(10, 10, 1 << 20);
    cache.replace(Vec::new(), ResourceVersion(1));
    let filters = filters();
    let starts = [WatchStart::Now, WatchStart::InitialEvents];
    let mut watchers: Vec<Watcher> = (0..5000)
        .map(|n| cache.watch(filters[n % filters.len()].clone(), starts[n % 2]).unwrap())
        .collect();
    assert_eq!(cache.watchers(), 5000);
    assert!(!cache.indexes_are_empty());
    let mut random = fastrand::Rng::with_seed(1);
    random.shuffle(&mut watchers);
    let last = watchers.pop();
    drop(watchers);
    assert_eq!(cache.watchers(), 1);
    drop(last);
    assert_eq!(cache.watchers(), 0);
    assert!(cache.indexes_are_empty());
}
