//! Tests of older states and of pages.

use std::num::NonZeroUsize;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::api::selector::shard::{self, ShardSelector};
use crate::cache::core::snapshot::{Continuation, Page, PageRange, Snapshot};
use crate::cache::core::store::ScanIndex;
use crate::cache::core::visible::VisibleObjects;
use crate::cache::core::watch_cache::Change;

type Pods = BTreeMap<String, Pod>;

fn ready(pods: &[Pod], resource_version: u64, events: usize) -> WatchCache {
    let cache = cache_of(events, events, 1 << 20);
    cache.replace(
        pods.iter().map(Pod::object).collect::<Vec<_>>(),
        ResourceVersion(resource_version),
    );
    cache
}

fn snapshot(cache: &WatchCache, resource_version: u64) -> Option<Vec<Pod>> {
    let snapshot = Snapshot::at(&cache.state().unwrap(), ResourceVersion(resource_version))?;
    assert_eq!(snapshot.resource_version(), ResourceVersion(resource_version));
    Some(pods(&snapshot.page(&WatchFilter::default(), &PageRange::default())))
}

fn pods(page: &Page) -> Vec<Pod> {
    let read = |body: &[u8]| Pod::from_json(&serde_json::from_slice(body).unwrap());
    page.objects.iter().map(|object| read(object.body())).collect()
}

fn names(page: &Page) -> Vec<&str> {
    page.objects.iter().map(|object| object.key.as_str()).collect()
}

fn limit(limit: usize) -> PageRange<'static> {
    PageRange { limit: NonZeroUsize::new(limit), ..PageRange::default() }
}

fn next(last: &str, remaining: Option<u64>) -> Option<Continuation> {
    Some(Continuation { last: last.to_owned(), remaining })
}

#[test]
fn a_deleted_object_is_restored() {
    let old = Pod::new("a", "p", 3);
    let cache = ready(std::slice::from_ref(&old), 5, 100);
    cache.apply(vec![Change::Upsert(old.at(6).app("b").object())], at(0));
    cache.apply(vec![Change::Delete(old.at(8).object())], at(0));
    cache.apply(vec![Change::Upsert(old.at(9).object())], at(0));
    cache.apply(vec![Change::Progress(ResourceVersion(12))], at(0));
    for (resource_version, expected) in [
        (4, None),
        (5, Some(vec![old.clone()])),
        (6, Some(vec![old.at(6).app("b")])),
        (7, Some(vec![old.at(6).app("b")])),
        (8, Some(vec![])),
        (9, Some(vec![old.at(9)])),
        (12, Some(vec![old.at(9)])),
        (13, None),
    ] {
        assert_eq!(snapshot(&cache, resource_version), expected, "{resource_version}");
    }
}

#[test]
fn no_state_before_the_last_list_is_available() {
    let cache = ready(&[Pod::new("a", "p", 3)], 5, 100);
    cache.apply(vec![Change::Upsert(Pod::new("a", "q", 6).object())], at(0));
    cache.replace(vec![Pod::new("a", "r", 7).object()], ResourceVersion(9));
    assert_eq!(snapshot(&cache, 6), None);
    assert_eq!(snapshot(&cache, 8), None, "a list does not contain the changes before it");
    assert_eq!(snapshot(&cache, 9), Some(vec![Pod::new("a", "r", 7)]));
}

