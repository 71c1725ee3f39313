//! Shadow mode: every answer is the upstream's, and the report says how the cache's compares.

use serde_json::Value;
use weir::config::{Config, Fraction, ShadowMode};
use weir::simulator::{Action, Rule, Simulator, SimulatorOptions};

use crate::client::{self, Answer, Call, Watch};
use crate::harness::{Proxy, alice_and_bob, as_gateway, configmap, seed, upstream_of};
use crate::wait::eventually;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

async fn shadowed() -> Proxy {
    with(|_| {}).await
}

async fn with(adjust: impl FnOnce(&mut Config)) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |config| {
        config.shadow.mode = ShadowMode::Compare;
        // A debug build on a busy machine must not skip comparisons.
        config.shadow.cpu_share = Fraction::percent(100);
        adjust(config);
    })
    .await
}

async fn report(proxy: &Proxy) -> Value {
    proxy.admin("/api/shadow").await.json()
}

/// Waits until this number of reads have an outcome, and returns the report.
async fn after(proxy: &Proxy, reads: u64) -> Value {
    eventually("all reads have an outcome", async || {
        report(proxy).await["total"]["seen"].as_u64() >= Some(reads)
    })
    .await;
    report(proxy).await
}

#[track_caller]
fn assert_equal(report: &Value, reads: u64) {
    assert_eq!(report["total"]["equal"], reads, "{report:#}");
    assert_eq!(report["total"]["different"], 0, "{report:#}");
    assert_eq!(report["total"]["upstreamInconsistent"], 0, "{report:#}");
}

