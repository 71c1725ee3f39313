//! Parsing of selectors, and matching of one object.

use criterion::Criterion;
use weir::api::selector::field::FieldSelector;
use weir::api::selector::label::LabelSelector;

use crate::caches::{half_filter, node_filter};
use crate::pods::{PodId, Pods};

const LABELS: &str = "app.kubernetes.io/part-of=shop,half in (half-0,half-1),!canary";
const FIELDS: &str = "spec.nodeName=node-0017,status.phase!=Failed";

pub(crate) fn bench(criterion: &mut Criterion) {
    let pods = Pods::json();
    let object = pods.object(PodId::nth(1));
    let mut group = criterion.benchmark_group("selectors");
    group.bench_function("read three labels", |bencher| {
        bencher.iter(|| LabelSelector::parse(LABELS));
    });
    group.bench_function("read two fields", |bencher| {
        bencher.iter(|| FieldSelector::parse(FIELDS, &pods.resource.selectable));
    });
    for (name, filter) in [("one label", half_filter()), ("one field", node_filter(&pods, 17))] {
        group.bench_function(format!("match {name}"), |bencher| {
            bencher.iter(|| filter.matches(&object));
        });
    }
    let labels = LabelSelector::parse(LABELS).expect("a selector");
    group.bench_function("match three labels", |bencher| {
        bencher.iter(|| labels.matches(|label| object.attrs.label(label)));
    });
    group.finish();
}
