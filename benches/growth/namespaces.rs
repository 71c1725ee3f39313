//! By the number of namespaces, ten pods in each: a namespace's list, and an event while each namespace is watched.

use std::hint::black_box;

use weir::cache::core::watch_cache::Change;

use crate::caches::{NOW, cache, of_namespace, take, watch};
use crate::curve::{Curve, Law, Series};
use crate::lists;
use crate::objects::encoded;
use crate::pods::{Pods, Which};
use crate::timing::cost;

const COUNTS: [usize; 8] = [1, 3, 10, 30, 100, 300, 1_000, 5_000];
const PODS: usize = 10;

pub(crate) fn grow() -> Curve {
    let pods = Pods::json();
    let (mut list, mut event) = (Vec::new(), Vec::new());
    for count in COUNTS {
        let which = |index: usize| Which { namespace: index % count, ..Which::nth(index) };
        let cache = cache((0..count * PODS).map(|index| pods.object(which(index))).collect());
        let state = cache.state().expect("it is ready");
        let filters: Vec<_> = (0..100).map(|it| of_namespace(it * 31 % count)).collect();
        let one = cost(|timer| {
            timer.time(|| {
                for filter in &filters {
                    black_box(lists::take(encoded(&pods, &state, filter)));
                }
            });
            filters.len()
        });
        list.push((count as f64, one));
        drop(state);
        let mut watchers: Vec<_> =
            (0..count).map(|number| watch(&cache, of_namespace(number))).collect();
        let mut made = 0;
        let one = cost(|timer| {
            let changes: Vec<_> = (0..100)
                .map(|_| {
                    made += 1;
                    let which = which(made * 31 % (count * PODS));
                    (which.namespace, Change::Upsert(pods.object(which.at(made as u64))))
                })
                .collect();
            timer.time(|| {
                for (namespace, change) in changes {
                    cache.apply(vec![change], NOW);
                    let watcher = watchers.get_mut(namespace).expect("there is one");
                    assert_eq!(black_box(take(watcher)).len(), 1);
                }
            });
            100
        });
        event.push((count as f64, one));
    }
    Curve {
        title: "One of many namespaces, ten pods in each",
        x: "namespaces",
        y: "µs of CPU",
        series: vec![
            Series::new("its list", Some(Law::Logarithm), list),
            Series::new("an event, each namespace watched", Some(Law::Logarithm), event),
        ],
    }
}
