//! Forwarded requests wait for seats of the API server, by priority level and flow
//! (`docs/decisions/fair-queueing.md`).

use std::net::SocketAddr;

use http::HeaderMap;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir::config::{Config, FlowControlConfig, FlowControlMode};
use weir::simulator::{Action, Simulator, SimulatorOptions};

use crate::client::{self, Answer, Call, Watch};
use crate::costs::gateway_of_readers;
use crate::harness::{Proxy, seed};
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/configmaps";
/// A reserve of 8 is taken from the 20 seats of the API server.
const SHARED_SEATS: u64 = 12;

async fn gateway(mode: FlowControlMode) -> Proxy {
    gateway_of_readers(|config| {
        config.flow_control =
            FlowControlConfig { mode, seats_per_server: Some(20), ..config.flow_control.clone() };
    })
    .await
}

fn call_as(token: &str, path: &str) -> Call {
    Call::get(path).header("authorization", &format!("Bearer {token}"))
}

/// Sends many lists that the API server does not answer.
async fn crowd(proxy: &Proxy, token: &'static str, count: usize) -> JoinSet<Answer> {
    // Tokens are reviewed before.
    for token in ["alices", "bobs"] {
        assert_eq!(proxy.call(&call_as(token, LIST)).await.status, 200);
    }
    proxy.upstream.requests().reset();
    proxy.upstream.faults().add("list", "configmaps", u32::MAX, Action::Hang);
    let address: SocketAddr = proxy.plain();
    let mut crowd = JoinSet::new();
    for _ in 0..count {
        crowd.spawn(async move { client::fetch(address, &call_as(token, LIST)).await });
    }
    crowd
}

async fn of_level(proxy: &Proxy, metric: &str) -> f64 {
    proxy.metric(metric, &["priority_level=\"global-default\""]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_takes_no_more_than_the_seats_and_leaves_others_theirs() {
    let proxy = gateway(FlowControlMode::Enforce).await;
    let mut crowd = crowd(&proxy, "alices", 40).await;
    eventually("the others wait", async || {
        let waiting = of_level(&proxy, "weir_flowcontrol_waiting_requests").await;
        let seats = of_level(&proxy, "weir_flowcontrol_seats").await;
        waiting > 0.0 && waiting + seats == 40.0
    })
    .await;
    let sent = proxy.upstream.requests().count("list", "configmaps");
    assert!((1..=SHARED_SEATS).contains(&sent), "{sent} are sent");

    // A level of its own.
    assert_eq!(proxy.call(&call_as("weirs-own", "/api/v1/nodes")).await.status, 200);

    // A flow that finds no seats is refused in time, in the form that its request asked for before
    // it was packed: indented JSON in place of YAML.
    let call = call_as("bobs", &format!("{LIST}?timeout=1s")).header("audit-id", "bobs-request");
    let refused = proxy.call(&call.header("accept", "application/yaml")).await;
    assert_eq!(refused.headers["audit-id"], "bobs-request");
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.headers["x-weir-shed"], "time-out");
    let after: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&after), "{after}");
    let text = refused.text();
    assert!(text.contains("\n  \"reason\": \"TooManyRequests\""), "{text}");
    assert!(!format!("{text}{:?}", refused.headers).contains("global-default"), "{text}");
    let reason = ["priority_level=\"global-default\"", "reason=\"time-out\""];
    assert_eq!(proxy.metric("weir_flowcontrol_rejected_requests_total", &reason).await, 1.0);

    // Nobody's seats are lost.
    crowd.abort_all();
    eventually("all seats are free", async || {
        of_level(&proxy, "weir_flowcontrol_waiting_requests").await == 0.0
            && of_level(&proxy, "weir_flowcontrol_seats").await == 0.0
    })
    .await;
    proxy.upstream.faults().clear();
    assert_eq!(proxy.call(&call_as("bobs", LIST)).await.status, 200);
}

const BOBS: &str = "timeout=30s";

async fn bobs_list(address: SocketAddr, is_http2: bool) -> Answer {
    let call = call_as("bobs", &format!("{LIST}?{BOBS}"))
        .header("accept", "application/json")
        .header("x-mine", "one")
        .header("x-mine", "two")
        .header("x-mine", "one");
    let tcp = TcpStream::connect(address).await.unwrap();
    let response = match is_http2 {
        true => client::send_h2(tcp, &call).await,
        false => client::try_send(tcp, &call).await,
    };
    Answer::collect(response.unwrap()).await.unwrap()
}

