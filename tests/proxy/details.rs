//! The live page and the data behind it, over a real connection: the rule of access, what is equal
//! to the metrics, and an outage.

use http::Method;
use serde_json::Value;
use weir::config::{AdminDetail, FlowControlMode};
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{self, Answer, Call};
use crate::harness::{Proxy, seed};
use crate::wait::eventually;

const KINDS: [&str; 6] = ["overview", "caches", "clients", "reasons", "events", "limits"];

async fn observing(detail: AdminDetail) -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |config| {
        config.flow_control.mode = FlowControlMode::Observe;
        config.admin.detail = detail;
    })
    .await
}

async fn call(proxy: &Proxy, path: &str, headers: &[(&str, &str)]) -> Answer {
    let call = headers.iter().fold(Call::get(path), |call, (name, value)| call.header(name, value));
    client::fetch(proxy.admin_address(), &call).await
}

async fn get(proxy: &Proxy, kind: &str) -> Value {
    let answer = call(proxy, &format!("/api/{kind}"), &[]).await;
    assert_eq!(answer.status, 200, "{kind}: {}", answer.text());
    serde_json::from_str(&answer.text()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_and_its_data_are_for_local_clients() {
    let proxy = observing(AdminDetail::Local).await;
    let page = call(&proxy, "/", &[("accept", "text/html,*/*")]).await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.text().starts_with("<!DOCTYPE html>"));
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    // A client that is no browser gets the list of paths.
    assert!(call(&proxy, "/", &[]).await.text().contains("/readyz"));
    let mut files = vec!["/page.js".to_owned(), "/page.css".to_owned(), "/icon.svg".to_owned()];
    files.extend(KINDS.map(|kind| format!("/api/{kind}")));
    let foreign = [
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("host", "evil.example"),
    ];
    for file in &files {
        let answer = call(&proxy, file, &[]).await;
        assert_eq!(answer.status, 200, "{file}");
        assert_eq!(answer.headers["content-security-policy"], policy, "{file}");
        for header in foreign.iter().take(2) {
            assert_eq!(call(&proxy, file, &[*header]).await.status, 403, "{file}: {header:?}");
        }
    }
    // A stranger's page gets no page of ours either.
    let text = call(&proxy, "/", &[("accept", "text/html"), foreign[0]]).await;
    assert!(!text.text().contains("<!DOCTYPE"), "{}", text.text());
    assert_eq!(call(&proxy, "/api/nothing", &[]).await.status, 404);

    let hidden = observing(AdminDetail::None).await;
    for file in &files {
        assert_eq!(call(&hidden, file, &[]).await.status, 404, "{file}");
    }
    let index = call(&hidden, "/", &[("accept", "text/html")]).await;
    assert!(index.text().contains("/readyz"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_shared_compressed_and_not_repeated() {
    let proxy = observing(AdminDetail::Local).await;
    let first = call(&proxy, "/api/limits", &[("accept-encoding", "gzip")]).await;
    assert_eq!(first.headers["content-encoding"], "gzip");
    let script = call(&proxy, "/page.js", &[]).await;
    let etag = script.headers["etag"].to_str().unwrap().to_owned();
    let again = call(&proxy, "/page.js", &[("if-none-match", &etag)]).await;
    assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    let plain = call(&proxy, "/page.js", &[("accept-encoding", "gzip;q=0")]).await;
    assert_eq!(plain.body, script.body);
    for kind in KINDS {
        let value = get(&proxy, kind).await;
        assert_eq!(value["apiVersion"], "weir.dev/v1alpha1", "{kind}");
        assert!(value["time"].as_str().unwrap().ends_with('Z'), "{kind}");
        assert!(value["uptimeSeconds"].is_u64() && value["instance"].is_string(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_equal_the_metrics() {
    let proxy = observing(AdminDetail::Local).await;
    proxy.get("/api/v1/namespaces/ns1/pods?resourceVersion=0").await;
    proxy.get("/api/v1/namespaces/ns1/pods").await;
    let overview = eventually_some(async || {
        let overview = get(&proxy, "overview").await;
        (overview["totals"]["requests"] == 2).then_some(overview)
    })
    .await;
    let hits = proxy.metric("weir_requests_total", &["cache_status=\"hit\""]).await;
    assert_eq!(overview["totals"]["hits"].as_f64(), Some(hits));
    assert_eq!(overview["verdict"]["level"], "well", "{overview:#}");
    let caches = get(&proxy, "caches").await;
    let pods = &caches["items"][0];
    assert_eq!(
        (pods["resource"].as_str(), pods["state"].as_str()),
        (Some("pods"), Some("watching"))
    );
    let objects = proxy.metric("weir_cache_objects", &["resource=\"pods\""]).await;
    assert_eq!(pods["objects"].as_f64(), Some(objects));
    let reasons = get(&proxy, "reasons").await;
    assert_eq!(reasons["items"][0]["reason"], "consistent", "{reasons:#}");
    let limits = get(&proxy, "limits").await;
    let limit_of_caches =
        limits["items"].as_array().unwrap().iter().find(|limit| limit["name"] == "all caches");
    assert_eq!(
        limit_of_caches.unwrap()["limit"].as_f64().unwrap(),
        proxy.metric("weir_cache_total_bytes_limit", &[]).await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_clients_do_not_make_weir_unwell() {
    let proxy = observing(AdminDetail::Local).await;
    for _ in 0..5 {
        let call = Call::get("/api/v1/pods").header("host", "evil.example");
        assert_eq!(client::fetch(proxy.plain(), &call).await.status, 403);
    }
    let overview = eventually_some(async || {
        let overview = get(&proxy, "overview").await;
        (overview["totals"]["refused"] == 5).then_some(overview)
    })
    .await;
    assert_eq!(overview["totals"]["errors"], 0);
    assert_eq!(overview["verdict"]["case"], "well", "{overview:#}");
    let reasons = get(&proxy, "reasons").await;
    let host = &reasons["items"][0];
    assert_eq!((&host["cacheStatus"], &host["reason"]), (&"error".into(), &"host".into()));
    assert!(host["meaning"].as_str().unwrap().contains("Host"), "{host:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_shown_and_noted() {
    let proxy = observing(AdminDetail::Local).await;
    let level = async || get(&proxy, "overview").await["verdict"]["level"].clone();
    eventually("all is well", async || level().await == "well").await;
    proxy.upstream.stop();
    eventually("the outage is shown", async || level().await == "critical").await;
    let noted = async || {
        let events = get(&proxy, "events").await;
        let items = events["items"].as_array().unwrap().clone();
        items.into_iter().find(|event| event["kind"] == "upstream")
    };
    let event = eventually_some(noted).await;
    // The time stands apart, so that a reader hears the sentence once.
    let overview = get(&proxy, "overview").await;
    let first = &overview["verdict"];
    assert_eq!(first["case"], "upstream-away");
    assert!(!first["text"].as_str().unwrap().contains(char::is_numeric), "{first:#}");
    let since = first["since"].as_str().unwrap().to_owned();
    let later = eventually_some(async || {
        let later = get(&proxy, "overview").await;
        (later["time"] != overview["time"]).then(|| later["verdict"].clone())
    })
    .await;
    assert_eq!((&later["text"], &later["since"]), (&first["text"], &since.into()));
    assert!(event["text"].as_str().unwrap().contains("away"), "{event:#}");
    let last = event["number"].as_u64().unwrap();
    let since = call(&proxy, &format!("/api/events?since={last}"), &[]).await.text();
    assert!(!since.contains("is away"), "{since}");
    assert!(proxy.metric("weir_notable_events_total", &["kind=\"upstream\""]).await >= 1.0);
}

/// Waits until there is a value.
async fn eventually_some<T>(find: impl AsyncFn() -> Option<T>) -> T {
    let mut value = None;
    eventually("there is a value", async || {
        value = find().await;
        value.is_some()
    })
    .await;
    value.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_socket_shows_details_to_weirs_own_user() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let socket = path.clone();
    let mut proxy = Proxy::before(upstream, "", move |config| {
        config.flow_control.mode = FlowControlMode::Off;
        config.admin.socket = Some(socket);
    })
    .await;
    let get = async |target: &str| {
        let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let answer = client::try_send(stream, &Call::get(target)).await.unwrap();
        Answer::collect(answer).await.unwrap()
    };
    let overview = get("/api/overview").await;
    assert_eq!(overview.status, 200, "{}", overview.text());
    // The page asks for neither of these where costs are off.
    assert_eq!(overview.json()["countsClients"], false);
    assert_eq!(get("/api/findings").await.status, 404);
    eventually("it is ready", async || get("/readyz").await.status == 200).await;
    proxy.stop().await;
    assert!(!path.exists(), "the file goes with its listener");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_open_connections_are_listed_for_local_clients() {
    let proxy = observing(AdminDetail::Local).await;
    let path = "/api/v1/nodes?watch=1&resourceVersion=0";
    let watch = Call::get(path).header("user-agent", "watcher/1.0");
    let open = client::Watch::open(proxy.plain(), &watch).await;
    let list = async || call(&proxy, "/debug/connections?limit=1", &[]).await.json();
    let described = list().await;
    let first = &described["items"][0];
    assert_eq!((&first["userAgent"], &first["openRequests"]), (&"watcher/1.0".into(), &1.into()));
    assert_eq!((&first["listener"], &first["isHTTP2"]), (&"plain".into(), &false.into()));
    let clients = get(&proxy, "clients").await;
    let connections = clients["connections"].as_array().unwrap();
    let watcher =
        connections.iter().find(|connection| connection["userAgent"] == "watcher/1.0").unwrap();
    assert_eq!((&watcher["addresses"], &watcher["openRequests"]), (&1.into(), &1.into()));
    drop(open);
    eventually("the connection is gone", async || list().await["open"] == 0).await;
    let foreign = call(&proxy, "/debug/connections", &[("host", "evil.example")]).await;
    assert_eq!(foreign.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cache_is_shown_and_listed_again_on_demand() {
    let proxy = observing(AdminDetail::Local).await;
    proxy.warm("/api/v1/pods").await;
    proxy.until_watched("pods").await;
    let described = call(&proxy, "/debug/caches/v1/pods", &[]).await.json();
    assert_eq!((&described["resource"], &described["namespace"]), (&"v1/pods".into(), &"".into()));
    let cache = &described["caches"][0];
    let states: Vec<_> = cache["transitions"].as_array().unwrap().iter().collect();
    assert_eq!(states[0]["state"], "starting", "{cache:#}");
    assert_eq!(states.last().unwrap()["state"], cache["state"], "{cache:#}");
    assert!(cache["contents"]["objects"].as_u64().unwrap() > 0, "{cache:#}");
    assert!(cache["contents"]["watchesFrom"].is_string(), "{cache:#}");
    for path in ["/debug/caches/v1/none", "/debug/caches/v1/pods?namespace=x", "/debug/caches/x"] {
        assert_eq!(call(&proxy, path, &[]).await.status, 404, "{path}");
    }
    let foreign = call(&proxy, "/debug/caches/v1/pods", &[("host", "evil.example")]).await;
    assert_eq!(foreign.status, 403);

    let post = Call::new(Method::POST, "/debug/relist/v1/pods");
    let refused = client::fetch(proxy.admin_address(), &post).await;
    assert_eq!(refused.status, 403);
    let asked = client::fetch(proxy.admin_address(), &post.header("x-weir-change", "1")).await;
    assert_eq!((asked.status.as_u16(), &asked.json()["requested"]), (200, &1.into()));
    let labels = ["resource=\"pods\"", "cause=\"changed\""];
    eventually("the cache lists again", async || {
        proxy.metric("weir_reflector_relists_total", &labels).await == 1.0
    })
    .await;
    let events = get(&proxy, "events").await;
    let mut events = events["items"].as_array().unwrap().iter();
    let event = events.find(|event| event["kind"] == "operator").unwrap();
    assert_eq!(event["subject"], "v1/pods");
    let wrong = call(&proxy, "/debug/relist/v1/pods", &[]).await;
    assert_eq!((wrong.status.as_u16(), &wrong.headers["allow"]), (405, &"POST".parse().unwrap()));
}
