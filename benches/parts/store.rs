//! The store: one change of many objects, one look-up, and walks.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion};
use weir::cache::core::snapshot::{PageRange, Snapshot};
use weir::cache::core::store::Store;

use crate::caches::{cache, of_namespace, of_node};
use crate::pods::{Pods, Which};

pub(crate) fn bench(criterion: &mut Criterion) {
    let pods = Pods::json();
    let mut group = criterion.benchmark_group("store");
    for count in [1_000, 10_000, 50_000] {
        let store = Store::new(pods.objects(count), pods.resource.selectable.indexed());
        let object = Arc::new(pods.object(Which::nth(count / 2)));
        let id = |name| BenchmarkId::new(name, count);
        group.bench_function(id("get"), |bencher| {
            bencher.iter(|| black_box(store.get(object.key.as_str())));
        });
        // As for an event: the state before it stays as it is.
        group.bench_function(id("put"), |bencher| {
            bencher.iter(|| {
                let mut next = store.clone();
                next.put(Arc::clone(&object));
                next
            });
        });
        let filter = of_namespace(5);
        group.bench_function(id("walk a tenth, by namespace"), |bencher| {
            bencher.iter(|| store.select(&filter).map(|object| object.body.len()).sum::<usize>());
        });
    }
    let cache = cache(pods.objects(5_000));
    let state = cache.state().expect("it is ready");
    let filter = of_node(&pods, 17);
    let range = PageRange { indexed: pods.resource.selectable.indexed(), ..PageRange::default() };
    group.bench_function("50 of 5000 by node", |bencher| {
        bencher.iter(|| Snapshot::latest(&state).page(&filter, &range));
    });
    group.finish();
}