/// Returns the path and the headers of each of these lists that the API server got.
fn bobs_lists(proxy: &Proxy) -> Vec<(String, HeaderMap)> {
    let recent = proxy.upstream.requests().recent().into_iter();
    recent
        .filter(|request| request.query == BOBS)
        .map(|request| (request.path, request.headers))
        .collect()
}

/// While it waits, only what is needed of it is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_has_waited_is_sent_once_and_like_any_other() {
    for is_http2 in [false, true] {
        let proxy = gateway(FlowControlMode::Enforce).await;
        let mut crowd = crowd(&proxy, "alices", 40).await;
        eventually("the crowd has the seats", async || {
            let waiting = of_level(&proxy, "weir_flowcontrol_waiting_requests").await;
            let seats = of_level(&proxy, "weir_flowcontrol_seats").await;
            waiting > 0.0 && waiting + seats == 40.0
        })
        .await;
        let queued = "weir_flowcontrol_queued_requests_total";
        let before = of_level(&proxy, queued).await;
        let waiting = tokio::spawn(bobs_list(proxy.plain(), is_http2));
        eventually("it waits", async || of_level(&proxy, queued).await == before + 1.0).await;
        assert!(bobs_lists(&proxy).is_empty(), "nothing is sent");
        proxy.upstream.faults().clear();
        crowd.abort_all();
        assert_eq!(waiting.await.unwrap().status, 200);
        let waited = bobs_lists(&proxy);
        assert_eq!(waited[0].1.get_all("x-mine").iter().collect::<Vec<_>>(), ["one", "two", "one"]);
        proxy.upstream.requests().reset();
        assert_eq!(bobs_list(proxy.plain(), is_http2).await.status, 200);
        assert_eq!(waited, bobs_lists(&proxy), "it is sent once, and unchanged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_observes_lets_nobody_wait_and_counts_who_would() {
    let proxy = gateway(FlowControlMode::Observe).await;
    let mut crowd = crowd(&proxy, "alices", 40).await;
    eventually("all are sent", async || {
        proxy.upstream.requests().count("list", "configmaps") == 40
    })
    .await;
    assert_eq!(of_level(&proxy, "weir_flowcontrol_waiting_requests").await, 0.0);
    let queued = of_level(&proxy, "weir_flowcontrol_queued_requests_total").await;
    assert!((28.0..40.0).contains(&queued), "{queued} would have waited");
    crowd.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_holds_its_seat_until_it_has_begun() {
    let proxy = gateway(FlowControlMode::Enforce).await;
    assert_eq!(proxy.call(&call_as("alices", LIST)).await.status, 200);
    // Tables are forwarded.
    let path = format!("{LIST}?watch=1");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut watches = Vec::new();
    for _ in 0..2 * SHARED_SEATS {
        let call = call_as("alices", &path).header("accept", accept);
        watches.push(Watch::open(proxy.plain(), &call).await);
    }
    assert_eq!(of_level(&proxy, "weir_flowcontrol_seats").await, 0.0);
    assert_eq!(proxy.call(&call_as("bobs", LIST)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_keeps_to_the_seats_although_flow_control_is_off() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let adjust = |config: &mut Config| {
        config.flow_control.seats_per_server = Some(20);
        config.flow_control.mode = FlowControlMode::Off;
    };
    let proxy = Proxy::before(upstream, "", adjust).await;
    proxy.upstream.faults().add("list", "configmaps", u32::MAX, Action::Hang);
    proxy.upstream.requests().reset();
    let address: SocketAddr = proxy.plain();
    let mut crowd = JoinSet::new();
    for _ in 0..40 {
        crowd.spawn(async move { client::fetch(address, &Call::get(LIST)).await });
    }
    eventually("the others wait", async || {
        proxy.metric("weir_flowcontrol_waiting_requests", &[]).await == 28.0
    })
    .await;
    assert_eq!(proxy.upstream.requests().count("list", "configmaps"), SHARED_SEATS);
    assert_eq!(proxy.admin("/api/clients").await.status, 404, "nothing is charged");
    crowd.abort_all();
    eventually("all seats are free", async || {
        proxy.metric("weir_flowcontrol_seats", &[]).await == 0.0
    })
    .await;
}
