//! Compression of a list of 500 objects: without cached segments, after a change of one object, and
//! with all segments cached.

use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput};

use weir::codec::gzip::segment_cache::SegmentCache;
use weir::codec::held_bytes::HeldBytes;

use crate::lists::{compress, compress_from, encode, shared};
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
    let segments = SegmentCache::new(usize::MAX, HeldBytes::new(usize::MAX));
    compress_from(&segments, encode(&pods, objects.clone()));
    group.bench_function("the same, kept", |bencher| {
        let list = || encode(&pods, objects.clone());
        bencher.iter_batched(list, |list| compress_from(&segments, list), BatchSize::SmallInput);
    });
    group.bench_function("the same, one changed", |bencher| {
        let list = || {
            let mut objects = objects.clone();
            // The cache identifies objects by their `Arc`, so a clone counts as a changed object.
            if let Some(changed) = objects.get_mut(250) {
                *changed = Arc::new((**changed).clone());
            }
            encode(&pods, objects)
        };
        bencher.iter_batched(list, |list| compress_from(&segments, list), BatchSize::SmallInput);
    });
    group.finish();
}
