//! Herds: many clients that come at once to a gateway that has just started, and one whose reviews
//! find no place (docs/decisions/herds.md).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::Response;
use hyper::body::Incoming;
use serde_json::Value;
use weir::config::{Config, ConsistentLists, ListenerConfig, Mode};
use weir::simulator::{Action, Rule, Simulator, SimulatorOptions, User};

use crate::client::{self, Call, cache_header};
use crate::harness::{Proxy, configmap, seed, upstream_of};
use crate::wait::eventually;

/// Fewer than the token reviews of one address that may run, so that none waits, however busy the
/// machine is.
const USERS: usize = 10;
const WATCHES: usize = 200;
/// More than one user's access reviews may be pending.
const CROWD: usize = 300;
const PENDING_MAX: usize = 256;

/// Starts an API server with [`USERS`] users who may read config maps, and some writes. Returns the
/// resourceVersion before each of them.
async fn upstream() -> (Simulator, Vec<u64>) {
    let rule = || vec![Rule::new(&["get", "list", "watch"], &["configmaps"], &["*"])];
    let user = |number| User::with_rules(&token(number), &format!("user{number}"), rule());
    let mut users: Vec<_> = (0..USERS).map(user).collect();
    users.push(User::admin("weirs-own", "weir"));
    let upstream = upstream_of(users).await;
    let api = upstream.store();
    let write = |number| {
        let before = api.revision();
        api.create(configmap("ns2", &format!("new-{number}"), number)).unwrap();
        before
    };
    let before = (0..30).map(write).collect();
    (upstream, before)
}

async fn gateway(upstream: Simulator) -> Proxy {
    Proxy::before(upstream, "weirs-own", adjust).await
}

fn adjust(config: &mut Config) {
    config.authentication.mode = Mode::Gateway;
    // However busy the machine is, nothing is asked twice because it has expired.
    config.authentication.tokens.ttl = Duration::from_secs(600);
    config.authorization.allow_ttl = Duration::from_secs(600);
    config.authorization.watch_recheck = Some(Duration::from_secs(600));
}

fn token(number: usize) -> String {
    format!("token-of-user-{number}")
}

