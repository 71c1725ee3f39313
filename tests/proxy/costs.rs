//! The costs of clients, as operators see them: by user also where tokens are only forwarded, with
//! the seats of the API server, and for local clients only.

use http::Method;
use serde_json::Value;
use weir::config::{AdminDetail, Config, FlowControlMode};
use weir::simulator::{Rule, Simulator, User};

use crate::client::{self, Call, Watch};
use crate::harness::{Proxy, as_gateway, configmap, upstream_of};
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps";

/// Starts an upstream with Weir's own user, and with `alice` and `bob`, who may read config maps of
/// `ns1`.
pub(crate) async fn upstream_of_readers() -> Simulator {
    let read = || vec![Rule::new(&["*"], &["configmaps"], &["ns1"])];
    let users = vec![
        User::admin("weirs-own", "weir"),
        User::with_rules("alices", "alice", read()),
        User::with_rules("bobs", "bob", read()),
    ];
    upstream_of(users).await
}

/// Starts a gateway before such an upstream.
pub(crate) async fn gateway_of_readers(adjust: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::before(upstream_of_readers().await, "weirs-own", |config| {
        as_gateway(config);
        adjust(config);
    })
    .await
}

async fn gateway(detail: AdminDetail) -> Proxy {
    gateway_of_readers(|config| {
        config.flow_control.mode = FlowControlMode::Observe;
        config.admin.detail = detail;
    })
    .await
}

fn call_as(token: &str, agent: &str, path: &str) -> Call {
    Call::get(path).header("authorization", &format!("Bearer {token}")).header("user-agent", agent)
}

async fn clients(proxy: &Proxy) -> Value {
    let answer = proxy.admin("/api/clients").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).unwrap()
}

/// Returns a number of the client of a list whose field has this value, in the window of an hour; 0
/// without such a client.
fn rate(report: &Value, list: &str, field: &str, value: &str, number: &str) -> f64 {
    let clients = report["windows"][1][list].as_array().unwrap().clone();
    let client = clients.into_iter().find(|client| client[field] == value);
    client.map_or(0.0, |client| client[number].as_f64().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costs_are_added_up_by_user_agent_flow_and_action() {
    let proxy = gateway(AdminDetail::Local).await;
    // Consistent lists are forwarded with their token, which Weir reviews only to know its user.
    for _ in 0..20 {
        assert_eq!(proxy.call(&call_as("alices", "loop/1", LIST)).await.status, 200);
    }
    let cached = call_as("bobs", "kubectl/v1.36", &format!("{LIST}?resourceVersion=0"));
    eventually("the cache is warm", async || proxy.call(&cached).await.cache() == "hit").await;
    assert_eq!(proxy.call(&call_as("nobodys", "scan", LIST)).await.status, 401);

    let report = clients(&proxy).await;
    let user = |user: &str, number: &str| rate(&report, "users", "user", user, number);
    let total = report["windows"][1]["all"]["requestsPerSecond"].as_f64().unwrap();
    assert!(user("alice", "requestsPerSecond") > 0.7 * total, "{report:#}");
    let forwarded = user("alice", "forwardedPerSecond");
    assert!((forwarded - user("alice", "requestsPerSecond")).abs() < 1e-3 * forwarded);
    assert!(user("alice", "upstreamSeats") > 0.0 && user("alice", "cpuCores") > 0.0);
    assert!(user("alice", "bytesPerSecond") > 0.0 && user("bob", "bytesPerSecond") > 0.0);
    assert!(user("alice", "upstreamSeats") > user("bob", "upstreamSeats"));
    assert!(user("bob", "requestsPerSecond") > user("bob", "forwardedPerSecond"));
    assert!(rate(&report, "userAgents", "userAgent", "loop/1", "share") > 0.0);
    assert!(rate(&report, "flows", "flow", "alice", "requestsPerSecond") > 0.0, "{report:#}");
    assert!(rate(&report, "actions", "verb", "list", "requestsPerSecond") > 0.0);
    // The token of nobody has no name, and is not shown.
    let text = report.to_string();
    assert!(text.contains("token #") && !text.contains("nobodys"), "{report:#}");

    // Metrics have no client's name.
    let schema = ["flow_schema=\"global-default\"", "priority_level=\"global-default\""];
    assert!(proxy.metric("weir_flowcontrol_requests_total", &schema).await >= 21.0);
    assert!(proxy.metric("weir_flowcontrol_seat_seconds_total", &schema).await > 0.0);
    assert!(proxy.metric("weir_flowcontrol_response_bytes_total", &schema).await > 0.0);
    let metrics = proxy.admin("/metrics").await.text();
    assert!(!metrics.contains("alice") && !metrics.contains("loop/1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_watch_is_charged_while_it_is_open() {
    let proxy = gateway(AdminDetail::Local).await;
    let path = format!("{LIST}?watch=1&resourceVersion=0");
    let mut watch = Watch::open(proxy.plain(), &call_as("alices", "", &path)).await;
    let number = |report: &Value| rate(report, "users", "user", "alice", "bytesPerSecond");
    for _ in 0..4 {
        watch.event().await;
    }
    for number in 10..110 {
        proxy.upstream.store().update(configmap("ns1", "cm-a", number)).unwrap();
        watch.event().await;
    }
    eventually("its bytes are charged", async || number(&clients(&proxy).await) > 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_are_for_local_clients_that_are_no_pages_of_other_sites() {
    let proxy = gateway(AdminDetail::Local).await;
    let call = |method: Method| Call::new(method, "/api/clients");
    let answer = client::fetch(proxy.admin_address(), &call(Method::GET)).await;
    assert_eq!(answer.status, 200);
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin");
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        let answer =
            client::fetch(proxy.admin_address(), &call(Method::GET).header(name, value)).await;
        assert_eq!(answer.status, 403, "{name}");
    }
    assert_eq!(client::fetch(proxy.admin_address(), &call(Method::POST)).await.status, 405);
    // Clients of the API never see it.
    let api = proxy.call(&call_as("alices", "", "/api/clients")).await;
    assert!(!api.text().contains("ClientList"), "{}", api.text());

    let hidden = gateway(AdminDetail::None).await;
    assert_eq!(hidden.admin("/api/clients").await.status, 404);
    assert_eq!(Proxy::seeded().await.admin("/api/clients").await.status, 200, "a sidecar counts");
}
