//! Many clients that read their initial events for minutes, each through a link of 1 Mbit/s, and
//! one beside them that reads at once. Every client must get all objects and all later events.

use std::time::Duration;

use serde_json::json;
use weir::api::resource::Representation;

use crate::curve::{Curve, Law, percentile};
use crate::ingest::{change, every_second_is_of_first, watch_one};
use crate::memory::{peak, resident};
use crate::readers::{Reader, read_all};
use crate::source::Source;
use crate::testbed::block_on;
use crate::weir_process::Weir;

const CLIENTS: [usize; 2] = [500, 1_000];
const OBJECTS: usize = 5_000;
const OBJECT_BYTES: usize = 4_000;
const BYTES_PER_S: f64 = 125_000.0;
const QUERY: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=3600";
/// How long objects change: until all initial events are read.
const TIME: Duration = Duration::from_secs(165);
const EVENTS_PER_S: usize = 10;
/// The events of the time in which the clients begin.
const BEGIN_EVENTS_MAX: usize = 2 * EVENTS_PER_S;

pub(crate) fn grow() -> Curve {
    let names = [
        ("memory of a client at the most, bytes", Some(Law::Constant)),
        ("CPU of a client, ms", None),
        ("lag of the fast one, p50, ms", None),
        ("p99, ms", None),
        ("the longest, ms", None),
    ];
    Curve::new(
        ("Clients that take minutes for their initial events of 20 MB", "clients", "as named"),
        names,
        CLIENTS.map(|count| (count, measure(count))),
    )
}

/// Returns the values in the order of their names.
fn measure(count: usize) -> [f64; 5] {
    block_on(async {
        let (source, kubeconfig) = Source::start(OBJECTS, OBJECT_BYTES, false).await;
        let weir = Weir::start(&kubeconfig, json!({"cache": {"verify": "off"}})).await;
        let mut watch = watch_one(weir.address, Representation::Protobuf).await;
        let pid = weir.pid().to_string();
        let (memory, cpu, address) = (resident(&pid), weir.cpu(), weir.address);
        let (first, opened) = (source.resource_version(), tokio::sync::oneshot::channel());
        let clients = tokio::task::spawn_blocking(move || {
            let clients = (0..count).map(|_| Reader::open(address, QUERY)).collect();
            opened.0.send(()).expect("the bench waits");
            read_all(clients, BYTES_PER_S)
        });
        opened.1.await.expect("all are opened");
        let event = every_second_is_of_first(OBJECTS);
        let (events, lags) = change(&source, (EVENTS_PER_S, TIME), event, &mut watch).await;
        let read = clients.await.expect("the clients end");
        assert!(source.resource_version() >= first + events as u64);
        // The first events may be in the initial state of the clients that were opened last.
        let all = OBJECTS + events;
        let complete = read.iter().filter(|read| (all - BEGIN_EVENTS_MAX..=all).contains(read));
        assert_eq!(complete.count(), count, "clients that have all objects and events");
        let lag = |percent| percentile(&lags, percent);
        let clients = count as f64;
        [
            (peak(&pid) - memory) / clients,
            (weir.cpu() - cpu).as_secs_f64() * 1e3 / clients,
            lag(50),
            lag(99),
            lag(100),
        ]
    })
}
