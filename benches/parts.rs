//! Measures the parts of Weir separately with criterion. `cargo bench --bench parts` runs all of
//! them, `-- gzip` only one.
//!
//! The figures are wall time. On a busy machine the instruction counts of the bench `counts` are
//! more reliable.

#[path = "support/caches.rs"]
mod caches;
#[path = "parts/codecs.rs"]
mod codecs;
#[path = "parts/dispatch.rs"]
mod dispatch;
#[path = "parts/gzip.rs"]
mod gzip;
#[path = "support/lists.rs"]
mod lists;
#[path = "support/pods.rs"]
#[expect(dead_code, reason = "other benches use more of it")]
mod pods;
#[path = "support/queues.rs"]
mod queues;
#[path = "parts/seats.rs"]
mod seats;
#[path = "parts/selectors.rs"]
mod selectors;
#[path = "parts/splice.rs"]
mod splice;
#[path = "parts/store.rs"]
mod store;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    store::bench,
    splice::bench,
    dispatch::bench,
    selectors::bench,
    codecs::bench,
    gzip::bench,
    seats::bench,
);
criterion_main!(benches);
