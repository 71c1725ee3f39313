//! An event's cost by the watchers that there are, and by those that want it.

use std::hint::black_box;

use weir::cache::core::watch_cache::{Change, WatchCache};
use weir::cache::core::watcher::{WatchFilter, Watcher};

use crate::caches::{NOW, cache, of_node, take, watch};
use crate::curve::{Curve, Law, Series};
use crate::pods::{Pods, Which};
use crate::timing::cost;

const WATCHERS: [usize; 6] = [10, 100, 1_000, 3_000, 10_000, 20_000];
const OBJECTS: usize = 5_000;
const NODES: usize = 100;

/// Watchers of other nodes.
pub(crate) fn existing() -> Curve {
    let pods = Pods::json();
    let point = |count: usize| {
        let cache = cache(pods.objects(OBJECTS));
        let of_others = |number: usize| of_node(&pods, 1 + number % (NODES - 1));
        let watchers: Vec<_> = (0..count).map(|it| watch(&cache, of_others(it))).collect();
        let mut events = Events { pods: &pods, made: 0 };
        let one = cost(|timer| {
            let changes: Vec<_> = (0..300).map(|_| events.on_first_node()).collect();
            timer.time(|| changes.into_iter().for_each(|it| cache.apply(vec![it], NOW)));
            300
        });
        drop(watchers);
        (count as f64, one)
    };
    let points = WATCHERS.map(point).to_vec();
    Curve {
        title: "An event that no watcher wants",
        x: "watchers",
        y: "µs of CPU",
        series: vec![Series::new("watchers by spec.nodeName", Some(Law::Constant), points)],
    }
}

/// Watchers of everything, and of the event's node: each takes it.
pub(crate) fn wanting() -> Curve {
    let pods = Pods::json();
    let all = |_: &Pods| WatchFilter::default();
    let node = |pods: &Pods| of_node(pods, 0);
    let points = |filter: &dyn Fn(&Pods) -> WatchFilter| {
        let point = |count: usize| {
            let cache = cache(pods.objects(OBJECTS));
            let watchers: Vec<_> = (0..count).map(|_| watch(&cache, filter(&pods))).collect();
            (count as f64, taken(&pods, &cache, watchers))
        };
        WATCHERS.map(point).to_vec()
    };
    Curve {
        title: "An event and all who want it",
        x: "watchers that want it",
        y: "µs of CPU",
        series: vec![
            Series::new("by spec.nodeName", Some(Law::Linear), points(&node)),
            Series::new("of all pods", Some(Law::Linear), points(&all)),
        ],
    }
}

/// One event at a time, taken by all.
fn taken(pods: &Pods, cache: &WatchCache, mut watchers: Vec<Watcher>) -> f64 {
    let mut events = Events { pods, made: 0 };
    let times = 10_000 / watchers.len() + 1;
    cost(|timer| {
        let changes: Vec<_> = (0..times).map(|_| events.on_first_node()).collect();
        timer.time(|| {
            for change in changes {
                cache.apply(vec![change], NOW);
                for watcher in &mut watchers {
                    assert_eq!(black_box(take(watcher)).len(), 1);
                }
            }
        });
        times
    })
}

struct Events<'a> {
    pods: &'a Pods,
    made: usize,
}

impl Events<'_> {
    /// Of the ten pods that [`Which::nth`] puts there first.
    fn on_first_node(&mut self) -> Change {
        self.made += 1;
        let which = Which::nth(self.made % 10);
        Change::Upsert(self.pods.object(which.at(self.made as u64)))
    }
}
