//! Watches that begin with a state listed besides the stream are given what a watch of a cache that had been there is given.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::cache::core::watch_cache::{Change, WatchRefusal};
use crate::cache::core::watcher::WatchStart;

/// What happens to a pod; a deletion of what is not there is a bookmark.
#[derive(Clone, Debug)]
struct Draft {
    pod: Pod,
    deletes: bool,
    up: u64,
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let (namespaces, names) = (select(&["ns1", "ns1-a"][..]), select(&["a", "b", "c"][..]));
    let (nodes, apps) = (select(&["n1", "n2"][..]), select(&["a", "b"][..]));
    (namespaces, names, nodes, apps)
        .prop_map(|(namespace, name, node, app)| Pod::new(namespace, name, 1).node(node).app(app))
}

fn any_draft() -> impl Strategy<Value = Draft> {
    (any_pod(), prop::bool::weighted(0.3), 1..3_u64).prop_map(|(pod, deletes, up)| Draft {
        pod,
        deletes,
        up,
    })
}

/// Every state that there was with its resourceVersion, and what led from each to the next.
struct Truth {
    states: Vec<(u64, BTreeMap<String, Pod>)>,
    changes: Vec<Option<Pod>>,
}

impl Truth {
    fn new(first: Vec<Pod>, drafts: Vec<Draft>) -> Self {
        let mut truth = Self { states: vec![(5, pods_by_key(first))], changes: Vec::new() };
        for draft in drafts {
            let (last, mut pods) = truth.states.last().unwrap().clone();
            let at = last + draft.up;
            let key = draft.pod.key();
            truth.changes.push(if draft.deletes {
                pods.remove(&key).map(|gone| gone.at(at))
            } else {
                let pod = draft.pod.at(at);
                pods.insert(key, pod.clone());
                Some(pod)
            });
            truth.states.push((at, pods));
        }
        truth
    }

    fn objects(&self, index: usize) -> Vec<Object> {
        self.states[index].1.values().map(Pod::object).collect()
    }

    fn cache(&self) -> WatchCache {
        let cache = cache_of(1000, 1000, usize::MAX);
        cache.replace(self.objects(0), ResourceVersion(5), at(0));
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
    fn they_go_on_as_if_the_cache_had_been_there(
        first in vec(any_pod(), 0..6),
        drafts in vec(any_draft(), 0..30),
        held in any::<prop::sample::Index>(),
        listed in any::<prop::sample::Index>(),
        filter in select((0..filters().len()).collect::<Vec<_>>()),
        batch in 1..5_usize,
    ) {
        let truth = Truth::new(first, drafts);
        let end = truth.changes.len();
        let (held, listed) = (held.index(end + 1), listed.index(end + 1));
        let filter = filters().swap_remove(filter);

        let cache = truth.cache();
        truth.apply(&cache, 0, held);
        let listed_at = ResourceVersion(truth.states[listed].0);
        let (state, weight) = cache.state().unwrap().with_list(truth.objects(listed), listed_at);
        assert_eq!(state.select(&WatchFilter::default()).len(), truth.states[listed].1.len());
        let own = truth.states[listed].1.values().filter(|pod| truth.states[held].1.get(&pod.key()) != Some(*pod));
        assert_eq!(weight, own.map(|pod| pod.object().weight()).sum::<usize>());
        let mut watcher = cache.watch_from(filter.clone(), &Arc::new(state)).unwrap();
        let mut seen = Vec::new();
        take_all(&mut watcher, &mut seen);
        for from in (held..end).step_by(batch) {
            truth.apply(&cache, from, (from + batch).min(end));
            take_all(&mut watcher, &mut seen);
        }

        let direct = truth.cache();
        truth.apply(&direct, 0, held.max(listed));
        let mut expected = Vec::new();
        let mut watcher = direct.watch(filter, WatchStart::InitialEvents).unwrap();
        take_all(&mut watcher, &mut expected);
        truth.apply(&direct, held.max(listed), end);
        let rest = take_all(&mut watcher, &mut expected);
        assert_eq!(seen, expected);
        assert_eq!(rest, Rest::Idle(truth.states[end].0));
    }
}

#[test]
fn without_a_state_of_its_own_the_cache_begins_none() {
    let cache = cache_of(10, 10, usize::MAX);
    cache.replace(Vec::new(), ResourceVersion(5), at(0));
    let (state, _) = cache.state().unwrap().with_list(Vec::new(), ResourceVersion(9));
    cache.invalidate(EndCause::Stopped);
    let refused = cache.watch_from(WatchFilter::default(), &Arc::new(state));
    assert_eq!(refused.unwrap_err(), WatchRefusal::NotReady);
}
