//! The client doctor over a whole proxy: a bad habit is found with its fix, a good one is not, and
//! no metric names a client.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpSocket;
use weir::config::FlowControlMode;
use weir::simulator::{Action, Simulator, SimulatorOptions};

use crate::client::{Answer, Call, Watch};
use crate::harness::{Proxy, configmap, seed};
use crate::wait::eventually;

const LIST: &str = "/api/v1/namespaces/ns1/pods";
const SCRIPT: &str = "inventory-OpenAPI-Generator/37.0.2/python";

async fn findings(proxy: &Proxy) -> Vec<Value> {
    let answer = proxy.admin("/api/findings").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_polls_is_found_and_an_informer_is_not() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    let proxy = Proxy::before(upstream, "", |config| {
        config.flow_control.mode = FlowControlMode::Observe;
    })
    .await;
    // A client that lists once and watches has no finding.
    let good = |path: &str| Call::get(path).header("user-agent", "good/1.0");
    assert_eq!(proxy.call(&good(&format!("{LIST}?resourceVersion=0"))).await.status, 200);
    let watch = good(&format!("{LIST}?watch=1&resourceVersion=0"));
    let _watch = Watch::open(proxy.plain(), &watch).await;
    for _ in 0..12 {
        let call = Call::get(LIST).header("user-agent", SCRIPT);
        assert_eq!(proxy.call(&call).await.status, 200);
    }
    let found_findings = findings(&proxy).await;
    let rules: Vec<_> =
        found_findings.iter().map(|finding| finding["rule"].as_str().unwrap()).collect();
    assert!(rules.contains(&"poll-list") && rules.contains(&"unset-list"), "{found_findings:#?}");
    for finding in &found_findings {
        assert_eq!(finding["userAgent"], SCRIPT, "{finding:#}");
        assert_eq!(finding["resource"], "pods");
        assert!(finding["fix"].as_str().unwrap().starts_with("Python: "), "{finding:#}");
        assert!(finding["upstreamCores"].as_f64().unwrap() > 0.0, "{finding:#}");
    }
    assert!(proxy.metric("weir_client_findings", &["rule=\"poll-list\""]).await >= 1.0);
    let metrics = proxy.admin("/metrics").await.text();
    assert!(!metrics.contains("inventory") && !metrics.contains("good/1.0"));
}

/// A client with one HTTP/2 connection, as client-go has.
#[derive(Clone)]
struct Sender {
    agent: &'static str,
    sender: SendRequest<Empty<Bytes>>,
}

impl Sender {
    /// Connects from an address of this machine.
    async fn connect(proxy: &Proxy, agent: &'static str, from: [u8; 4]) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let stream = TokioIo::new(socket.connect(proxy.plain()).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Self { agent, sender }
    }

    async fn get(&mut self, path: &str) -> Response<Incoming> {
        self.send(Method::GET, path).await
    }

    async fn send(&mut self, method: Method, path: &str) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("http://localhost{path}"));
        if !self.agent.is_empty() {
            request = request.header("user-agent", self.agent);
        }
        self.sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap()
    }

    async fn read(&mut self, path: &str) -> StatusCode {
        let answer = Answer::collect(self.get(path).await).await.unwrap();
        answer.status
    }
}

async fn observed() -> Proxy {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    Proxy::before(upstream, "", |config| {
        config.flow_control.mode = FlowControlMode::Observe;
    })
    .await
}

/// Returns the rules of the findings of an agent.
async fn rules(proxy: &Proxy, agent: &str) -> Vec<String> {
    let found_findings =
        findings(proxy).await.into_iter().filter(|finding| finding["userAgent"] == agent);
    found_findings.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect()
}

