//! The cost by the number of namespaces with ten pods each: the list of one namespace, and an event
//! while each namespace has a watch.

use std::hint::black_box;

use weir::cache::core::watch_cache::Change;

use crate::caches::{NOW, cache, namespace_filter, next_frames, watch};
use crate::curve::{Curve, Law, Series};
use crate::lists;
use crate::objects::encoded;
use crate::pods::{PodId, Pods};
use crate::timing::cost;

const COUNTS: [usize; 8] = [1, 3, 10, 30, 100, 300, 1_000, 5_000];
const PODS: usize = 10;

pub(crate) fn grow() -> Curve {
    let pods = Pods::json();
    let (mut list, mut event) = (Vec::new(), Vec::new());
    for count in COUNTS {
        let id = |index: usize| PodId { namespace: index % count, ..PodId::nth(index) };
        let cache = cache((0..count * PODS).map(|index| pods.object(id(index))).collect());
        let state = cache.state().expect("the cache is ready");
        let filters: Vec<_> =
            (0..100).map(|number| namespace_filter(number * 31 % count)).collect();
        let one = cost(|timer| {
            timer.time(|| {
                for filter in &filters {
                    black_box(lists::consume(encoded(&pods, &state, filter)));
                }
            });
            filters.len()
        });
        list.push((count as f64, one));
        drop(state);
        let mut watchers: Vec<_> =
            (0..count).map(|number| watch(&cache, namespace_filter(number))).collect();
        let mut made = 0;
        let one = cost(|timer| {
            let changes: Vec<_> = (0..100)
                .map(|_| {
                    made += 1;
                    let id = id(made * 31 % (count * PODS));
                    (id.namespace, Change::Upsert(pods.object(id.at(made as u64))))
                })
                .collect();
            timer.time(|| {
                for (namespace, change) in changes {
                    cache.apply(vec![change], NOW);
                    let watcher =
                        watchers.get_mut(namespace).expect("each namespace has a watcher");
                    assert_eq!(black_box(next_frames(watcher)).len(), 1);
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
            Series::new("list of the namespace", Some(Law::Logarithm), list),
            Series::new("an event, with a watch of each namespace", Some(Law::Logarithm), event),
        ],
    }
}
