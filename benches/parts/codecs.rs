//! Decoding and encoding of objects, lists of 500 and watch frames, in both encodings.

use criterion::{BatchSize, Criterion, Throughput};
use weir::api::media_type::View;
use weir::codec::frame::{self, EventType, FrameSplitter};
use weir::codec::{ingest, list};

use crate::lists::{consume, encode, shared};
use crate::pods::{PodId, Pods};

/// The page size of Weir's own lists.
const PAGE: usize = 500;

pub(crate) fn bench(criterion: &mut Criterion) {
    for (name, pods) in [("JSON", Pods::json()), ("protobuf", Pods::protobuf())] {
        let mut group = criterion.benchmark_group(format!("codecs, {name}"));
        let (resource, representation) = (&pods.resource, pods.representation);
        let one = pods.object(PodId::nth(0));
        group.throughput(Throughput::Bytes(one.body.len() as u64));
        group.bench_function("decode an object", |bencher| {
            bencher.iter(|| ingest::object(&one.body, resource, representation));
        });
        group.bench_function("encode a frame", |bencher| {
            bencher.iter(|| frame::encode(EventType::Modified, &one, View::Full));
        });
        let frame = frame::encode(EventType::Modified, &one, View::Full);
        group.bench_function("split a frame", |bencher| {
            let mut splitter = FrameSplitter::new(representation.encoding(), 1 << 20);
            let mut frames = Vec::new();
            bencher.iter(|| {
                frames.clear();
                splitter.push(frame.clone(), &mut frames)
            });
        });

        let objects = shared(&pods, PAGE);
        let body = encode(&pods, objects.clone()).concat().into();
        group.throughput(Throughput::Bytes(encode(&pods, objects.clone()).len() as u64));
        group.bench_function("decode a list", |bencher| {
            bencher.iter(|| list::parse(&body, resource, representation));
        });
        group.bench_function("encode a list", |bencher| {
            let objects = || objects.clone();
            let list = |objects| consume(encode(&pods, objects));
            bencher.iter_batched(objects, list, BatchSize::SmallInput);
        });
        group.finish();
    }
}
