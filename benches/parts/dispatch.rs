//! An event among 5,000 objects: applied, with the watchers marked that it may concern, and taken by one of them.

use criterion::{BatchSize, Criterion};
use weir::cache::core::watch_cache::{Change, WatchCache};
use weir::cache::core::watcher::{WatchFilter, Watcher};

use crate::caches::{NOW, cache, of_node, take, watch};
use crate::pods::{Pods, Which};

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
        (0..20_000).map(|number| watch(cache, of_node(&pods, number % 100))).collect()
    });
    apply("apply, 1,000 watches of all", &|cache| {
        (0..1_000).map(|_| watch(cache, WatchFilter::default())).collect()
    });
    let cache = cache(pods.objects(OBJECTS));
    let mut events = Events { pods: &pods, made: 0 };
    let (mut watcher, mut first) =
        (watch(&cache, WatchFilter::default()), watch(&cache, WatchFilter::default()));
    group.bench_function("take, once encoded", |bencher| {
        bencher.iter_batched(
            || {
                cache.apply(vec![events.next()], NOW);
                take(&mut first)
            },
            |_| take(&mut watcher),
            BatchSize::PerIteration,
        );
    });
    let filter = of_node(&pods, 17);
    group.bench_function("begin and end a watch", |bencher| {
        bencher.iter(|| watch(&cache, filter.clone()));
    });
    group.finish();
}

/// Changes, each of another object than the one before.
struct Events<'a> {
    pods: &'a Pods,
    made: usize,
}

impl Events<'_> {
    fn next(&mut self) -> Change {
        self.made += 1;
        let which = Which::nth(self.made * 37 % OBJECTS).at(self.made as u64);
        Change::Upsert(self.pods.object(which))
    }
}
