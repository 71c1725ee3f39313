//! The cost by the number of objects: a change, reads of a few objects, and lists.

use std::hint::black_box;

use weir::cache::core::snapshot::{PageRange, Snapshot};
use weir::cache::core::watch_cache::{Change, State, WatchCache};
use weir::cache::core::watcher::WatchFilter;
use weir::codec::list::SplicedList;

use crate::caches::{NOW, cache, node_filter};
use crate::curve::{Curve, Law, Series};
use crate::lists;
use crate::pods::{PodId, Pods};
use crate::timing::{Timer, cost};

const COUNTS: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];
/// Pods per node, independent of the total.
const OF_NODE: usize = 50;
/// Events per round.
const EVENTS: usize = 300;

fn id(index: usize) -> PodId {
    PodId { node: index / OF_NODE, ..PodId::nth(index) }
}

fn filled(pods: &Pods, count: usize) -> WatchCache {
    cache((0..count).map(|index| pods.object(id(index))).collect())
}

/// Measures the application of an event to the cache.
pub(crate) fn update() -> Curve {
    let pods = Pods::json();
    let point = |count: usize| {
        let cache = filled(&pods, count);
        let mut made = 0;
        let one = cost(|timer| {
            let changes: Vec<_> = (0..EVENTS)
                .map(|_| {
                    made += 1;
                    let index = made * 7_919 % count;
                    Change::Upsert(pods.object(id(index).at(made as u64)))
                })
                .collect();
            timer.time(|| changes.into_iter().for_each(|change| cache.apply(vec![change], NOW)));
            EVENTS
        });
        (count as f64, one)
    };
    let points = COUNTS.map(point).to_vec();
    Curve {
        title: "One changed object",
        x: "objects",
        y: "µs of CPU",
        series: vec![Series::new("an event applied", Some(Law::Logarithm), points)],
    }
}

/// Measures reads of a few objects: a GET, and a list by node.
pub(crate) fn read() -> Curve {
    let pods = Pods::json();
    let (mut get, mut node) = (Vec::new(), Vec::new());
    for count in COUNTS {
        let cache = filled(&pods, count);
        let state = cache.state().expect("it is ready");
        let keys: Vec<_> =
            (0..EVENTS).map(|number| pods.object(id(number * 7_919 % count)).key).collect();
        let one = cost(|timer| {
            timer.time(|| {
                for key in keys.iter().cycle().take(EVENTS * 20) {
                    black_box(state.get(key));
                }
            });
            EVENTS * 20
        });
        get.push((count as f64, one));
        let nodes = count / OF_NODE;
        let filters: Vec<_> =
            (0..10).map(|number| node_filter(&pods, number * nodes / 10)).collect();
        let one = cost(|timer| {
            timer.time(|| {
                for filter in &filters {
                    black_box(lists::consume(encoded(&pods, &state, filter)));
                }
            });
            filters.len()
        });
        node.push((count as f64, one));
    }
    Curve {
        title: "Reading a few of many objects",
        x: "objects",
        y: "µs of CPU",
        series: vec![
            Series::new("list of the 50 pods of a node", Some(Law::Logarithm), node),
            Series::new("GET", Some(Law::Logarithm), get),
        ],
    }
}

/// Measures a list of everything by its size in bytes.
pub(crate) fn list() -> Curve {
    let (mut json, mut protobuf, mut deflated) = (Vec::new(), Vec::new(), Vec::new());
    let everything = WatchFilter::default();
    for pods in [Pods::json(), Pods::protobuf()] {
        let is_json = pods.representation == weir::api::resource::Representation::Json;
        for count in [10, 100].into_iter().chain(COUNTS) {
            let cache = filled(&pods, count);
            let state = cache.state().expect("it is ready");
            let length = encoded(&pods, &state, &everything).len();
            // Short lists are encoded several times in a round.
            let times = 1_000 / count + 1;
            let list = |timer: &mut Timer| {
                timer.time(|| {
                    for _ in 0..times {
                        black_box(lists::consume(encoded(&pods, &state, &everything)));
                    }
                });
                times
            };
            let point = (length as f64 / 1e3, cost(list));
            if is_json {
                json.push(point)
            } else {
                protobuf.push(point)
            }
            if is_json && (100..=10_000).contains(&count) {
                let one = cost(|timer| {
                    let list = encoded(&pods, &state, &everything);
                    drop(black_box(timer.time(|| lists::compress(list))));
                    1
                });
                deflated.push((length as f64 / 1e3, one));
            }
        }
    }
    Curve {
        title: "A list",
        x: "KB of the list",
        y: "µs of CPU",
        series: vec![
            Series::new("compressed", Some(Law::Linear), deflated),
            Series::new("JSON", Some(Law::Linear), json),
            Series::new("protobuf", Some(Law::Linear), protobuf),
        ],
    }
}

/// Returns a list that is encoded but not consumed.
pub(crate) fn encoded(pods: &Pods, state: &State, filter: &WatchFilter) -> SplicedList {
    let indexed = pods.resource.selectable.indexed();
    let range = PageRange { indexed, ..PageRange::default() };
    let page = Snapshot::latest(state).page(filter, &range);
    lists::encode(pods, page.objects)
}
