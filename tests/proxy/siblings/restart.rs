//! A rolling restart of three replicas before watches: the API server gets no list, and each watch
//! each event once.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use weir::simulator::Simulator;

use super::{ANY, CONFIGMAPS, lists_of};
use crate::client::{Call, Next, Watch, try_send, within};
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const WATCHERS: usize = 12;
const LAST: &str = "the-last-one";

/// The addresses of the replicas, as a load balancer has them.
type Replicas = Arc<Mutex<Vec<SocketAddr>>>;

/// Watches from `at`, at one replica after the other, until the last event. Returns the
/// resourceVersions of all events.
async fn watch(replicas: Replicas, number: usize, mut at: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut turn = number;
    loop {
        let address = {
            let replicas = replicas.lock();
            replicas[turn % replicas.len()]
        };
        turn += 1;
        let path = format!(
            "{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={at}&timeoutSeconds=300"
        );
        // A replica that stops accepts no connection, or closes it.
        let Ok(stream) = TcpStream::connect(address).await else { continue };
        let Ok(response) = try_send(stream, &Call::get(&path)).await else { continue };
        let mut watch = Watch::new(response);
        assert_eq!(watch.status, 200);
        while let Next::Frame(line) = watch.read().await {
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(event["type"], "ERROR", "{line}");
            let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
            at = version.parse().unwrap();
            if event["type"] != "BOOKMARK" {
                seen.push(at);
            }
            if event["object"]["metadata"]["name"] == LAST {
                return seen;
            }
        }
    }
}

async fn replica(upstream: &Arc<Simulator>, siblings: &[SocketAddr]) -> Proxy {
    let urls = siblings.iter().map(|address| format!("http://{address}")).collect();
    let proxy = Proxy::before(Arc::clone(upstream), "", |config| {
        config.cache.siblings.addresses = urls;
        config.cache.siblings.timeout = std::time::Duration::from_secs(60);
        config.cache.warm =
            vec![weir::api::resource::GroupVersionResource::new("", "v1", "configmaps")];
    })
    .await;
    eventually("the replica is ready", async || proxy.admin("/readyz").await.status == 200).await;
    proxy.until_watching(1).await;
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_three_replicas_lists_nothing_and_loses_no_event() {
    let upstream =
        Arc::new(Simulator::start(weir::simulator::SimulatorOptions::default()).await.unwrap());
    seed(&upstream);
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(replica(&upstream, &[]).await);
    }
    let addresses = running.iter().map(Proxy::plain).collect();
    let replicas: Replicas = Arc::new(Mutex::new(addresses));
    let list = running[0].get(ANY).await.json();
    let at: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|number| tokio::spawn(watch(Arc::clone(&replicas), number, at)))
        .collect();
    let stop = CancellationToken::new();
    let writing = tokio::spawn({
        let (upstream, stop) = (Arc::clone(&upstream), stop.clone());
        async move {
            let mut written = Vec::new();
            while !stop.is_cancelled() {
                let object = configmap("ns1", "cm-b", 1000 + written.len());
                let object = upstream.store().update(object).unwrap();
                written.push(version(&object));
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            let last = upstream.store().create(configmap("ns1", LAST, 1)).unwrap();
            written.push(version(&last));
            written
        }
    });
    upstream.requests().reset();
    for (turn, replaced) in running.iter_mut().enumerate() {
        let siblings = replicas.lock().clone();
        let new = replica(&upstream, &siblings).await;
        new.has_adopted(1).await;
        replicas.lock()[turn] = new.plain();
        let mut old = std::mem::replace(replaced, new);
        old.stop().await;
    }
    assert_eq!(lists_of(&upstream, "configmaps"), [""; 0]);
    stop.cancel();
    let written = within("the writes end", writing).await.unwrap();
    assert!(written.len() > 100);
    for watcher in watchers {
        assert_eq!(within("a watch ends", watcher).await.unwrap(), written);
    }
    assert_eq!(lists_of(&upstream, "configmaps"), [""; 0]);
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
