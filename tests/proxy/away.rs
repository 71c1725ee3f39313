//! While no API server is usable, caches and documents go on, and the rest is a 503 of which
//! nothing was sent (`docs/decisions/upstream-away.md`). An API server that is gone refuses
//! connections; a frozen one accepts them and never answers.

use std::time::Duration;

use http::Method;
use serde_json::json;
use weir::config::Config;
use weir::simulator::{Action, Rule, Simulator, SimulatorOptions, User};

use crate::client::{Answer, Call};
use crate::harness::{POD, Proxy, as_gateway, configmap, seed, upstream_of};
use crate::wait::eventually;

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outage {
    Stopped,
    Frozen,
}

impl Outage {
    const BOTH: [Self; 2] = [Self::Stopped, Self::Frozen];

    /// Takes the upstream away, and waits until Weir has noticed.
    async fn begin(self, proxy: &Proxy) {
        match self {
            Self::Stopped => proxy.upstream.stop(),
            Self::Frozen => proxy.upstream.freeze(),
        }
        // The request that notices it.
        let waiting = tokio::spawn({
            let (address, call) = (proxy.plain(), Call::get("/version"));
            async move { crate::client::fetch(address, &call).await }
        });
        eventually("the upstream is away", async || is_away(proxy).await).await;
        waiting.abort();
    }

    async fn end(self, proxy: &Proxy) {
        match self {
            Self::Stopped => proxy.upstream.restart().await.unwrap(),
            Self::Frozen => proxy.upstream.thaw(),
        }
        eventually("the upstream is back", async || !is_away(proxy).await).await;
    }
}

async fn is_away(proxy: &Proxy) -> bool {
    proxy.metric("weir_upstream_away", &[]).await > 0.0
}

async fn warm() -> Proxy {
    warm_with(|_| {}).await
}

async fn warm_with(adjust: impl FnOnce(&mut Config)) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", adjust).await;
    proxy.warm(CONFIG_MAPS).await;
    let state = ["resource=\"configmaps\"", "state=\"watching\""];
    let follows = async || proxy.metric("weir_reflector_state", &state).await > 0.0;
    eventually("the cache follows", follows).await;
    proxy
}