async fn watch(proxy: &Proxy, number: usize, path: &str) -> Response<Incoming> {
    let authorization = format!("Bearer {}", token(number % USERS));
    let call = Call::get(path).header("authorization", &authorization);
    client::send(proxy.plain(), &call).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_gateway_asks_once_for_each_token_permission_and_cache() {
    let (upstream, before) = upstream().await;
    let proxy = gateway(upstream).await;
    proxy.upstream.requests().reset();
    let crowd = (0..WATCHES).map(|number| {
        let after = before[number % before.len()];
        let path = format!("/api/v1/configmaps?watch=1&resourceVersion={after}");
        let proxy = &proxy;
        async move { watch(proxy, number, &path).await }
    });
    // They stay open.
    let responses = join_all(crowd).await;
    for response in &responses {
        assert_eq!((response.status().as_u16(), cache_header(response.headers())), (200, "hit"));
    }
    let requests = proxy.upstream.requests();
    assert_eq!(requests.count("create", "tokenreviews"), USERS as u64);
    assert_eq!(requests.count("create", "subjectaccessreviews"), USERS as u64);
    assert_eq!(proxy.metric("weir_herd_appointments_total", &[]).await, 0.0);
    assert_eq!(proxy.metric("weir_watch_recheck_interval_seconds", &[]).await, 600.0);
}

/// Weirs behind this one resume watches, and verify each by a consistent list of one object. The
/// first list of the cache takes long. Each list shows a write that comes just before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_root_answers_the_lists_of_all_leaves_by_few_probes() {
    const LEAVES: usize = 40;
    const CONFIGMAPS: &str = "/api/v1/configmaps";
    let (upstream, before) = upstream().await;
    let auto = |config: &mut Config| config.cache.consistent_lists = ConsistentLists::Auto;
    let proxy = Proxy::before(upstream, "weirs-own", auto).await;
    let (api, requests) = (proxy.upstream.store(), proxy.upstream.requests());
    requests.reset();
    let began = tokio::time::Instant::now();
    let slow = Action::DelayAnswer(Duration::from_millis(500));
    proxy.upstream.faults().add("list", "configmaps", 1, slow);
    let resume = |number: usize| {
        let after = before[number % before.len()];
        Call::get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={after}"))
    };
    let call = resume(0);
    let first = client::send(proxy.plain(), &call);
    let leaf = |number: usize| {
        let (proxy, call, api) = (&proxy, resume(number), &api);
        async move {
            tokio::time::sleep(Duration::from_millis(20 * number as u64)).await;
            let watch = client::send(proxy.plain(), &call);
            let list = async {
                // Before all others, in the order of keys.
                let name = format!("a-{:03}", LEAVES - number);
                let at = api.create(configmap("ns1-a", &name, number)).unwrap();
                let list = proxy.get(&format!("{CONFIGMAPS}?limit=1")).await;
                assert_eq!((list.status.as_u16(), list.cache()), (200, "hit"));
                let (list, at) = (list.json(), at["metadata"]["resourceVersion"].clone());
                let number = |text: &Value| text.as_str().unwrap().parse::<u64>().unwrap();
                assert!(number(&list["metadata"]["resourceVersion"]) >= number(&at));
                let shown = list["items"][0]["metadata"]["name"].as_str().unwrap();
                assert!(shown <= &*name, "{shown}, not {name}");
            };
            futures::future::join(watch, list).await.0
        }
    };
    let others = async {
        let begins = async || requests.count("watch", "configmaps") > 0;
        eventually("the cache begins", begins).await;
        join_all((1..LEAVES).map(leaf)).await
    };
    let (first, others) = futures::future::join(first, others).await;
    for response in others.iter().chain([&first]) {
        assert_eq!((response.status().as_u16(), cache_header(response.headers())), (200, "hit"));
    }
    let lists: Vec<_> = requests.recent().into_iter().filter(|it| it.verb == "list").collect();
    assert!(requests.count("list", "configmaps") <= lists_max(began), "{lists:#?}");
    // The same bytes as the API server's, in each form.
    for form in ["application/json", "application/vnd.kubernetes.protobuf"] {
        let call = |query: &str| {
            let call = Call::get(&format!("{CONFIGMAPS}?{query}")).header("accept", form);
            call.header("authorization", "Bearer weirs-own")
        };
        let warm = call("resourceVersion=0");
        eventually("the form is warm", async || proxy.call(&warm).await.cache() == "hit").await;
        for query in ["limit=1", "limit=1&pretty=1"] {
            let call = call(query);
            let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
            assert_eq!(through.body, direct.body, "{form} {query}");
        }
    }
}

/// Each of them is a Weir, whose API server is the root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leaves_of_a_restarted_root_cost_few_lists() {
    const LEAVES: usize = 12;
    let upstream = Arc::new(Simulator::start(SimulatorOptions::default()).await.unwrap());
    seed(&upstream);
    let (api, requests) = (upstream.store(), upstream.requests());
    let auto = |config: &mut Config| config.cache.consistent_lists = ConsistentLists::Auto;
    let mut root = Proxy::before(Arc::clone(&upstream), "", auto).await;
    let (address, kubeconfig) = (root.plain(), root.dir.path().join("leaf.kubeconfig"));
    let to_root =
        |text: String| text.replace(&upstream.address().to_string(), &address.to_string());
    std::fs::write(&kubeconfig, to_root(upstream.kubeconfig(""))).unwrap();
    let leaf = |_| {
        let below = |config: &mut Config| config.upstream.kubeconfig = Some(kubeconfig.clone());
        Proxy::before(Arc::clone(&upstream), "", below)
    };
    let leaves = join_all((0..LEAVES).map(leaf)).await;
    for leaf in &leaves {
        leaf.warm("/api/v1/configmaps").await;
        leaf.until_watched("configmaps").await;
    }
    root.stop().await;
    requests.reset();
    let began = tokio::time::Instant::now();
    let _root = Proxy::before(Arc::clone(&upstream), "", |config| {
        auto(config);
        config.server.listeners[0] = ListenerConfig::Plain { address, proxies: Default::default() };
    })
    .await;
    api.create(configmap("ns1", "after", 1)).unwrap();
    for leaf in &leaves {
        eventually("the leaf has it", async || {
            let path = "/api/v1/namespaces/ns1/configmaps/after?resourceVersion=0";
            let object = leaf.get(path).await;
            (object.status.as_u16(), object.cache()) == (200, "hit")
        })
        .await;
    }
    let lists: Vec<_> = requests.recent().into_iter().filter(|it| it.verb == "list").collect();
    assert!(requests.count("list", "configmaps") <= lists_max(began), "{lists:#?}");
}