#[test]
fn a_page_reports_more_objects_regardless_of_selectors() {
    let pods = [("a", 1), ("b", 2), ("c", 3)].map(|(name, at)| Pod::new("ns", name, at));
    let cache = ready(&[pods[0].clone().app("x"), pods[1].clone(), pods[2].clone()], 5, 100);
    let snapshot = Snapshot::latest(&cache.state().unwrap());
    let page = |filter: &WatchFilter, range: PageRange<'_>| {
        let page = snapshot.page(filter, &range);
        (names(&page).join(" "), page.next.clone())
    };
    let everything = WatchFilter::default();
    assert_eq!(page(&everything, limit(2)), ("ns/a ns/b".to_owned(), next("ns/b", Some(1))));
    assert_eq!(page(&everything, limit(3)), ("ns/a ns/b ns/c".to_owned(), None));
    assert_eq!(page(&in_namespace("ns"), limit(1)), ("ns/a".to_owned(), next("a", Some(2))));
    assert_eq!(page(&by_app("x"), limit(1)), ("ns/a".to_owned(), next("ns/a", None)));
    assert_eq!(page(&by_app("x"), limit(2)), ("ns/a".to_owned(), None));
    let after = PageRange { from: "a\0", ..limit(1) };
    assert_eq!(page(&in_namespace("ns"), after), ("ns/b".to_owned(), next("b", Some(1))));
    let remaining = PageRange { from: "ns/a\0", ..PageRange::default() };
    assert_eq!(page(&everything, remaining), ("ns/b ns/c".to_owned(), None));
    assert_eq!(page(&by_app("x"), PageRange { from: "ns/a\0", ..limit(1) }), (String::new(), None));
    assert_eq!(
        page(&in_namespace("ns"), PageRange { from: "zz", ..limit(1) }),
        (String::new(), None)
    );
    assert_eq!(page(&in_namespace("n"), limit(1)), (String::new(), None));
}

/// As kube-apiserver 1.36 counts: from the first object of the page, less the limit.
#[test]
fn a_page_of_a_shard_may_count_the_objects_that_it_leaves_out() {
    let pods: Vec<_> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .map(|name| Pod::new(if name == "c" || name == "d" { "in" } else { "out" }, name, 1))
        .collect();
    let cache = ready(&pods, 5, 100);
    let snapshot = Snapshot::latest(&cache.state().unwrap());
    let start = shard::hash(b"in");
    let text = format!(
        "shardRange(object.metadata.namespace,'0x{start:016x}','0x{:016x}')",
        u128::from(start) + 1
    );
    let filter =
        WatchFilter { shard: ShardSelector::parse(&text).map(Arc::new), ..WatchFilter::default() };
    let page = |from, counts_shard| {
        let page = snapshot.page(&filter, &PageRange { from, counts_shard, ..limit(1) });
        (names(&page).join(" "), page.next.clone())
    };
    assert_eq!(page("", true), ("in/c".to_owned(), next("in/c", Some(4))));
    assert_eq!(page("", false), ("in/c".to_owned(), next("in/c", None)));
    assert_eq!(page("in/c\0", true), ("in/d".to_owned(), next("in/d", Some(3))));
    assert_eq!(page("in/d\0", true), (String::new(), None));
}

#[test]
fn an_upstream_index_affects_only_lists_of_the_newest_state() {
    let on = |name: &str, at: u64, node: &str| Pod::new("ns", name, at).node(node);
    let cache = ready(&[on("a", 1, "x"), on("b", 2, "y"), on("c", 3, "x"), on("d", 4, "y")], 5, 9);
    let snapshot = Snapshot::latest(&cache.state().unwrap());
    let indexed = pod_fields().indexed();
    assert_eq!(indexed, Some(node_field()));
    let page = |limit: PageRange<'_>| snapshot.page(&on_node("x"), &limit).next;
    assert_eq!(page(limit(2)), next("ns/c", None));
    assert_eq!(page(PageRange { indexed, ..limit(2) }), None);
    assert_eq!(page(PageRange { indexed, ..limit(1) }), next("ns/a", None));
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let names = (select(&["ns1", "ns1-a", "ns10", "a"][..]), select(&["a", "b", "b-c", "b.c"][..]));
    (names, select(&["a", "b"][..]), select(&["x", "y"][..]))
        .prop_map(|((namespace, name), app, node)| Pod::new(namespace, name, 0).app(app).node(node))
}