fn revision(list: &Answer) -> u64 {
    list.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[track_caller]
fn is_from_memory(answer: &Answer) {
    let age = answer.cache().strip_prefix("hit; upstream=away; age=");
    assert!(age.is_some_and(|age| age.parse::<u64>().is_ok()), "{}", answer.cache());
    assert_eq!(answer.status, 200);
}

/// A 503 with a `Retry-After` of 1 to 5 seconds.
#[track_caller]
fn is_unavailable(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 503, "{what}: {}", answer.text());
    assert_eq!(answer.json()["reason"], "ServiceUnavailable", "{what}");
    let seconds: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=5).contains(&seconds), "{what}: {seconds}");
    assert_eq!(answer.json()["details"]["retryAfterSeconds"], seconds, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_any_state_come_from_the_cache_with_its_age() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        let at = revision(&proxy.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await);
        outage.begin(&proxy).await;
        for path in [
            format!("{CONFIG_MAPS}?resourceVersion=0"),
            "/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0".to_owned(),
            format!("{CONFIG_MAPS}?resourceVersion={at}"),
            format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=NotOlderThan", at - 1),
            format!("/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion={at}"),
        ] {
            is_from_memory(&proxy.get(&path).await);
        }
        let hits = proxy.metric("weir_upstream_away_responses_total", &["hit"]).await;
        assert!(hits >= 5.0, "{hits}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_lists_and_next_pages_come_from_the_history() {
    let proxy = warm().await;
    let first = revision(&proxy.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await);
    proxy.upstream.store().create(configmap("ns1", "newer", 1)).unwrap();
    proxy.catch_up(CONFIG_MAPS).await;
    let last = proxy.upstream.store().revision();
    let page = format!("{CONFIG_MAPS}?resourceVersion={last}&resourceVersionMatch=Exact&limit=2");
    let token = proxy.get(&page).await.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    Outage::Stopped.begin(&proxy).await;
    let exact = format!("{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    let list = proxy.get(&exact).await;
    is_from_memory(&list);
    assert!(!list.text().contains("newer"));
    is_from_memory(&proxy.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_the_history_begins_and_repeats_its_last_bookmark() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        let from = revision(&proxy.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await);
        proxy.upstream.store().create(configmap("ns1", "newer", 1)).unwrap();
        proxy.catch_up(CONFIG_MAPS).await;
        let last = proxy.upstream.store().revision();
        // A client that needs the form of a bookmark makes it known.
        let start = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let options = "allowWatchBookmarks=true&timeoutSeconds=1";
        assert_eq!(
            proxy.get(&format!("{CONFIG_MAPS}?watch=1&{start}&{options}")).await.status,
            200
        );
        outage.begin(&proxy).await;
        // The bookmark is due two seconds before the end.
        let path = format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=3"
        );
        for _ in 0..2 {
            let mut watch = proxy.watch(&path).await;
            let (status, cache) = (watch.status, watch.cache());
            assert!(cache.starts_with("hit; upstream=away; age="), "{outage:?}: {status} {cache}");
            assert_eq!(watch.event().await["object"]["metadata"]["name"], "newer");
            let bookmark = watch.event().await;
            let at = bookmark["object"]["metadata"]["resourceVersion"].as_str().unwrap();
            assert_eq!((&bookmark["type"], at), (&json!("BOOKMARK"), last.to_string().as_str()));
            assert!(watch.rest().await.is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_watches_stay_open_and_no_client_lists_again() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        let from = revision(&proxy.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await);
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
        let mut watches = Vec::new();
        for _ in 0..20 {
            watches.push(proxy.watch(&path).await);
        }
        outage.begin(&proxy).await;
        proxy.upstream.requests().reset();
        proxy.upstream.store().create(configmap("ns1", "meanwhile", 1)).unwrap();
        outage.end(&proxy).await;
        for watch in &mut watches {
            assert_eq!(watch.event().await["object"]["metadata"]["name"], "meanwhile");
        }
        let lists = proxy.upstream.requests().recent().into_iter().filter(|request| {
            let whole = !request.query.contains("limit=1");
            request.verb == "list" && request.resource == "configmaps" && whole
        });
        assert_eq!(lists.count(), 0, "the reflector resumes its watch");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistent_reads_and_later_states_get_a_503_and_nothing_is_sent() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        let later = proxy.upstream.store().revision() + 1000;
        outage.begin(&proxy).await;
        let before = requests(&proxy, "configmaps");
        let watch_list = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        for path in [
            "/api/v1/namespaces/ns1/configmaps/cm-a".to_owned(),
            CONFIG_MAPS.to_owned(),
            format!("{CONFIG_MAPS}?watch=1"),
            format!("{CONFIG_MAPS}?{watch_list}&allowWatchBookmarks=true"),
            format!("{CONFIG_MAPS}?{watch_list}&allowWatchBookmarks=true&resourceVersion={later}"),
            format!("{CONFIG_MAPS}?resourceVersion={later}"),
            format!("/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion={later}"),
            // No cache has these.
            "/api/v1/secrets?resourceVersion=0".to_owned(),
            "/api/v1/secrets?watch=1&resourceVersion=5".to_owned(),
            "/apis/unknown.example/v1/things?resourceVersion=0".to_owned(),
        ] {
            is_unavailable(&proxy.get(&path).await, &path);
        }
        let refused = proxy.metric("weir_requests_total", &["reason=\"upstream-away\""]).await;
        assert!(refused >= 10.0, "{refused}");
        outage.end(&proxy).await;
        let after = requests(&proxy, "configmaps");
        let [before, after] = [before, after].map(|counts| {
            counts.into_iter().filter(|(verb, _)| verb == "get").map(|(_, n)| n).sum::<u64>()
        });
        assert_eq!(before, after, "GETs are sent by nobody but clients");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_reviews_subresources_and_upgrades_are_not_sent() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        outage.begin(&proxy).await;
        let write = configmap("ns1", "unsent", 1);
        let review = json!({"kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "secrets"}}});
        let exec = Call::get(&format!("{POD}/exec?command=ls"))
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1");
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for call in [
            Call::new(Method::POST, "/api/v1/namespaces/ns1/configmaps").json(&write),
            Call::new(Method::DELETE, "/api/v1/namespaces/ns1/configmaps/cm-a"),
            Call::new(Method::POST, reviews).json(&review),
            Call::get(&format!("{POD}/log")),
            exec,
        ] {
            is_unavailable(&proxy.call(&call).await, &format!("{} {}", call.method, call.path));
        }
        outage.end(&proxy).await;
        let counts = requests(&proxy, "configmaps");
        let writes = counts.into_iter().filter(|(verb, _)| verb == "create" || verb == "delete");
        assert_eq!(writes.count(), 0);
        assert_eq!(proxy.upstream.requests().count("get", "pods/log"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_sent_gets_a_502_without_retry_after() {
    let proxy = warm().await;
    proxy.upstream.faults().add("create", "configmaps", 1, Action::Hang);
    let create = Call::new(Method::POST, "/api/v1/namespaces/ns1/configmaps")
        .json(&configmap("ns1", "lost", 1));
    let (address, sent) = (proxy.plain(), create.clone());
    let lost = tokio::spawn(async move { crate::client::fetch(address, &sent).await });
    let arrived = async || proxy.upstream.requests().count("create", "configmaps") == 1;
    eventually("the write arrived", arrived).await;
    proxy.upstream.stop();
    let lost = lost.await.unwrap();
    assert_eq!((lost.status.as_u16(), lost.headers.get("retry-after")), (502, None));
    eventually("the upstream is away", async || is_away(&proxy).await).await;
    is_unavailable(&proxy.call(&create).await, "the same write later");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_come_from_memory_with_their_age() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        let calls = [
            Call::get("/api").header("accept", DISCOVERY),
            Call::get("/apis").header("accept", DISCOVERY),
            Call::get("/openapi/v2"),
        ];
        let mut before = Vec::new();
        for call in &calls {
            before.push(proxy.call(call).await);
        }
        outage.begin(&proxy).await;
        for (call, before) in calls.iter().zip(before) {
            let answer = proxy.call(call).await;
            is_from_memory(&answer);
            assert_eq!(answer.body, before.body, "{}", call.path);
            assert_eq!(answer.headers["etag"], before.headers["etag"]);
            let conditional =
                call.clone().header("if-none-match", before.headers["etag"].to_str().unwrap());
            assert_eq!(proxy.call(&conditional).await.status, 304);
        }
        is_unavailable(&proxy.get("/openapi/v3/unknown").await, "not in memory");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_stays_ready_while_a_cache_can_answer() {
    for outage in Outage::BOTH {
        let proxy = warm().await;
        outage.begin(&proxy).await;
        let ready = proxy.admin("/readyz?verbose").await;
        assert_eq!(ready.status, 200, "{}", ready.text());
        assert_eq!(proxy.admin("/livez").await.status, 200);
    }
    // Nothing can be answered without a cache.
    let proxy = Proxy::seeded().await;
    Outage::Stopped.begin(&proxy).await;
    assert_eq!(proxy.admin("/readyz/upstream").await.status, 500);
    assert_eq!(proxy.admin("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_largest_staleness_answers_are_503_and_watches_stay_open() {
    let proxy = warm_with(|config| config.cache.max_staleness = Some(Duration::from_secs(2))).await;
    let list = format!("{CONFIG_MAPS}?resourceVersion=0");
    let from = revision(&proxy.get(&list).await);
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    let mut open = proxy.watch(&watch).await;
    Outage::Stopped.begin(&proxy).await;
    eventually("the cache is too old", async || proxy.get(&list).await.status == 503).await;
    is_unavailable(&proxy.get(&list).await, "a list");
    is_unavailable(&proxy.get(&watch).await, "a watch");
    assert_eq!(proxy.admin("/readyz/upstream").await.status, 500);
    Outage::Stopped.end(&proxy).await;
    eventually("the cache answers", async || proxy.get(&list).await.cache() == "hit").await;
    proxy.upstream.store().create(configmap("ns1", "news", 0)).unwrap();
    assert_eq!(open.event().await["object"]["metadata"]["name"], "news");
}

/// Starts a gateway. Alice may read the config maps of a namespace.
async fn gateway(grace: Duration) -> Proxy {
    let read = Rule::new(&["get", "list", "watch"], &["configmaps"], &["ns1"]);
    let users =
        vec![User::admin("weirs-own", "weir"), User::with_rules("alices", "alice", vec![read])];
    let upstream = upstream_of(users).await;
    Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.authentication.tokens.ttl = Duration::from_secs(1);
        config.authorization.allow_ttl = Duration::from_secs(1);
        config.authorization.stale_decision_grace = grace;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_decisions_keep_their_times_and_then_reads_are_503() {
    let list = |token: &str| {
        Call::get("/api/v1/namespaces/ns1/configmaps?resourceVersion=0")
            .header("authorization", &format!("Bearer {token}"))
    };
    for outage in Outage::BOTH {
        let proxy = gateway(Duration::from_secs(3600)).await;
        let warm = async || proxy.call(&list("alices")).await.cache() == "hit";
        eventually("the cache is warm", warm).await;
        let discovery =
            Call::get("/apis").header("accept", DISCOVERY).header("authorization", "Bearer alices");
        let document = proxy.call(&discovery).await;
        assert_eq!(document.status, 200);
        outage.begin(&proxy).await;
        let from_memory = proxy.call(&discovery).await;
        assert!(from_memory.cache().contains("upstream=away; age="), "{}", from_memory.cache());
        assert_eq!(from_memory.body, document.body);
        let others = Call::get("/apis")
            .header("accept", DISCOVERY)
            .header("authorization", "Bearer weirs-own");
        is_unavailable(&proxy.call(&others).await, "a user who never got it");
        eventually("an expired decision is used", async || {
            let answer = proxy.call(&list("alices")).await;
            answer.cache().starts_with("hit; decision=stale; upstream=away; age=")
        })
        .await;
        // Nobody has said that this token is wrong.
        is_unavailable(&proxy.call(&list("unknown")).await, "an unknown token");

        let proxy = gateway(Duration::ZERO).await;
        let warm = async || proxy.call(&list("alices")).await.cache() == "hit";
        eventually("the cache is warm", warm).await;
        outage.begin(&proxy).await;
        let ended = async || proxy.call(&list("alices")).await.status == 503;
        eventually("the decisions have expired", ended).await;
        is_unavailable(&proxy.call(&list("alices")).await, "without a decision");
    }
}

/// Returns the number of requests for a resource by verb.
fn requests(proxy: &Proxy, resource: &str) -> Vec<(String, u64)> {
    let counts = proxy.upstream.requests().counts().into_iter();
    counts
        .filter(|((_, counted_resource), _)| counted_resource == resource)
        .map(|((verb, _), n)| (verb, n))
        .collect()
}