/// The list of the cache, two that verify it, and a probe each second, however long the machine
/// takes.
fn lists_max(began: tokio::time::Instant) -> u64 {
    4 + began.elapsed().as_secs()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_whose_reviews_find_no_api_server_wait_for_it_and_are_not_forwarded() {
    let (upstream, before) = upstream().await;
    let proxy = gateway(upstream).await;
    proxy.upstream.stop();
    resume_when_the_upstream_is_back(&proxy, &before).await;
}

/// Nothing is discovered yet when the watches come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_started_without_its_api_server_forwards_no_watch() {
    let (upstream, before) = upstream().await;
    upstream.stop();
    let proxy = Proxy::start(upstream, "weirs-own", adjust).await;
    resume_when_the_upstream_is_back(&proxy, &before).await;
}

/// Lets all watches come before the API server is back, and checks that caches answer them.
async fn resume_when_the_upstream_is_back(proxy: &Proxy, before: &[u64]) {
    let resumed = (0..WATCHES).map(|number| {
        let after = before[number % before.len()];
        let path = format!("/api/v1/configmaps?watch=1&resourceVersion={after}");
        async move {
            loop {
                let response = watch(proxy, number, &path).await;
                match response.status().as_u16() {
                    200 => return response,
                    code => assert_eq!(code, 503),
                }
            }
        }
    });
    let restart = async {
        let is_away = async || proxy.metric("weir_upstream_away", &[]).await > 0.0;
        eventually("the upstream is away", is_away).await;
        proxy.upstream.requests().reset();
        proxy.upstream.restart().await.unwrap();
    };
    // They stay open.
    let (responses, ()) = futures::future::join(join_all(resumed), restart).await;
    for response in &responses {
        assert_eq!(cache_header(response.headers()), "hit");
    }
    let requests = proxy.upstream.requests();
    assert_eq!(requests.count("create", "tokenreviews"), USERS as u64);
    assert_eq!(requests.count("create", "subjectaccessreviews"), USERS as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_whose_reviews_find_no_place_get_appointments_and_are_not_forwarded() {
    let (upstream, _) = upstream().await;
    let proxy = gateway(upstream).await;
    let warm = Call::get("/api/v1/configmaps?resourceVersion=0")
        .header("authorization", &format!("Bearer {}", token(0)));
    eventually("the cache is warm", async || proxy.call(&warm).await.cache() == "hit").await;
    let requests = proxy.upstream.requests();
    let (watches, lists) =
        (requests.count("watch", "configmaps"), requests.count("list", "configmaps"));
    let delay = Action::Delay(Duration::from_secs(1));
    proxy.upstream.faults().add("create", "subjectaccessreviews", 10_000, delay);
    let path = |number: usize| {
        format!(
            "/api/v1/configmaps?watch=1&resourceVersion=0&fieldSelector=metadata.name%3D{number}"
        )
    };
    let crowd = (0..CROWD).map(|number| {
        let (proxy, path) = (&proxy, path(number));
        async move { watch(proxy, 0, &path).await }
    });
    let responses = join_all(crowd).await;
    let (open, refused): (Vec<_>, Vec<_>) =
        responses.iter().enumerate().partition(|(_, response)| response.status() == 200);
    assert!(open.iter().all(|(_, response)| cache_header(response.headers()) == "hit"));
    assert!(refused.len() >= CROWD - PENDING_MAX, "{} were refused", refused.len());
    let mut times = BTreeSet::new();
    for (_, response) in &refused {
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["x-weir-shed"], "reviews");
        let seconds = response.headers()["retry-after"].to_str().unwrap();
        times.insert(seconds.parse::<u32>().unwrap());
    }
    assert!(times.iter().all(|seconds| (1..=40).contains(seconds)), "{times:?}");
    // No more than the reflector's own.
    assert!(requests.count("watch", "configmaps") <= watches + 3, "{:?}", requests.counts());
    assert!(requests.count("list", "configmaps") <= lists + 3, "{:?}", requests.counts());
    let refusals = proxy.metric("weir_herd_appointments_total", &[r#"place="review""#]).await;
    assert_eq!(refusals, refused.len() as f64);
    // A client that comes again is served.
    proxy.upstream.faults().clear();
    for (number, _) in refused {
        let again = watch(&proxy, 0, &path(number)).await;
        assert_eq!((again.status().as_u16(), cache_header(again.headers())), (200, "hit"));
    }
}
