//! Lists through the field index, compared with a full scan of all objects.

use std::num::NonZeroUsize;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::cache::core::snapshot::{Continuation, PageRange, Snapshot};
use crate::cache::core::watch_cache::Change;

/// Computes the page that [`Snapshot::page`] must return by checking all objects.
fn expected_page(
    objects: &[Arc<Object>],
    filter: &WatchFilter,
    range: &PageRange<'_>,
) -> (Vec<Arc<Object>>, Option<Continuation>) {
    let namespace = filter.path_namespace();
    let prefix = namespace.map_or(String::new(), |namespace| format!("{namespace}/"));
    let from = format!("{prefix}{}", range.from);
    let counts = |object: &Object| match range.indexed {
        Some(field) => filter
            .fields
            .required_value_of(field)
            .is_none_or(|value| object.attrs().field(field) == value.as_bytes()),
        None => true,
    };
    let mut objects_in_range = objects.iter().filter(|object| {
        let key = object.key.as_str();
        key >= from.as_str() && key.starts_with(&prefix) && counts(object)
    });
    let limit = range.limit.map_or(usize::MAX, NonZeroUsize::get);
    let mut objects = Vec::new();
    while objects.len() < limit
        && let Some(object) = objects_in_range.next()
    {
        objects.extend(filter.matches(object).then(|| Arc::clone(object)));
    }
    let selects = !filter.labels.is_empty() || !filter.fields.is_empty();
    let rest = objects_in_range.count();
    let next = objects.last().filter(|_| rest > 0).map(|last| Continuation {
        last: last.key.as_str().replacen(&prefix, "", 1),
        remaining: (!selects).then_some(rest as u64),
    });
    (objects, next)
}

fn are_same(actual: &[Arc<Object>], expected: &[Arc<Object>]) -> bool {
    actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(actual, expected)| Arc::ptr_eq(actual, expected))
}

#[derive(Clone, Debug)]
enum Step {
    Put(Pod),
    Delete(Pod),
    Replace(Vec<Pod>),
    Relist(Vec<Pod>),
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let names = (select(&["ns1", "ns1-a", "ns10", "a"][..]), select(&["a", "b", "b-c", "b.c"][..]));
    (names, select(&["a", "b"][..]), select(&["", "x", "y"][..]))
        .prop_map(|((namespace, name), app, node)| Pod::new(namespace, name, 0).app(app).node(node))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any_pod().prop_map(Step::Put),
        4 => any_pod().prop_map(Step::Delete),
        1 => vec(any_pod(), 0..10).prop_map(Step::Replace),
        2 => vec(any_pod(), 0..10).prop_map(Step::Relist),
    ]
}

/// A filter with any combination of conditions, with namespace and name from the path or the
/// selector.
fn any_filter() -> impl Strategy<Value = WatchFilter> {
    let namespace = select(&["", "", "ns1", "ns10", "none"][..]);
    let in_selector = select(&["", "", "", "metadata.namespace=ns1", "metadata.namespace!=a"][..]);
    let name = select(&["", "", "", "metadata.name=b", "metadata.name!=b"][..]);
    let node = select(
        &[
            "spec.nodeName=x",
            "spec.nodeName=x",
            "spec.nodeName=",
            "spec.nodeName=none",
            "spec.nodeName!=x",
            "spec.nodeName=y,spec.nodeName=x",
            "status.phase=",
            "",
        ][..],
    );
    let app = select(&["", "", "a"][..]);
    (namespace, in_selector, name, node, app).prop_map(
        |(namespace, in_selector, name, node, app)| {
            let terms: Vec<_> =
                [in_selector, name, node].into_iter().filter(|term| !term.is_empty()).collect();
            WatchFilter {
                namespace: Some(namespace.into()),
                fields: fields(&terms.join(",")),
                ..if app.is_empty() { WatchFilter::default() } else { by_app(app) }
            }
        },
    )
}

