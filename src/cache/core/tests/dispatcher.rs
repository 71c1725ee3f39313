//! Tests of the dispatcher: index keys, and indexes that are empty after all watchers were dropped.

use super::*;
use crate::cache::core::index_key::IndexKey;
use crate::cache::core::watcher::WatchStart;

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
fn a_filter_maps_to_its_narrowest_index_key() {
    let node = WatchFilter { fields: fields("spec.nodeName=n1"), ..in_namespace("ns1") };
    let label = WatchFilter { labels: by_app("a").labels, ..in_namespace("ns1") };
    let lifted = WatchFilter { fields: fields("metadata.name=a"), ..in_namespace("ns1") };
    let name = WatchFilter { fields: fields("metadata.name=a"), ..WatchFilter::default() };
    assert_eq!(IndexKey::from_filter(&WatchFilter::default()), IndexKey::Unindexed);
    assert_eq!(IndexKey::from_filter(&by_app("a")), IndexKey::Unindexed);
    assert_eq!(IndexKey::from_filter(&label), IndexKey::Namespace("ns1".into()));
    assert_eq!(IndexKey::from_filter(&node), IndexKey::Field(node_field(), (*b"n1").into()));
    assert_eq!(IndexKey::from_filter(&lifted), IndexKey::Object(Key::new("ns1", "a")));
    assert_eq!(IndexKey::from_filter(&name), IndexKey::Name("a".into()));
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
