//! The cost of an event by the number of watchers, and by the number of matching watchers.

use std::hint::black_box;

use weir::api::selector::label::LabelSelector;
use weir::cache::core::watch_cache::{Change, WatchCache};
use weir::cache::core::watcher::{WatchFilter, Watcher};

use crate::caches::{NOW, cache, namespace_filter, next_frames, node_filter, watch};
use crate::curve::{Curve, Law, Series};
use crate::pods::{PodId, Pods};
use crate::timing::cost;

const WATCHERS: [usize; 6] = [10, 100, 1_000, 3_000, 10_000, 20_000];
const OBJECTS: usize = 5_000;
const NODES: usize = 100;

/// Measures events that no watcher matches, by the form of the watchers' selectors.
pub(crate) fn existing() -> Curve {
    let pods = Pods::json();
    let by_label = |text: String| WatchFilter {
        labels: LabelSelector::parse(&text).expect("a selector"),
        ..WatchFilter::default()
    };
    let of_node = |number: usize| node_filter(&pods, 1 + number % (NODES - 1));
    let in_namespace =
        |number| WatchFilter { fields: node_filter(&pods, 0).fields, ..namespace_filter(number) };
    let forms: [(&str, &dyn Fn(usize) -> WatchFilter); 6] = [
        ("watchers by spec.nodeName", &of_node),
        ("by k=v", &|number| by_label(format!("half=of-{number}"))),
        ("by k in (v,w)", &|number| by_label(format!("half in (of-{number},to-{number})"))),
        ("by k", &|number| by_label(format!("k{number}"))),
        ("by !k, equal", &|_| by_label("!half".to_owned())),
        ("by spec.nodeName in another namespace", &|number| in_namespace(10 + number)),
    ];
    let series = forms.map(|(name, filter)| {
        let points = WATCHERS.map(|count| existing_point(&pods, count, filter)).to_vec();
        Series::new(name, Some(Law::Constant), points)
    });
    Curve {
        title: "An event that no watcher matches",
        x: "watchers",
        y: "µs of CPU",
        series: series.into(),
    }
}

fn existing_point(pods: &Pods, count: usize, filter: &dyn Fn(usize) -> WatchFilter) -> (f64, f64) {
    let cache = cache(pods.objects(OBJECTS));
    let watchers: Vec<_> = (0..count).map(|number| watch(&cache, filter(number))).collect();
    let mut events = Events { pods, count: 0 };
    let one = cost(|timer| {
        let changes: Vec<_> = (0..300).map(|_| events.on_first_node()).collect();
        timer.time(|| changes.into_iter().for_each(|change| cache.apply(vec![change], NOW)));
        300
    });
    drop(watchers);
    (count as f64, one)
}

/// Measures events that every watcher matches and reads: watchers of everything, and of the event's
/// node.
pub(crate) fn wanting() -> Curve {
    let pods = Pods::json();
    let everything = |_: &Pods| WatchFilter::default();
    let node = |pods: &Pods| node_filter(pods, 0);
    let points = |filter: &dyn Fn(&Pods) -> WatchFilter| {
        let point = |count: usize| {
            let cache = cache(pods.objects(OBJECTS));
            let watchers: Vec<_> = (0..count).map(|_| watch(&cache, filter(&pods))).collect();
            (count as f64, delivery_cost(&pods, &cache, watchers))
        };
        WATCHERS.map(point).to_vec()
    };
    Curve {
        title: "An event and its delivery to all matching watchers",
        x: "matching watchers",
        y: "µs of CPU",
        series: vec![
            Series::new("by spec.nodeName", Some(Law::Linear), points(&node)),
            Series::new("of all pods", Some(Law::Linear), points(&everything)),
        ],
    }
}

/// Returns the cost of an event that all watchers read before the next one.
fn delivery_cost(pods: &Pods, cache: &WatchCache, mut watchers: Vec<Watcher>) -> f64 {
    let mut events = Events { pods, count: 0 };
    let times = 10_000 / watchers.len() + 1;
    cost(|timer| {
        let changes: Vec<_> = (0..times).map(|_| events.on_first_node()).collect();
        timer.time(|| {
            for change in changes {
                cache.apply(vec![change], NOW);
                for watcher in &mut watchers {
                    assert_eq!(black_box(next_frames(watcher)).len(), 1);
                }
            }
        });
        times
    })
}

struct Events<'a> {
    pods: &'a Pods,
    count: usize,
}

impl Events<'_> {
    /// Changes one of the first ten pods, which are on the first node.
    fn on_first_node(&mut self) -> Change {
        self.count += 1;
        let id = PodId::nth(self.count % 10);
        Change::Upsert(self.pods.object(id.at(self.count as u64)))
    }
}
