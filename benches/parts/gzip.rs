//! Compression of a list of 500 objects.

use criterion::{BatchSize, Criterion, Throughput};

use crate::lists::{compress, encode, shared};
use crate::pods::Pods;

pub(crate) fn bench(criterion: &mut Criterion) {
    let pods = Pods::json();
    let objects = shared(&pods, 500);
    let mut group = criterion.benchmark_group("gzip");
    let length = encode(&pods, objects.clone()).len();
    group.throughput(Throughput::Bytes(length as u64)).sample_size(20);
    group.bench_function("a list of 500", |bencher| {
        let list = || encode(&pods, objects.clone());
        bencher.iter_batched(list, compress, BatchSize::SmallInput);
    });
    group.finish();
}
