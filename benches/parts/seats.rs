//! The queues of forwarded requests.

use std::time::Duration;

use criterion::Criterion;
use tokio::time::Instant;

use crate::queues::Queues;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seats");
    let mut queues = Queues::new(7, 1);
    group.bench_function("take and give back, nobody waits", |bencher| {
        bencher.iter(|| queues.pass());
    });
    for (name, widest) in [("one seat", 1), ("1 to 10 seats", 10)] {
        let mut queues = Queues::new(1_000, widest);
        queues.fill(10_000);
        group.bench_function(format!("start the next of 10000 in 1000 flows, {name}"), |bencher| {
            bencher.iter_custom(|times| start(&mut queues, times));
        });
    }
    group.finish();
}

/// Starts `times` requests.
fn start(queues: &mut Queues, times: u64) -> Duration {
    let (began, mut started) = (Instant::now(), 0);
    while started < times {
        started += queues.dispatch() as u64;
    }
    began.elapsed()
}
