//! Dispatch of an event with 5,000 objects: applying it, which wakes the matching watchers, and
//! reading it by one of them.

use criterion::{BatchSize, Criterion};
use weir::cache::core::watch_cache::{Change, WatchCache};
use weir::cache::core::watcher::{WatchFilter, Watcher};

use crate::caches::{NOW, cache, next_frames, node_filter, watch};
use crate::pods::{PodId, Pods};

const OBJECTS: usize = 5_000;

pub(crate) fn bench(criterion: &mut Criterion) {
    let pods = Pods::json();
    let mut group = criterion.benchmark_group("dispatch");
    let mut apply = |name: &str, watchers: &dyn Fn(&WatchCache) -> Vec<Watcher>| {
        let cache = cache(pods.objects(OBJECTS));
        let watchers = watchers(&cache);
        let mut events = Events { pods: &pods, made: 0 };
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || vec![events.next()],
                |changes| cache.apply(changes, NOW),
                BatchSize::SmallInput,
            );
        });
        drop(watchers);
    };
    apply("apply, no watch", &|_| Vec::new());
    apply("apply, 20,000 watches by node, 200 want it", &|cache| {
        (0..20_000).map(|number| watch(cache, node_filter(&pods, number % 100))).collect()
    });
    apply("apply, 1,000 watches of all", &|cache| {
        (0..1_000).map(|_| watch(cache, WatchFilter::default())).collect()
    });
    let cache = cache(pods.objects(OBJECTS));
    let mut events = Events { pods: &pods, made: 0 };
    let (mut watcher, mut first) =
        (watch(&cache, WatchFilter::default()), watch(&cache, WatchFilter::default()));
    group.bench_function("next batch, already encoded", |bencher| {
        bencher.iter_batched(
            || {
                cache.apply(vec![events.next()], NOW);
                next_frames(&mut first)
            },
            |_| next_frames(&mut watcher),
            BatchSize::PerIteration,
        );
    });
    let filter = node_filter(&pods, 17);
    group.bench_function("begin and end a watch", |bencher| {
        bencher.iter(|| watch(&cache, filter.clone()));
    });
    group.finish();
}

/// A source of changes. Consecutive changes are of different objects.
struct Events<'a> {
    pods: &'a Pods,
    made: usize,
}

impl Events<'_> {
    fn next(&mut self) -> Change {
        self.made += 1;
        let id = PodId::nth(self.made * 37 % OBJECTS).at(self.made as u64);
        Change::Upsert(self.pods.object(id))
    }
}