const LOCAL: [u8; 4] = [127, 0, 0, 1];
const NONE: [&str; 0] = [];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_gets_is_found_and_gets_of_many_objects_are_not() {
    let proxy = observed().await;
    let mut polling = Sender::connect(&proxy, "loop/1.0", LOCAL).await;
    let mut reading = Sender::connect(&proxy, "reader/1.0", LOCAL).await;
    for number in 0..150 {
        polling.read(&format!("{LIST}/pod-0?resourceVersion=0")).await;
        let name = number % 20;
        reading.read(&format!("{LIST}/other-{name}?resourceVersion=0")).await;
    }
    assert_eq!(rules(&proxy, "loop/1.0").await, ["poll-get"]);
    assert_eq!(rules(&proxy, "reader/1.0").await, NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_a_resource_version_that_is_too_old_are_found() {
    let proxy = observed().await;
    let from = proxy.upstream.store().revision();
    proxy.upstream.store().create(configmap("ns1", "one", 1)).unwrap();
    proxy.upstream.store().create(configmap("ns1", "two", 2)).unwrap();
    proxy.upstream.compact();
    proxy.upstream.store().create(configmap("ns1", "three", 3)).unwrap();
    let path = "/api/v1/namespaces/ns1/configmaps";
    for (agent, lists) in [("stubborn/1.0", false), ("careful/1.0", true)] {
        let mut client = Sender::connect(&proxy, agent, LOCAL).await;
        client.read(&format!("{path}?resourceVersion=0")).await;
        for _ in 0..9 {
            let watch = client.get(&format!("{path}?watch=1&resourceVersion={from}")).await;
            let text = Answer::collect(watch).await.unwrap().text();
            assert!(text.contains(r#""code":410"#), "{text}");
            if lists {
                // Another connection, so that this is no loop of one informer.
                let mut other = Sender::connect(&proxy, agent, LOCAL).await;
                other.read(&format!("{path}?resourceVersion=0")).await;
            }
        }
    }
    let rules_found = rules(&proxy, "stubborn/1.0").await;
    assert!(rules_found.contains(&"dead-watch".to_owned()), "{rules_found:?}");
    let rules_found = rules(&proxy, "careful/1.0").await;
    assert!(!rules_found.contains(&"dead-watch".to_owned()), "{rules_found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_watches_of_the_same_over_one_connection_are_found() {
    let proxy = observed().await;
    let (twin, good) = ("twin/1.0", "good/1.0");
    let mut open = Vec::new();
    let mut client = Sender::connect(&proxy, twin, LOCAL).await;
    for _ in 0..3 {
        open.push(client.get(&format!("{LIST}?watch=1&resourceVersion=0")).await);
    }
    for _ in 0..3 {
        let mut replica = Sender::connect(&proxy, good, LOCAL).await;
        open.push(replica.get(&format!("{LIST}?watch=1&resourceVersion=0")).await);
        open.push(replica.get("/api/v1/nodes?watch=1&resourceVersion=0").await);
    }
    // As each program has that delegates its authentication to the API server.
    let mut program = Sender::connect(&proxy, good, LOCAL).await;
    let one = format!("{LIST}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dpod-0");
    for _ in 0..3 {
        open.push(program.get(&one).await);
    }
    assert_eq!(rules(&proxy, twin).await, ["twin-watches"]);
    assert_eq!(rules(&proxy, good).await, NONE);
}

/// A finding comes with a habit, and goes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_on_each_node_that_watches_all_pods_is_found_until_it_stops() {
    let proxy = observed().await;
    let (mut well_behaved, mut bad) = (Vec::new(), Vec::new());
    for node in 1..=10 {
        let address = [127, 0, 0, node];
        let mut client = Sender::connect(&proxy, "bad-agent/1.0", address).await;
        let watch = client.get("/api/v1/pods?watch=1&resourceVersion=0").await;
        bad.push((client, watch));
        let mut good = Sender::connect(&proxy, "good-agent/1.0", address).await;
        let selector = format!("fieldSelector=spec.nodeName%3Dnode-{node}");
        let path = format!("/api/v1/pods?watch=1&resourceVersion=0&{selector}");
        well_behaved.push(good.get(&path).await);
        // A job of which each run has an address of its own.
        let mut job = Sender::connect(&proxy, "job/1.0", address).await;
        job.read("/api/v1/pods?resourceVersion=0").await;
    }
    assert_eq!(rules(&proxy, "bad-agent/1.0").await, ["node-agent"]);
    assert_eq!(rules(&proxy, "good-agent/1.0").await, NONE);
    assert!(!rules(&proxy, "job/1.0").await.contains(&"node-agent".to_owned()));
    // Its new version watches the pods of its node.
    for (number, (mut client, watch)) in bad.into_iter().enumerate() {
        let selector = format!("fieldSelector=spec.nodeName%3Dnode-{number}");
        well_behaved
            .push(client.get(&format!("/api/v1/pods?watch=1&resourceVersion=0&{selector}")).await);
        drop(watch);
    }
    eventually("the finding is gone", async || {
        !rules(&proxy, "bad-agent/1.0").await.contains(&"node-agent".to_owned())
    })
    .await;
    assert!(proxy.metric("weir_client_findings", &["rule=\"node-agent\""]).await < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_lists_is_found_and_one_disturbance_of_a_fleet_is_not() {
    let proxy = observed().await;
    let list = format!("{LIST}?resourceVersion=0");
    let mut open = Vec::new();
    for _ in 0..12 {
        let mut replica = Sender::connect(&proxy, "fleet/1.0", LOCAL).await;
        for _ in 0..2 {
            replica.read(&list).await;
            open.push(replica.get(&format!("{LIST}?watch=1&resourceVersion=0")).await);
        }
    }
    let mut looping = Sender::connect(&proxy, "loop/1.0", LOCAL).await;
    open.push(looping.get(&format!("{LIST}?watch=1&resourceVersion=0")).await);
    for _ in 0..9 {
        looping.read(&list).await;
    }
    assert_eq!(rules(&proxy, "fleet/1.0").await, NONE);
    assert_eq!(rules(&proxy, "loop/1.0").await, ["relist-loop"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_watches_are_found_but_not_those_of_one_object() {
    let proxy = observed().await;
    let path = format!("{LIST}?watch=1&resourceVersion=0");
    let mut churning = Sender::connect(&proxy, "churn/1.0", LOCAL).await;
    let mut waiting = Sender::connect(&proxy, "wait/1.0", LOCAL).await;
    for _ in 0..12 {
        drop(churning.get(&path).await);
        drop(waiting.get(&format!("{path}&fieldSelector=metadata.name%3Dpod-0")).await);
    }
    eventually("the churn is found", async || {
        rules(&proxy, "churn/1.0").await.contains(&"watch-churn".to_owned())
    })
    .await;
    assert_eq!(rules(&proxy, "wait/1.0").await, NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_huge_list_without_a_limit_is_found() {
    let proxy = observed().await;
    for number in 0..6 {
        let mut object = configmap("ns1", &format!("large-{number}"), number);
        object["data"]["text"] = "x".repeat(900_000).into();
        proxy.upstream.store().create(object).unwrap();
    }
    let path = "/api/v1/configmaps";
    for (agent, query) in
        [("huge/1.0", ""), ("pages/1.0", "?limit=5"), ("any/1.0", "?resourceVersion=0")]
    {
        let mut client = Sender::connect(&proxy, agent, LOCAL).await;
        assert_eq!(client.read(&format!("{path}{query}")).await, StatusCode::OK);
    }
    assert_eq!(rules(&proxy, "huge/1.0").await, ["unpaged-list"]);
    assert_eq!(rules(&proxy, "pages/1.0").await, NONE);
    assert_eq!(rules(&proxy, "any/1.0").await, NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deprecated_api_is_found() {
    let proxy = observed().await;
    let mut old = Sender::connect(&proxy, "old/1.0", LOCAL).await;
    for namespace in ["ns1", "ns2", "ns3", "ns4"] {
        let path = format!("/api/v1/namespaces/{namespace}/endpoints?resourceVersion=0");
        assert_eq!(old.read(&path).await, StatusCode::OK);
    }
    assert_eq!(rules(&proxy, "old/1.0").await, ["deprecated"]);
    let findings = findings(&proxy).await;
    let old = findings.iter().find(|finding| finding["rule"] == "deprecated").unwrap();
    let evidence = old["evidence"].as_str().unwrap();
    assert!(evidence.contains("4 responses with the warning: v1 Endpoints is"), "{evidence}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_that_are_not_heeded_are_found() {
    let proxy = observed().await;
    let mut client = Sender::connect(&proxy, "hasty/1.0", LOCAL).await;
    let path = "/api/v1/namespaces/ns1/secrets/one";
    proxy.upstream.faults().add("get", "secrets", u32::MAX, Action::Refuse(60));
    eventually("the client is found", async || {
        assert_eq!(client.read(path).await, StatusCode::TOO_MANY_REQUESTS);
        rules(&proxy, "hasty/1.0").await.contains(&"retries".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_many_requests_at_once_are_no_retries() {
    let proxy = observed().await;
    let faults = proxy.upstream.faults();
    faults.add("get", "secrets", u32::MAX, Action::Delay(Duration::from_secs(1)));
    faults.add("get", "secrets", u32::MAX, Action::Refuse(60));
    let client = Sender::connect(&proxy, "patient/1.0", LOCAL).await;
    let send = async |method: Method, path: &'static str| {
        let mut client = client.clone();
        client.send(method, path).await.status()
    };
    let get = || send(Method::GET, "/api/v1/namespaces/ns1/secrets/one");
    let statuses = join_all((0..12).map(|_| get())).await;
    assert_eq!(statuses, [StatusCode::TOO_MANY_REQUESTS; 12]);
    faults.clear();
    faults.add("create", "configmaps", u32::MAX, Action::Refuse(60));
    // Twelve objects.
    for _ in 0..12 {
        let status = send(Method::POST, "/api/v1/namespaces/ns1/configmaps").await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(!rules(&proxy, "patient/1.0").await.contains(&"retries".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_name_is_found_once() {
    let proxy = observed().await;
    let mut client = Sender::connect(&proxy, "", LOCAL).await;
    for path in ["/api/v1/nodes", "/api/v1/services", LIST] {
        for _ in 0..4 {
            client.read(&format!("{path}?resourceVersion=0")).await;
        }
    }
    let found_findings = findings(&proxy).await;
    let nameless: Vec<_> =
        found_findings.iter().filter(|finding| finding["rule"] == "no-agent").collect();
    assert_eq!(nameless.len(), 1, "{found_findings:#?}");
    assert_eq!(
        (&nameless[0]["resource"], &nameless[0]["weight"]),
        (&"(all)".into(), &"info".into())
    );
}