proptest! {
    /// For any history and any version in it, each list and each page has the same objects in the
    /// same order as a full scan, and reads no more objects than `scan_max` returned.
    #[test]
    fn indexed_lists_equal_full_scans(
        steps in vec(any_step(), 0..30),
        filters in vec(any_filter(), 1..8),
        from in select(&["", "", "a", "b\0", "ns1/b\0", "ns2", "z"][..]),
        limit in 0..4_usize,
        counts_by_index in any::<bool>(),
    ) {
        let cache = cache_of(100, 100, 1 << 20);
        cache.replace(Vec::new(), ResourceVersion(1));
        for (number, step) in steps.into_iter().enumerate() {
            let revision = 2 + number as u64;
            let listed = |pods: Vec<Pod>| {
                let pods = pods_by_key(pods.into_iter().map(|pod| pod.at(revision)));
                (pods.values().map(Pod::object).collect::<Vec<_>>(), ResourceVersion(revision))
            };
            match step {
                Step::Put(pod) => {
                    cache.apply(vec![Change::Upsert(pod.at(revision).object())], at(0));
                }
                Step::Delete(pod) => {
                    cache.apply(vec![Change::Delete(pod.at(revision).object())], at(0));
                }
                Step::Replace(pods) => {
                    let (pods, listed_at) = listed(pods);
                    cache.replace(pods, listed_at);
                }
                Step::Relist(pods) => {
                    let (pods, listed_at) = listed(pods);
                    let _result = cache.relist(pods, listed_at, at(0));
                }
            }
        }
        let state = cache.state().unwrap();
        let indexed = counts_by_index.then(node_field);
        let oldest = state.exact_from().0;
        for revision in oldest..=state.resource_version().0 {
            let snapshot = Snapshot::at(&state, ResourceVersion(revision)).unwrap();
            let objects_held = snapshot.page(&WatchFilter::default(), &PageRange::default()).objects;
            prop_assert!(snapshot.store().is_index_consistent());
            for filter in &filters {
                for limit in [None, NonZeroUsize::new(limit)] {
                    let range = PageRange { from, limit, indexed, ..PageRange::default() };
                    let (objects, next) = expected_page(&objects_held, filter, &range);
                    let page = snapshot.page(filter, &range);
                    prop_assert!(are_same(&page.objects, &objects), "{:?} of {:?}", filter, objects_held);
                    prop_assert_eq!(page.next, next, "{:?} {:?} of {:?}", filter, range, objects_held);
                }
                let store = snapshot.store();
                let scanned = store.scan(filter, None).count();
                prop_assert!(scanned <= store.scan_max(filter));
                let first = store.scan(filter, None).next().map(|first| first.key.as_str());
                let after: Vec<_> = store.scan(filter, first).filter(|object| filter.matches(object)).collect();
                let expected = objects_held.iter().filter(|object| filter.matches(object) && Some(object.key.as_str()) > first);
                prop_assert_eq!(after.len(), expected.count());
            }
        }
    }
}

#[test]
fn an_indexed_list_reads_only_objects_with_the_value() {
    let cache = cache_of(10, 10, 1 << 20);
    let pod =
        |number: usize| Pod::new("ns", &format!("p{number}"), 1).node(["x", "y", "z"][number % 3]);
    cache.replace(
        (0..30).map(|number| pod(number).object()).collect::<Vec<_>>(),
        ResourceVersion(5),
    );
    let state = cache.state().unwrap();
    assert_eq!(state.scan_max(&on_node("x")), 10);
    assert_eq!(state.scan_max(&on_node("none")), 0);
    assert_eq!(state.scan_max(&by_app("a")), 30);
    assert_eq!(state.store().scan(&on_node("x"), None).count(), 10);
    let moved = Pod::new("ns", "p0", 6).node("y");
    cache.apply(vec![Change::Upsert(moved.object())], at(0));
    let state = cache.state().unwrap();
    assert_eq!((state.scan_max(&on_node("x")), state.scan_max(&on_node("y"))), (9, 11));
}
