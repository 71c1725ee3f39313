//! A service mesh: thousands of watches of the same 1,000 objects of 4 KB, each with a connection
//! of its own, while objects change. Every watch must get every event, also where more events are
//! offered than the processors can deliver.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use weir::api::resource::Representation;

use crate::curve::{Curve, Law, percentile};
use crate::ingest::{change, every_second_is_of_first, watch_one};
use crate::memory::{peak, resident};
use crate::readers::{Reader, read_all};
use crate::source::Source;
use crate::testbed::block_on;
use crate::weir_process::{Weir, free_address};

const WATCHES: [usize; 4] = [100, 500, 2_000, 5_000];
const OBJECTS: usize = 1_000;
const OBJECT_BYTES: usize = 4_000;
const TIME: Duration = Duration::from_secs(15);
/// Deliveries a second: what a core can do, and more than two can.
const DELIVERIES_PER_S: [usize; 2] = [20_000, 200_000];

pub(crate) fn grow() -> Curve {
    let names = [
        ("a delivery, µs of CPU", Some(Law::Constant)),
        ("memory of an idle watch, bytes", Some(Law::Constant)),
        ("lag, p50, ms", None),
        ("p99, ms", None),
        ("with ten times the events: a delivery, µs of CPU", Some(Law::Constant)),
        ("deliveries a second", None),
        ("memory of a watch at the most, bytes", None),
        ("lag, p50, ms", None),
        ("p99, ms", None),
    ];
    Curve::new(
        ("Watches of the same objects of 4 KB, a connection each", "watches", "as named"),
        names,
        WATCHES.map(|count| (count, block_on(measure(count)))),
    )
}

/// Returns the values in the order of their names.
async fn measure(count: usize) -> [f64; 9] {
    let [few, many] = DELIVERIES_PER_S;
    let (_, idle, few) = deliver(count, few / count).await;
    let (peak, _, many) = deliver(count, many / count).await;
    [
        few.cpu_us,
        idle,
        percentile(&few.lags, 50),
        percentile(&few.lags, 99),
        many.cpu_us,
        many.per_s,
        peak,
        percentile(&many.lags, 50),
        percentile(&many.lags, 99),
    ]
}

struct Deliveries {
    cpu_us: f64,
    per_s: f64,
    /// Milliseconds from an event to its arrival at one more watch, sorted.
    lags: Vec<f64>,
}

/// Delivers `events_per_s` to `count` watches. Returns the memory of a watch at the most and before
/// the first event, too.
async fn deliver(count: usize, events_per_s: usize) -> (f64, f64, Deliveries) {
    let (source, kubeconfig) = Source::start(OBJECTS, OBJECT_BYTES, false).await;
    let address = free_address();
    let server = json!({
        "listeners": [{"listen": format!("http://{address}")}],
        "connectionsPerAddressMax": 20_000,
    });
    let sections = json!({"server": server, "cache": {"verify": "off"}});
    let weir = Weir::start_at(address, &kubeconfig, sections).await;
    let mut watch = watch_one(weir.address, Representation::Protobuf).await;
    let (pid, watches) = (weir.pid().to_string(), count as f64);
    let before = resident(&pid);
    let query = format!(
        "watch=1&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=3600",
        source.resource_version()
    );
    let open = move || (0..count).map(|_| Reader::open(address, &query)).collect();
    let readers: Vec<Reader> = tokio::task::spawn_blocking(open).await.expect("they open");
    sleep(Duration::from_secs(2)).await;
    let idle = (resident(&pid) - before) / watches;
    let cpu = weir.cpu();
    let reading = tokio::task::spawn_blocking(|| read_all(readers, f64::INFINITY));
    let begun = source.epoch().elapsed();
    let event = every_second_is_of_first(OBJECTS);
    let (events, lags) = change(&source, (events_per_s, TIME), event, &mut watch).await;
    let read = reading.await.expect("the clients end");
    assert!(read.iter().all(|read| *read == events), "every watch has every event");
    let seconds = (source.epoch().elapsed() - begun).as_secs_f64();
    let deliveries = events as f64 * watches;
    let cpu_us = (weir.cpu() - cpu).as_secs_f64() * 1e6 / deliveries;
    let deliveries = Deliveries { cpu_us, per_s: deliveries / seconds, lags };
    ((peak(&pid) - before) / watches, idle, deliveries)
}
