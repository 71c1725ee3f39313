//! A cold or failing cache never causes a herd of requests upstream, and never answers with a 410
//! of its own (docs/decisions/herds.md).

use std::time::Duration;

use weir::config::seams::Seams;
use weir::simulator::{Action, Simulator, SimulatorOptions};

use crate::client::{self, Call, Watch};
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const CLIENTS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_of_a_cold_cache_cost_one_list_and_one_watch() {
    let proxy = Proxy::seeded().await;
    proxy.upstream.requests().reset();
    proxy.upstream.faults().add(
        "watch",
        "configmaps",
        1,
        Action::Delay(Duration::from_millis(300)),
    );
    let plain = proxy.plain();
    let crowd = (0..CLIENTS).map(|number| async move {
        let query = ["resourceVersion=0", "watch=1&resourceVersion=0"][number % 2];
        let call = Call::get(&format!("/api/v1/configmaps?{query}"));
        client::send(plain, &call).await
    });
    let answers = futures::future::join_all(crowd).await;
    for answer in &answers {
        assert_eq!(answer.status(), 200);
        assert_eq!(client::cache_header(answer.headers()), "hit");
    }
    let requests = proxy.upstream.requests();
    // All clients can have their responses before the reflector's own watch is open.
    eventually("the reflector watches", async || requests.count("watch", "configmaps") >= 1).await;
    assert_eq!(requests.count("watch", "configmaps"), 1);
    assert!(requests.count("list", "configmaps") <= 1, "{:?}", requests.counts());
    assert_eq!(requests.count("get", "configmaps"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_never_fills_is_forwarded_within_the_budget() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let seams = Seams { warmup_timeout: Duration::from_millis(200), ..Seams::default() };
    let proxy = Proxy::before_with(seams, upstream, "", |config| {
        config.cache.forward_budget = 2;
    })
    .await;
    proxy.upstream.faults().add("watch", "configmaps", 1000, Action::Hang);
    // All lists must arrive while the first are in progress, also on a busy machine.
    proxy.upstream.faults().add("list", "configmaps", 1000, Action::Delay(Duration::from_secs(5)));
    let begun = tokio::time::Instant::now();
    let plain = proxy.plain();
    let lists = (0..20).map(|_| async move {
        let call = Call::get("/api/v1/configmaps?resourceVersion=0");
        client::fetch(plain, &call).await
    });
    let gets = (0..20).map(|_| async move {
        let call = Call::get("/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0");
        client::fetch(plain, &call).await
    });
    let (lists, gets) =
        tokio::join!(futures::future::join_all(lists), futures::future::join_all(gets));
    assert!(begun.elapsed() >= Duration::from_millis(200), "they waited for the cache");
    for answer in gets {
        assert_eq!((answer.status.as_u16(), answer.cache()), (200, "forward; reason=not-ready"));
    }
    let (forwarded, refused): (Vec<_>, Vec<_>) =
        lists.into_iter().partition(|answer| answer.status == 200);
    assert_eq!(forwarded.len(), 2, "as many as the budget has places");
    for answer in refused {
        assert_eq!(answer.status, 429);
        assert_eq!(answer.headers["retry-after"], "1");
        let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;
        assert_eq!(answer.text().trim_end(), status);
    }
    assert!(proxy.metric("weir_forward_budget_exhausted_total", &[]).await >= 18.0);
    // The forwarded requests have released their permits.
    proxy.upstream.faults().clear();
    let again = proxy.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(again.status, 200, "{}", again.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_watch_fills_the_cache_from_its_resource_version() {
    let proxy = Proxy::seeded().await;
    // The very first cache detects whether the upstream has watch-lists, and starts at the present.
    proxy.warm("/api/v1/nodes").await;
    let before = proxy.upstream.store().revision();
    for number in 0..20 {
        let object = configmap("ns1", &format!("new-{number}"), number);
        proxy.upstream.store().create(object).unwrap();
    }
    proxy.upstream.requests().reset();
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={before}");
    let plain = proxy.plain();
    let call = Call::get(&path);
    let crowd = (0..20).map(|_| Watch::open(plain, &call));
    let mut watches = futures::future::join_all(crowd).await;
    let direct = proxy.watch_direct(&path).await.until("new-19").await;
    for watch in &mut watches {
        assert_eq!(watch.cache(), "hit");
        assert_eq!(watch.until("new-19").await, direct);
    }
    // One through Weir and one directly.
    assert_eq!(proxy.upstream.requests().count("watch", "configmaps"), 2);
    eventually("the upstream's watch of this test is closed", async || {
        proxy.upstream.requests().count("list", "configmaps") <= 2
    })
    .await;
}

/// The first client that needs a fact which no list shows has Weir ask for it. The others share it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_informers_of_a_cold_cache_cost_one_watch_more() {
    let proxy = Proxy::seeded().await;
    proxy.upstream.requests().reset();
    let plain = proxy.plain();
    let call = Call::get(WATCH_LIST);
    let crowd = (0..CLIENTS).map(|_| Watch::open(plain, &call));
    for watch in &mut futures::future::join_all(crowd).await {
        assert_eq!(watch.cache(), "hit");
        watch.until("initial-events-end").await;
    }
    let requests = proxy.upstream.requests();
    eventually("the reflector watches", async || requests.count("watch", "configmaps") >= 2).await;
    assert_eq!(requests.count("watch", "configmaps"), 2);
}

/// A new replica that fills its caches before clients come: watches that go on need nothing that a
/// list does not show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_cache_costs_one_list_and_one_watch_until_an_informer_starts() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let core = weir::api::resource::GroupVersionResource::new("", "v1", "configmaps");
    let proxy = Proxy::before(upstream, "", |config| config.cache.warm = vec![core]).await;
    proxy.warm("/api/v1/configmaps").await;
    let requests = proxy.upstream.requests();
    let costs = || (requests.count("list", "configmaps"), requests.count("watch", "configmaps"));
    eventually("the reflector watches", async || costs().1 >= 1).await;
    let at = proxy.upstream.store().revision();
    let resumed =
        format!("/api/v1/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion={at}");
    let mut resumed = proxy.watch(&resumed).await;
    proxy.upstream.store().create(configmap("ns1", "new", 1)).unwrap();
    resumed.until("new").await;
    assert_eq!((resumed.cache(), costs()), ("hit", (1, 1)));
    for _ in 0..2 {
        let mut informer = proxy.watch(&format!("{WATCH_LIST}&resourceVersion=0")).await;
        assert_eq!(informer.cache(), "hit");
        informer.until("initial-events-end").await;
        assert_eq!(costs(), (1, 2));
    }
}

const WATCH_LIST: &str = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan";
