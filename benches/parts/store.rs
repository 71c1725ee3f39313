//! The store of a watch cache: a look-up, a change, and walks over the objects that match a filter,
//! for several numbers of objects.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion};
use weir::cache::core::snapshot::{PageRange, Snapshot};
use weir::cache::core::store::Store;

use crate::caches::{cache, namespace_filter, node_filter};
use crate::pods::{PodId, Pods};

pub(crate) fn bench(criterion: &mut Criterion) {
    let pods = Pods::json();
    let mut group = criterion.benchmark_group("store");
    for count in [1_000, 10_000, 50_000] {
        let store = Store::new(pods.objects(count), pods.resource.selectable.indexed());
        let object = Arc::new(pods.object(PodId::nth(count / 2)));
        let id = |name| BenchmarkId::new(name, count);
        group.bench_function(id("get"), |bencher| {
            bencher.iter(|| black_box(store.get(object.key.as_str())));
        });
        // An event is applied to a clone, so that readers keep the previous state unchanged.
        group.bench_function(id("put"), |bencher| {
            bencher.iter(|| {
                let mut next = store.clone();
                next.put(Arc::clone(&object));
                next
            });
        });
        // The pods are in ten namespaces.
        let filter = namespace_filter(5);
        group.bench_function(id("walk a tenth, by namespace"), |bencher| {
            bencher.iter(|| store.select(&filter).map(|object| object.body.len()).sum::<usize>());
        });
    }
    let cache = cache(pods.objects(5_000));
    let state = cache.state().expect("the cache is ready");
    // The pods are on a hundred nodes.
    let filter = node_filter(&pods, 17);
    let range = PageRange { indexed: pods.resource.selectable.indexed(), ..PageRange::default() };
    group.bench_function("50 of 5000 by node", |bencher| {
        bencher.iter(|| Snapshot::latest(&state).page(&filter, &range));
    });
    group.finish();
}
