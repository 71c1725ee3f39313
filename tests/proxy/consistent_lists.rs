//! Lists whose resourceVersion is unset come from the cache, with proof that it is fresh
//! (`docs/decisions/proofs-of-freshness.md`). They show every acknowledged write, also when they
//! are forwarded.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use weir::config::{Config, ConsistentLists};
use weir::simulator::{Action, Balancing, Rule, Simulator, SimulatorOptions};

use crate::client::{Answer, Call};
use crate::harness::{Proxy, alice_and_bob, as_gateway, configmap, pod, seed, upstream_of};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";

async fn with(options: SimulatorOptions, consistent_lists: ConsistentLists) -> Proxy {
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    before(upstream, consistent_lists).await
}

async fn before(upstream: Simulator, consistent_lists: ConsistentLists) -> Proxy {
    let adjust = |config: &mut Config| config.cache.consistent_lists = consistent_lists;
    let proxy = Proxy::before(upstream, "", adjust).await;
    proxy.warm(CONFIGMAPS).await;
    proxy
}

async fn always() -> Proxy {
    with(SimulatorOptions::default(), ConsistentLists::Always).await
}

fn names(list: &Answer) -> Vec<String> {
    let list = list.json();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// The probes, the lists for proofs, and what was forwarded.
fn lists(proxy: &Proxy) -> u64 {
    proxy.upstream.requests().count("list", "configmaps")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_consistent_lists_are_forwarded() {
    let proxy = Proxy::seeded().await;
    proxy.warm(CONFIGMAPS).await;
    for _ in 0..3 {
        assert_eq!(proxy.get(CONFIGMAPS).await.cache(), "forward; reason=consistent");
    }
    assert_eq!(proxy.metric("weir_probes_total", &[]).await, 0.0);
}

/// The first list is measured, and no cache starts for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_takes_long_comes_from_the_cache() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let adjust = |config: &mut Config| config.cache.consistent_lists = ConsistentLists::Auto;
    let proxy = Proxy::before(upstream, "", adjust).await;
    let slow = Action::Delay(Duration::from_secs(2));
    proxy.upstream.faults().add("list", "configmaps", 1, slow);
    assert_eq!(proxy.get(CONFIGMAPS).await.cache(), "forward; reason=consistent");
    assert_eq!(lists(&proxy), 1);
    assert_eq!(proxy.metric("weir_caches", &[]).await, 0.0);
    let expected = proxy.direct(&Call::get(CONFIGMAPS)).await;
    eventually("the list comes from the cache", async || {
        let list = proxy.get(CONFIGMAPS).await;
        assert_eq!(list.body, expected.body);
        list.cache() == "hit"
    })
    .await;
    // It is another list, which was not measured.
    let page = proxy.get(&format!("{CONFIGMAPS}?limit=2")).await;
    assert_eq!(page.cache(), "forward; reason=consistent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_a_list_of_a_collection_is_forwarded() {
    let proxy = always().await;
    let one = "/api/v1/namespaces/ns1/configmaps/cm-a";
    assert_eq!(proxy.get(one).await.cache(), "forward; reason=consistent");
    let one = "/api/v1/namespaces/ns1/configmaps?fieldSelector=metadata.name%3Dcm-a";
    assert_eq!(proxy.get(one).await.cache(), "forward; reason=consistent");
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";
    let table = Call::get(CONFIGMAPS).header("accept", table);
    assert_eq!(proxy.call(&table).await.cache(), "forward; reason=form");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_list_shows_every_acknowledged_write() {
    let proxy = always().await;
    for number in 0..40 {
        let name = format!("new-{number}");
        proxy.upstream.store().create(configmap("ns1", &name, number)).unwrap();
        // Writes of other resources move the upstream past the cache.
        if number % 3 == 0 {
            proxy.upstream.store().create(pod("ns1", &name, "n")).unwrap();
        }
        let list = proxy.get("/api/v1/namespaces/ns1/configmaps").await;
        assert_eq!(list.cache(), "hit");
        assert!(names(&list).contains(&name), "{name}");
    }
}

/// The watch cache behind Weir's stream lags behind the API server that answers the probes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_list_shows_every_write_behind_a_balancer_of_lagging_servers() {
    for balancing in [Balancing::Turns, Balancing::WatchesApart] {
        let options = SimulatorOptions { servers: 2, ..SimulatorOptions::default() };
        let proxy = with(options, ConsistentLists::Always).await;
        proxy.upstream.balance(balancing);
        for number in 0..12 {
            let server = usize::from(number % 2 == 0);
            proxy.upstream.pause_caches(server);
            let name = format!("new-{number}");
            proxy.upstream.store().create(configmap("ns1", &name, number)).unwrap();
            let (list, ()) = tokio::join!(proxy.get(CONFIGMAPS), async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                proxy.upstream.resume_caches(server);
            });
            assert_eq!(list.status, 200);
            assert!(names(&list).contains(&name), "{name} {}", list.cache());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_lists_shares_probes() {
    const LISTS: usize = 600;
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy = before(upstream, ConsistentLists::Auto).await;
    // A list takes long enough to wait for a probe.
    let slow = Action::Delay(Duration::from_secs(2));
    proxy.upstream.faults().add("list", "configmaps", 1, slow);
    assert_eq!(proxy.get(CONFIGMAPS).await.cache(), "forward; reason=consistent");
    let began = tokio::time::Instant::now();
    let before = lists(&proxy);
    let answers = join_all((0..LISTS).map(|_| proxy.get(CONFIGMAPS))).await;
    assert!(answers.iter().all(|list| list.status == 200 && list.body == answers[0].body));
    let hits = answers.iter().filter(|list| list.cache() == "hit").count();
    assert!(hits > 0);
    // At most one probe in 20 ms, however long the machine takes.
    let probes = lists(&proxy) - before - (LISTS - hits) as u64;
    assert!(u128::from(probes) <= began.elapsed().as_millis() / 20 + 2, "{probes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_consistent_list_come_from_the_cache() {
    let proxy = always().await;
    proxy.catch_up(CONFIGMAPS).await;
    for selector in ["", "&labelSelector=app%3Deven"] {
        let (mut token, mut pages) = (String::new(), 0);
        loop {
            let path = format!("{CONFIGMAPS}?limit=5{selector}{token}");
            let (page, direct) = (proxy.get(&path).await, proxy.direct(&Call::get(&path)).await);
            assert_eq!(page.cache(), "hit", "{path}");
            assert_eq!(page.body, direct.body, "{path}");
            pages += 1;
            let next = page.json()["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                break;
            }
            token = format!("&continue={next}");
        }
        assert!(pages > 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_cache_refuses_no_consistent_list() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    upstream.faults().add("watch", "configmaps", 1000, Action::Status(500));
    let proxy = Proxy::before(upstream, "", |config| {
        config.cache.consistent_lists = ConsistentLists::Always;
        config.cache.forward_budget = 1;
    })
    .await;
    let answers = join_all((0..30).map(|_| proxy.get(CONFIGMAPS))).await;
    assert!(answers.iter().all(|list| list.status == 200 && !names(list).is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_upstream_is_away_consistent_lists_are_unavailable() {
    let proxy = always().await;
    assert_eq!(proxy.get(CONFIGMAPS).await.cache(), "hit");
    proxy.upstream.stop();
    eventually("the list is unavailable", async || proxy.get(CONFIGMAPS).await.status == 503).await;
    let list = proxy.get(CONFIGMAPS).await;
    assert_eq!(list.status, 503);
    assert!(list.headers.contains_key("retry-after"));
    // Any state may still be read.
    let stale = proxy.get(&format!("{CONFIGMAPS}?resourceVersion=0")).await;
    assert!(stale.cache().starts_with("hit"));
    proxy.upstream.restart().await.unwrap();
    eventually("the list comes from the cache", async || {
        proxy.get(CONFIGMAPS).await.cache() == "hit"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_get_consistent_lists_of_what_they_may_list() {
    let read = Rule::new(&["list"], &["configmaps"], &["ns1"]);
    let upstream = upstream_of(alice_and_bob(vec![read])).await;
    let proxy = Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.cache.consistent_lists = ConsistentLists::Always;
    })
    .await;
    let list = |path: &str, token: &str| {
        Call::get(path).header("authorization", &format!("Bearer {token}"))
    };
    let namespaced = "/api/v1/namespaces/ns1/configmaps";
    eventually("the list comes from the cache", async || {
        let answer = proxy.call(&list(namespaced, "alices")).await;
        assert_eq!(answer.status, 200);
        answer.cache() == "hit"
    })
    .await;
    for (path, token) in [(namespaced, "bobs"), (CONFIGMAPS, "alices")] {
        let call = list(path, token);
        let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
        assert_eq!((through.status.as_u16(), direct.status.as_u16()), (403, 403));
        assert_eq!(through.body, direct.body);
    }
}