/// Starts a cache, until its answer is compared. Returns the number of reads so far.
async fn begin(proxy: &Proxy, call: &Call) -> u64 {
    let before = report(proxy).await["total"].clone();
    let count = |name: &str| before[name].as_u64().unwrap();
    let mut sent = 0;
    eventually("the cache is compared", async || {
        sent += 1;
        proxy.call(call).await;
        let report = after(proxy, count("seen") + sent).await;
        report["total"]["equal"].as_u64() > Some(count("equal"))
    })
    .await;
    count("seen") + sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_answers_are_equal_in_every_form() {
    let proxy = shadowed().await;
    let mut calls = Vec::new();
    for accept in ["application/json", PROTOBUF, METADATA_LIST] {
        let call = |path: &str| Call::get(path).header("accept", accept);
        begin(&proxy, &call(&format!("{CONFIGMAPS}?resourceVersion=0"))).await;
        for query in [
            "resourceVersion=0",
            "",
            "limit=3",
            "limit=2&resourceVersion=0",
            "labelSelector=app%3Deven",
            "fieldSelector=metadata.name%3Dcm-a&resourceVersion=0",
        ] {
            calls.push(call(&format!("{CONFIGMAPS}?{query}")));
        }
        calls.push(call("/api/v1/namespaces/ns1/configmaps?pretty=1"));
        calls.push(
            call(&format!("{CONFIGMAPS}?resourceVersion=0")).header("accept-encoding", "gzip"),
        );
    }
    for accept in ["application/json", PROTOBUF, METADATA] {
        let path = "/api/v1/namespaces/ns1/configmaps/cm-a";
        calls.push(Call::get(path).header("accept", accept));
        calls.push(Call::get(&format!("{path}?resourceVersion=0")).header("accept", accept));
        calls.push(Call::get(&format!("{path}-absent")).header("accept", accept));
    }
    let before = report(&proxy).await["total"].clone();
    for call in &calls {
        let (seen, direct) = (proxy.call(call).await, proxy.direct(call).await);
        assert_ne!(seen.cache(), "hit", "{call:?}");
        assert_eq!((seen.status, &seen.body), (direct.status, &direct.body), "{call:?}");
    }
    let sent = calls.len() as u64;
    let report = after(&proxy, before["seen"].as_u64().unwrap() + sent).await;
    assert_equal(&report, before["equal"].as_u64().unwrap() + sent);
    assert!(report["total"]["savedRequests"].as_u64() > Some(0), "{report:#}");
    // A read that a cache would have forwarded is compared all the same, and counted.
    assert!(report["total"]["notHeld"]["consistent"].as_u64() > Some(0), "{report:#}");
    assert_eq!(report["ready"], false, "ten thousand comparisons are not there yet");
}

/// The object may have been created between the answer and the first list of the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_404_from_before_the_cache_is_not_comparable() {
    let proxy = shadowed().await;
    let delay = Action::Delay(std::time::Duration::from_secs(1));
    proxy.upstream.faults().add("list", "configmaps", 1, delay);
    assert_eq!(proxy.get("/api/v1/namespaces/ns1/configmaps/soon").await.status, 404);
    proxy.upstream.store().create(configmap("ns1", "soon", 1)).unwrap();
    let report = after(&proxy, 1).await;
    assert_eq!(report["total"]["notComparable"]["before-cache"], 1, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_compared_with_their_tokens() {
    let proxy = shadowed().await;
    let mut sent = begin(&proxy, &Call::get(&format!("{CONFIGMAPS}?resourceVersion=0"))).await;
    let before = report(&proxy).await["total"]["equal"].as_u64().unwrap();
    let mut query = "limit=5".to_owned();
    let mut pages = 0;
    loop {
        let page = proxy.get(&format!("{CONFIGMAPS}?{query}")).await;
        (sent, pages) = (sent + 1, pages + 1);
        // The next page shows the state before this.
        let name = format!("later-{sent}");
        proxy.upstream.store().create(configmap("ns1", &name, 1)).unwrap();
        match page.json()["metadata"]["continue"].as_str() {
            Some(token) => query = format!("limit=5&continue={token}"),
            None => break,
        }
    }
    assert!(pages >= 3);
    assert_equal(&after(&proxy, sent).await, before + pages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_compared_from_their_start() {
    let proxy = shadowed().await;
    let from = proxy.upstream.store().revision();
    let mut watches = Vec::new();
    for query in [
        "resourceVersion=0",
        "resourceVersion=0&labelSelector=app%3Deven",
        "allowWatchBookmarks=1",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
        &format!("resourceVersion={from}&allowWatchBookmarks=1"),
        &format!("resourceVersion={from}&fieldSelector=metadata.namespace%3Dns1"),
    ] {
        watches.push(proxy.watch(&format!("{CONFIGMAPS}?watch=1&{query}")).await);
    }
    for accept in [format!("{PROTOBUF};stream=watch"), METADATA.to_owned()] {
        let call = Call::get(&format!("{CONFIGMAPS}?watch=1&resourceVersion={from}"))
            .header("accept", &accept);
        let watch = Watch::open(proxy.plain(), &call).await;
        assert_eq!(watch.status, 200);
        watches.push(watch);
    }
    for number in 0..20 {
        proxy.upstream.store().create(configmap("ns1", &format!("more-{number}"), number)).unwrap();
    }
    // Six of the watches show JSON, and at least ten of the new objects each.
    for watch in watches.iter_mut().take(6) {
        watch.until("more-18").await;
    }
    eventually("events are compared", async || {
        let report = report(&proxy).await;
        assert_eq!(report["total"]["different"], 0, "{report:#}");
        report["total"]["equalEvents"].as_u64() > Some(8 * 10 + 3 * 12)
    })
    .await;
    let count = watches.len() as u64;
    drop(watches);
    let report = after(&proxy, count).await;
    assert_equal(&report, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_watches_are_compared() {
    let options = SimulatorOptions { minor: 37, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |config| {
        config.shadow.mode = ShadowMode::Compare;
        config.shadow.cpu_share = Fraction::percent(100);
    })
    .await;
    let before = begin(&proxy, &Call::get(&format!("{CONFIGMAPS}?resourceVersion=0"))).await;
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=0&allowWatchBookmarks=1");
    let call = Call::get(&path).header("accept-encoding", "gzip");
    let mut watch = Watch::open(proxy.plain(), &call).await;
    assert_eq!(watch.headers["content-encoding"], "gzip");
    for number in 0..20 {
        proxy.upstream.store().create(configmap("ns1", &format!("more-{number}"), number)).unwrap();
    }
    watch.until("more-19").await;
    eventually("events are compared", async || {
        let report = report(&proxy).await;
        assert_eq!(report["total"]["different"], 0, "{report:#}");
        report["total"]["equalEvents"].as_u64() > Some(20)
    })
    .await;
    drop(watch);
    let report = after(&proxy, before + 1).await;
    assert_eq!(report["total"]["different"], 0, "{report:#}");
    assert_eq!(report["verbs"]["watch"]["equal"], 1, "{report:#}");
}

/// Plants a difference between an answer and the cache's, which the upstream repeats.
fn planted(proxy: &Proxy, verb: &str, resource: &str, times: u32) {
    let alter = Action::Alter("\"text\":\"".to_owned(), "\"tex!\":\"".to_owned());
    proxy.upstream.faults().add(verb, resource, times, alter);
}

fn one_difference(report: &Value, outcome: &str) -> String {
    assert_eq!(report["differences"][0]["outcome"], outcome, "{report:#}");
    report["differences"][0]["what"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_difference_is_reported_without_contents() {
    let proxy = shadowed().await;
    let list = Call::get(&format!("{CONFIGMAPS}?resourceVersion=0"));
    let sent = begin(&proxy, &list).await;
    planted(&proxy, "list", "configmaps", 2);
    let path = format!("{CONFIGMAPS}?resourceVersion=0&labelSelector=app%3Deven");
    let answer = proxy.get(&path).await;
    assert!(answer.text().contains("tex!"), "the client gets the upstream's answer");
    let report = after(&proxy, sent + 1).await;
    assert_eq!(report["total"]["different"], 1, "{report:#}");
    let what = one_difference(&report, "different");
    let offset = memchr::memmem::find(&answer.body, b"tex!").unwrap() + 3;
    assert!(what.starts_with(&format!("byte {offset} at .items[0].data")), "{what}");
    assert!(what.contains(&format!("upstream {} bytes", answer.body.len())), "{what}");
    let text = proxy.admin("/api/shadow?format=text").await.text();
    assert!(text.contains("Not ready to switch:") && text.contains("1 differences"), "{text}");
    for hidden in ["tex!", "Deven", "<a&b>", "cm-a"] {
        assert!(!text.contains(hidden) && !report.to_string().contains(hidden), "{text}");
    }
    assert_eq!(proxy.metric("weir_shadow_total", &["outcome=\"different\""]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_contradicts_itself_is_named() {
    let proxy = shadowed().await;
    let get = Call::get("/api/v1/namespaces/ns1/configmaps/cm-a");
    let sent = begin(&proxy, &get).await;
    planted(&proxy, "get", "configmaps", 1);
    proxy.call(&get).await;
    let report = after(&proxy, sent + 1).await;
    assert_eq!(report["total"]["upstreamInconsistent"], 1, "{report:#}");
    assert_eq!(report["total"]["different"], 0, "{report:#}");
    assert!(one_difference(&report, "upstream-inconsistent").contains("at .data"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_differs_is_reported() {
    let proxy = shadowed().await;
    begin(&proxy, &Call::get(&format!("{CONFIGMAPS}?resourceVersion=0"))).await;
    planted(&proxy, "watch", "configmaps", 1);
    let from = proxy.upstream.store().revision();
    let mut watch = proxy.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={from}")).await;
    proxy.upstream.store().create(configmap("ns1", "new", 1)).unwrap();
    watch.until("tex!").await;
    eventually("the difference is found", async || {
        report(&proxy).await["total"]["notComparable"]["unconfirmed"] == 1
    })
    .await;
    let report = report(&proxy).await;
    let what = one_difference(&report, "not-comparable");
    let at = proxy.upstream.store().revision();
    assert!(what.starts_with(&format!("event at {at}: other bytes; byte ")), "{what}");
    assert!(what.contains(" at .object.data"), "{what}");
    // The client's watch goes on.
    proxy.upstream.store().create(configmap("ns1", "newer", 1)).unwrap();
    watch.until("newer").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cache_would_forward_is_counted_by_reason() {
    let proxy = shadowed().await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    proxy.call(&Call::get(CONFIGMAPS).header("accept", table)).await;
    proxy.get("/api/v1/events?resourceVersion=0").await;
    proxy.get(&format!("{CONFIGMAPS}?resourceVersion=abc")).await;
    let report = after(&proxy, 3).await;
    assert_eq!(
        report["total"]["notHeld"],
        serde_json::json!({"excluded": 1, "form": 1, "options": 1}),
        "{report:#}"
    );
    assert_eq!(report["total"]["compared"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_compared_is_counted() {
    let proxy = with(|config| config.shadow.cpu_share = "0.001%".parse().unwrap()).await;
    let list = format!("{CONFIGMAPS}?resourceVersion=0");
    // A debug build spends the burst of a second soon.
    for number in 0..200 {
        let name = format!("big-{number}");
        let mut object = configmap("ns1", &name, number);
        object["data"]["big"] = "x".repeat(100_000).into();
        proxy.upstream.store().create(object).unwrap();
    }
    eventually("a read is dropped", async || {
        let answer = proxy.get(&list).await;
        assert_eq!(answer.status, 200);
        report(&proxy).await["total"]["notComparable"]["busy"].as_u64() > Some(0)
    })
    .await;
    let dropped = ["outcome=\"not-comparable\"", "reason=\"busy\""];
    assert!(proxy.metric("weir_shadow_total", &dropped).await > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateways_own_decisions_are_compared() {
    let read = Rule::new(&["get", "list", "watch"], &["configmaps"], &["ns1"]);
    let upstream = upstream_of(alice_and_bob(vec![read])).await;
    let proxy = Proxy::before(upstream, "weirs-own", |config| {
        as_gateway(config);
        config.shadow.mode = ShadowMode::Compare;
        config.shadow.cpu_share = Fraction::percent(100);
    })
    .await;
    let address = proxy.address(weir::server::ListenerKind::Plain);
    let mut sent = 0;
    let mut list = async |token: &str| -> Answer {
        let call = Call::get("/api/v1/namespaces/ns1/configmaps?resourceVersion=0")
            .header("authorization", &format!("Bearer {token}"));
        sent += 1;
        let answer = client::fetch(address, &call).await;
        after(&proxy, sent).await;
        answer
    };
    assert_eq!(list("bobs").await.status, 403);
    assert_eq!(list("nobodys").await.status, 401);
    assert_eq!(list("alices").await.status, 200);
    eventually("alice's list is compared", async || {
        assert_eq!(list("alices").await.status, 200);
        report(&proxy).await["total"]["equal"].as_u64() >= Some(3)
    })
    .await;
    let report = report(&proxy).await;
    assert_eq!(report["total"]["different"], 0, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_relayed_and_not_compared() {
    let proxy = shadowed().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let call = Call::get("/apis").header("accept", accept);
    for _ in 0..2 {
        assert_eq!(proxy.call(&call).await.body, proxy.direct(&call).await.body);
    }
    assert_eq!(report(&proxy).await["total"]["seen"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_report_is_there_in_shadow_mode_only() {
    let proxy = Proxy::seeded().await;
    let answer = proxy.admin("/api/shadow").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (404, "off: see shadow.mode\n".to_owned()));
    proxy.warm(CONFIGMAPS).await;
    assert_eq!(proxy.metric("weir_shadow_total", &[]).await, 0.0);
}
