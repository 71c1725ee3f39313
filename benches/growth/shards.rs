//! 64 clients that list and watch one resource of 100,000 objects, each on a connection of its own:
//! the whole of it, or one of some equal shards (KEP-5866). CPU time of a Weir process before a
//! simulator, which must serve one watch alone.

use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Watches, connect, is_hit, send, warm};
use crate::curve::{Curve, Law, Series};
use crate::testbed::block_on;
use crate::weir_process::Weir;

const CLIENTS: usize = 64;
const OBJECTS: usize = 100_000;
/// With one shard no client sends a selector.
const SHARDS: [usize; 4] = [1, 4, 16, 64];
const EVENTS: usize = 500;
const EVENT_INTERVAL: Duration = Duration::from_millis(20);
const COLLECTION: &str = "/api/v1/configmaps";

pub(crate) fn grow() -> Curve {
    block_on(async {
        let options = SimulatorOptions { shard_selectors: true, ..SimulatorOptions::default() };
        let upstream = Simulator::start(options).await.expect("a simulator");
        for number in 0..OBJECTS {
            upstream.store().create(config_map(number, 0)).expect("the object is created");
        }
        let weir = Weir::start(&upstream.kubeconfig(""), json!({})).await;
        warm(weir.address, COLLECTION).await;
        let (mut lists, mut events) = (Vec::new(), Vec::new());
        for shards in SHARDS {
            lists.push((shards as f64, list(&weir, shards).await));
            events.push((shards as f64, watch(&weir, &upstream, shards).await));
        }
        Curve {
            title: "64 clients of 100,000 objects",
            x: "shards",
            y: "µs of CPU",
            series: vec![
                Series::new("a list of each client", Some(Law::Constant), lists),
                Series::new("an event", Some(Law::Constant), events),
            ],
        }
    })
}

/// All clients list at once. Returns the cost of one list.
async fn list(weir: &Weir, shards: usize) -> f64 {
    let before = weir.cpu();
    let lists = (0..CLIENTS).map(|client| async move {
        let connection = connect(weir.address).await;
        let path = format!("{COLLECTION}?resourceVersion=0{}", selector(client, shards));
        let response = send(&connection, weir.address, &path).await;
        assert!(is_hit(&response), "{:?}", response.headers());
        let (mut body, mut bytes) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            bytes += frame.expect("the list continues").into_data().map_or(0, |data| data.len());
        }
        bytes
    });
    let bytes: usize = join_all(lists).await.into_iter().sum();
    println!("  {shards} shards: {} MB of lists", bytes / 1_000_000);
    (weir.cpu() - before).as_secs_f64() * 1e6 / CLIENTS as f64
}

/// All clients watch. Returns the cost of a change of one object.
async fn watch(weir: &Weir, upstream: &Simulator, shards: usize) -> f64 {
    let mut watches = Watches::default();
    let from = upstream.store().revision();
    for client in 0..CLIENTS {
        let path = format!("{COLLECTION}?watch=1&resourceVersion={from}&timeoutSeconds=3600");
        let (connection, selector) = (connect(weir.address).await, selector(client, shards));
        watches.add(&connection, weir.address, &(path + &selector), None).await;
    }
    let open = upstream.requests().open_watches();
    assert_eq!(open.iter().filter(|watch| watch.path == COLLECTION).count(), 1, "upstream");
    let before = weir.cpu();
    for event in 0..EVENTS {
        let change = config_map(event * 37, shards);
        upstream.store().update(change).expect("the object is updated");
        sleep(EVENT_INTERVAL).await;
    }
    let expected = EVENTS * CLIENTS / shards;
    let deadline = Instant::now() + Duration::from_secs(10);
    while watches.observations.events() < expected && Instant::now() < deadline {
        sleep(EVENT_INTERVAL).await;
    }
    assert_eq!(watches.observations.events(), expected, "an event was lost or duplicated");
    (weir.cpu() - before).as_secs_f64() * 1e6 / EVENTS as f64
}

/// Returns the parameter for the shard of a client; empty for the whole.
fn selector(client: usize, shards: usize) -> String {
    if shards == 1 {
        return String::new();
    }
    let bound = |number: usize| format!("0x{:016x}", ((number as u128) << 64) / shards as u128);
    let (start, end) = (bound(client % shards), bound(client % shards + 1));
    format!("&shardSelector=shardRange(object.metadata.uid,'{start}','{end}')")
}

fn config_map(number: usize, version: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("cm-{number:06}"), "namespace": "default",
            "labels": {"app.kubernetes.io/name": "service"}},
        "data": {"text": "x".repeat(400), "version": version.to_string()}})
}
