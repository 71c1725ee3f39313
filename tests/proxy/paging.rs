//! The pages of one list may come from the upstream, from a Weir and from another Weir.
//!
//! The tests do not check the form of the tokens, only that each server accepts those of the
//! others.

use std::net::SocketAddr;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use weir::app::App;
use weir::config::seams::Seams;
use weir::config::{Config, ListenerConfig, ProxyNetworks};

use crate::client::{self, Answer, Call};
use crate::harness::{Proxy, configmap};
use crate::wait::eventually;

/// Another Weir in front of the upstream of a [`Proxy`].
struct Replica {
    address: SocketAddr,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Replica {
    async fn start(proxy: &Proxy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("upstream.kubeconfig");
        std::fs::write(&kubeconfig, proxy.upstream.kubeconfig("")).unwrap();
        let mut config = Config::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        config.upstream.kubeconfig = Some(kubeconfig);
        config.admin.listen = None;
        config.server.listeners =
            vec![ListenerConfig::Plain { address: any, proxies: ProxyNetworks::default() }];
        let app = App::start(config, Seams::default()).await.unwrap();
        let address = app.listeners()[0].address.parse().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(app.run(stop.clone()));
        Self { address, stop, _dir: dir }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Collections with many objects, few and none.
const COLLECTIONS: [&str; 5] = [
    "/api/v1/configmaps",
    "/api/v1/namespaces/ns1/configmaps",
    "/api/v1/nodes",
    "/apis/example.com/v1/widgets",
    "/api/v1/namespaces/nowhere/configmaps",
];
const SELECTORS: [&str; 3] =
    ["", "&labelSelector=app%3Deven", "&fieldSelector=metadata.name%3Dcm-b"];
const FIRST: [&str; 3] = ["", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_may_alternate_between_two_weirs_and_the_upstream() {
    let proxy = Proxy::seeded().await;
    let replica = Replica::start(&proxy).await;
    let mut random = fastrand::Rng::with_seed(7);
    for collection in COLLECTIONS {
        let revision = caught_up(&proxy, &replica, collection).await;
        for selector in SELECTORS {
            for first in FIRST {
                let query = format!("{collection}?resourceVersion={revision}{first}{selector}");
                let whole = items(&proxy.direct(&Call::get(&query)).await);
                let walked =
                    walk(&proxy, &replica, &query, selector, &mut random, async |_page| {}).await;
                assert_eq!(walked, whole, "{query}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pages_are_of_one_state_during_writes() {
    let proxy = Proxy::seeded().await;
    let replica = Replica::start(&proxy).await;
    let mut random = fastrand::Rng::with_seed(8);
    let collection = "/api/v1/configmaps";
    for round in 0..4 {
        let revision = caught_up(&proxy, &replica, collection).await;
        let query = format!("{collection}?resourceVersion={revision}");
        let whole = items(&proxy.direct(&Call::get(&query)).await);
        let store = proxy.upstream.store();
        let walked = walk(&proxy, &replica, &query, "", &mut random, async |page| {
            // Objects before, within and after the pages that follow.
            let name = format!("round-{round}-{page}");
            for namespace in ["ns1", "ns2"] {
                store.create(configmap(namespace, &name, page)).unwrap();
                store.update(configmap(namespace, "cm-d-x", page)).unwrap();
            }
            if page == 1 {
                store.delete("v1", "configmaps", "ns2", "cm-b").unwrap();
            }
            caught_up(&proxy, &replica, collection).await;
        })
        .await;
        assert_eq!(walked, whole, "round {round}");
        store.create(configmap("ns2", "cm-b", round)).unwrap();
    }
}

/// A token older than the cache goes to the upstream, which still has that history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_continue_token_from_before_the_cache_is_forwarded() {
    let proxy = Proxy::seeded().await;
    let first = proxy.direct(&Call::get("/api/v1/configmaps?limit=3")).await.json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    proxy.upstream.store().delete("v1", "configmaps", "ns1", "cm-b").unwrap();
    proxy.warm("/api/v1/configmaps").await;
    proxy.catch_up("/api/v1/configmaps").await;
    let next = format!("/api/v1/configmaps?limit=3&continue={token}");
    let through = proxy.get(&next).await;
    assert_eq!(through.cache(), "forward; reason=continue");
    assert_eq!(through.text(), proxy.direct(&Call::get(&next)).await.text());
}

/// Reads all pages, each from another server. Every page of a Weir must come from its cache.
async fn walk(
    proxy: &Proxy,
    replica: &Replica,
    first: &str,
    selector: &str,
    random: &mut fastrand::Rng,
    between: impl AsyncFn(usize),
) -> Vec<Value> {
    let (collection, _) = first.split_once('?').unwrap();
    // A single object is never paged, and a limit excludes Exact.
    let one_key = ["/namespaces/", "/nodes"].iter().any(|place| first.contains(place));
    let single = one_key && first.contains("metadata.name");
    let mut walked = Vec::new();
    let mut path = format!("{first}&limit={}", random.usize(1..4));
    let mut revision = Value::Null;
    for page in 0.. {
        let hand = random.u8(..3);
        let answer = match hand {
            0 => proxy.direct(&Call::get(&path)).await,
            1 => proxy.get(&path).await,
            _ => client::fetch(replica.address, &Call::get(&path)).await,
        };
        if hand > 0 && !single {
            assert_eq!(answer.cache(), "hit", "{path}");
        }
        let list = answer.json();
        if page > 0 {
            assert_eq!(list["metadata"]["resourceVersion"], revision, "{path}");
        }
        revision = list["metadata"]["resourceVersion"].clone();
        walked.extend(items(&answer));
        match list["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => {
                let limit = random.usize(1..4);
                path = format!("{collection}?limit={limit}&continue={token}{selector}");
            }
            _ => return walked,
        }
        between(page).await;
    }
    unreachable!("a walk ends")
}

fn items(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

/// Waits until both Weirs have all writes, and returns their revision.
async fn caught_up(proxy: &Proxy, replica: &Replica, collection: &str) -> u64 {
    let current = proxy.direct(&Call::get(collection)).await.json();
    let revision = current["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let list = format!("{collection}?resourceVersion={revision}");
    eventually("weir has it all", async || proxy.get(&list).await.cache() == "hit").await;
    let other = async || client::fetch(replica.address, &Call::get(&list)).await;
    eventually("its replica has it all", async || other().await.cache() == "hit").await;
    revision.parse().unwrap()
}
