//! Operations on an object's bytes that do not decode them.

use std::hint::black_box;

use criterion::Criterion;
use weir::api::media_type::View;
use weir::codec::splice;

use crate::pods::{PodId, Pods, resource_version};

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("splice");
    for (name, pods) in [("JSON", Pods::json()), ("protobuf", Pods::protobuf())] {
        let object = pods.object(PodId::nth(0));
        let mut out = Vec::with_capacity(object.body.len() * 2);
        for (what, view) in [("all", View::Full), ("metadata", View::Metadata)] {
            group.bench_function(format!("list item, {what}, {name}"), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    object.list_item(view).write(&mut out);
                    black_box(out.len())
                });
            });
        }
        group.bench_function(format!("another resourceVersion, {name}"), |bencher| {
            let later = resource_version(7);
            bencher.iter(|| splice::with_resource_version(&object.body, object.layout, later));
        });
    }
    group.finish();
}
