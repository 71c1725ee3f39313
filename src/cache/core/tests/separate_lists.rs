//! A watch that starts from a separately listed state receives what it would receive from a cache
//! that had reached that state by itself.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::cache::core::watch_cache::{Change, WatchRefusal};
use crate::cache::core::watcher::WatchStart;

/// A write to a pod. Deleting a missing pod becomes a bookmark.
#[derive(Clone, Debug)]
struct PodChange {
    pod: Pod,
    deletes: bool,
    increase: u64,
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let (namespaces, names) = (select(&["ns1", "ns1-a"][..]), select(&["a", "b", "c"][..]));
    let (nodes, apps) = (select(&["n1", "n2"][..]), select(&["a", "b"][..]));
    (namespaces, names, nodes, apps)
        .prop_map(|(namespace, name, node, app)| Pod::new(namespace, name, 1).node(node).app(app))
}

fn any_change() -> impl Strategy<Value = PodChange> {
    (any_pod(), prop::bool::weighted(0.3), 1..3_u64)
        .prop_map(|(pod, deletes, increase)| PodChange { pod, deletes, increase })
}

/// Every state with its resourceVersion, and the changes between them.
struct Upstream {
    states: Vec<(u64, BTreeMap<String, Pod>)>,
    changes: Vec<Option<Pod>>,
}

impl Upstream {
    fn new(first: Vec<Pod>, pod_changes: Vec<PodChange>) -> Self {
        let mut upstream = Self { states: vec![(5, pods_by_key(first))], changes: Vec::new() };
        for change in pod_changes {
            let (last, mut pods) = upstream.states.last().unwrap().clone();
            let at = last + change.increase;
            let key = change.pod.key();
            upstream.changes.push(if change.deletes {
                pods.remove(&key).map(|gone| gone.at(at))
            } else {
                let pod = change.pod.at(at);
                pods.insert(key, pod.clone());
                Some(pod)
            });
            upstream.states.push((at, pods));
        }
        upstream
    }

    fn objects(&self, index: usize) -> Vec<Object> {
        self.states[index].1.values().map(Pod::object).collect()
    }

    fn cache(&self) -> WatchCache {
        let cache = cache_of(1000, 1000, usize::MAX);
        cache.replace(self.objects(0), ResourceVersion(5));
        cache
    }

    fn apply(&self, cache: &WatchCache, from: usize, to: usize) {
        let changes = (from..to).map(|index| {
            let (at, pods) = &self.states[index + 1];
            match &self.changes[index] {
                Some(pod) if pods.contains_key(&pod.key()) => Change::Upsert(pod.object()),
                Some(gone) => Change::Delete(gone.object()),
                None => Change::Progress(ResourceVersion(*at)),
            }
        });
        cache.apply(changes.collect(), at(0));
    }
}

fn filters() -> Vec<WatchFilter> {
    vec![WatchFilter::default(), in_namespace("ns1"), by_app("a"), on_node("n1")]
}

proptest! {
    #[test]
    fn a_watch_from_a_separate_list_receives_the_same_events(
        first in vec(any_pod(), 0..6),
        pod_changes in vec(any_change(), 0..30),
        held in any::<prop::sample::Index>(),
        listed in any::<prop::sample::Index>(),
        filter in select((0..filters().len()).collect::<Vec<_>>()),
        batch in 1..5_usize,
    ) {
        let upstream = Upstream::new(first, pod_changes);
        let end = upstream.changes.len();
        let (held, listed) = (held.index(end + 1), listed.index(end + 1));
        let filter = filters().swap_remove(filter);

        let cache = upstream.cache();
        upstream.apply(&cache, 0, held);
        let listed_at = ResourceVersion(upstream.states[listed].0);
        let (state, weight) = cache.state().unwrap().with_list(upstream.objects(listed), listed_at);
        assert_eq!(state.select(&WatchFilter::default()).len(), upstream.states[listed].1.len());
        let (held_pods, listed_pods) = (&upstream.states[held].1, &upstream.states[listed].1);
        let differing = listed_pods.values().filter(|pod| held_pods.get(&pod.key()) != Some(*pod));
        assert_eq!(weight, differing.map(|pod| pod.object().weight()).sum::<usize>());
        let mut watcher = cache.watch_from(filter.clone(), &Arc::new(state)).unwrap();
        let mut deliveries = Vec::new();
        read_all(&mut watcher, &mut deliveries);
        for from in (held..end).step_by(batch) {
            upstream.apply(&cache, from, (from + batch).min(end));
            read_all(&mut watcher, &mut deliveries);
        }

        let direct = upstream.cache();
        upstream.apply(&direct, 0, held.max(listed));
        let mut expected = Vec::new();
        let mut watcher = direct.watch(filter, WatchStart::InitialEvents).unwrap();
        read_all(&mut watcher, &mut expected);
        upstream.apply(&direct, held.max(listed), end);
        let stop = read_all(&mut watcher, &mut expected);
        assert_eq!(deliveries, expected);
        assert_eq!(stop, Stop::Idle(upstream.states[end].0));
    }
}

#[test]
fn a_cache_without_a_state_refuses_a_watch_from_a_list() {
    let cache = cache_of(10, 10, usize::MAX);
    cache.replace(Vec::new(), ResourceVersion(5));
    let (state, _) = cache.state().unwrap().with_list(Vec::new(), ResourceVersion(9));
    cache.invalidate(EndCause::Stopped);
    let refused = cache.watch_from(WatchFilter::default(), &Arc::new(state));
    assert_eq!(refused.unwrap_err(), WatchRefusal::NotReady);
}