proptest! {
    /// Every state in the range of the history is restored exactly, and any other is refused.
    #[test]
    fn every_state_in_the_history_is_restored(
        listed in vec(any_pod(), 0..8),
        changes in vec((any_pod(), any::<bool>(), 1..4_u64), 0..40),
        events in 1..20_usize,
    ) {
        let listed: Vec<_> = listed.iter().map(|pod| pod.at(1)).collect();
        let mut current: Pods = pods_by_key(listed);
        let listed: Vec<_> = current.values().cloned().collect();
        let cache = ready(&listed, 10, events);
        let mut states = BTreeMap::from([(10, current.clone())]);
        let mut revision = 10;
        for (pod, delete, step) in changes {
            revision += step;
            let pod = pod.at(revision);
            let change = if delete {
                current.remove(&pod.key());
                Change::Delete(pod.object())
            } else {
                current.insert(pod.key(), pod.clone());
                Change::Upsert(pod.object())
            };
            cache.apply(vec![change], at(0));
            states.insert(revision, current.clone());
        }
        let oldest = cache.state().unwrap().exact_from().0;
        for wanted in 8..=revision + 1 {
            let (_, then) = states.range(..=wanted).next_back().unwrap_or((&0, &current));
            let expected = (oldest..=revision).contains(&wanted).then(|| then.values().cloned().collect());
            prop_assert_eq!(snapshot(&cache, wanted), expected, "{} of {}", wanted, oldest);
        }
    }

    /// Reading pages of any size returns each object once, in order.
    #[test]
    fn paging_returns_each_object_once(
        listed in vec(any_pod(), 0..16),
        namespace in select(&["", "ns1", "a"][..]),
        selects in any::<bool>(),
        visible in proptest::option::of(subsequence(&["ns1", "ns1-a", "ns10", "a"][..], 0..=4)),
        limits in vec(1..5_usize, 1..4),
    ) {
        let listed: Vec<_> = pods_by_key(listed).into_values().map(|pod| pod.at(1)).collect();
        let cache = ready(&listed, 10, 10);
        let snapshot = Snapshot::latest(&cache.state().unwrap());
        let mut filter = if selects { by_app("a") } else { WatchFilter::default() };
        filter.namespace = Some(namespace.into());
        filter.visible = visible.map(VisibleObjects::in_namespaces).map(Arc::new);
        let whole = snapshot.page(&filter, &PageRange::default());
        let (mut deliveries, mut from) = (Vec::new(), String::new());
        for limit in limits.iter().cycle() {
            let range = PageRange { from: &from, limit: NonZeroUsize::new(*limit), ..PageRange::default() };
            let page = snapshot.page(&filter, &range);
            deliveries.extend(page.objects);
            let Some(next) = page.next else { break };
            if let Some(remaining) = next.remaining {
                prop_assert_eq!(deliveries.len() + usize::try_from(remaining).unwrap(), whole.objects.len());
            }
            from = format!("{}\0", next.last);
        }
        let keys = |objects: &[Arc<Object>]| -> Vec<String> {
            objects.iter().map(|object| object.key.as_str().to_owned()).collect()
        };
        prop_assert_eq!(keys(&deliveries), keys(&whole.objects));
    }
}

#[test]
fn a_page_says_what_was_read_for_it() {
    let pods = (0..20).map(|number| {
        let namespace = format!("ns{}", number % 2);
        Pod::new(&namespace, &format!("p{number}"), 3).object()
    });
    let cache = cache_of(10, 10, 1 << 20);
    cache.replace(pods.collect::<Vec<_>>(), ResourceVersion(9));
    let latest = Snapshot::latest(&cache.state().unwrap());
    let read = |filter: &WatchFilter, limit| {
        let limit = NonZeroUsize::new(limit);
        let page = latest.page(filter, &PageRange { limit, ..PageRange::default() });
        (page.index, page.scanned, page.objects.len())
    };
    assert_eq!(read(&WatchFilter::default(), 0), (ScanIndex::None, 20, 20));
    assert_eq!(read(&WatchFilter::default(), 3), (ScanIndex::None, 3, 3));
    assert_eq!(read(&in_namespace("ns1"), 0), (ScanIndex::Namespace, 10, 10));
    assert_eq!(read(&by_app("none"), 0), (ScanIndex::None, 20, 0));
    let one = WatchFilter { name: Some("p3".into()), ..in_namespace("ns1") };
    assert_eq!(read(&one, 0), (ScanIndex::Name, 1, 1));
}
