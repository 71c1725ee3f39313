//! Injected faults, stop and restart, TLS, upgrades, and the simulated cluster.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::client::{Watch, create, get, request, start, start_with};
use crate::{Action, Cluster, Cut, Rule, SimulatorOptions, User};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/pods";

#[tokio::test]
async fn faults_apply_to_the_named_requests_and_count_down() {
    let simulator = start().await;
    simulator.faults().add("list", "configmaps", 1, Action::TooManyRequests(2));
    simulator.faults().add("*", "secrets", 1, Action::Status(503));
    simulator.faults().add("get", "*", 1, Action::Reset);
    let refused = get(&simulator, MAPS).await;
    assert_eq!(
        (refused.code.as_u16(), &refused.headers["retry-after"]),
        (429, &"2".parse().unwrap())
    );
    assert_eq!(get(&simulator, MAPS).await.code, 200);
    assert_eq!(get(&simulator, "/api/v1/secrets").await.code, 503);
    let reset = request(&simulator, Method::GET, "/version", &[], Value::Null).await;
    assert!(reset.is_err());
    assert_eq!(get(&simulator, "/version").await.code, 200);
    simulator.faults().add("watch", "configmaps", 1, Action::Gone);
    let mut watch = Watch::open(&simulator, MAPS, "resourceVersion=1").await;
    assert_eq!(watch.next().await["object"]["code"], 410);
    watch.ends().await;
}

#[tokio::test]
async fn watches_are_cut_in_three_ways() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    for cut in [Cut::Clean, Cut::Reset, Cut::MidFrame] {
        let mut watch = Watch::open(&simulator, MAPS, "").await;
        assert_eq!(watch.events(1).await, [format!("ADDED a@{rv}")]);
        simulator.faults().cut_watches(Some("secrets"), Cut::Reset);
        simulator.faults().cut_watches(Some("configmaps"), cut);
        let end = watch.line().await;
        assert_eq!(end.is_err(), cut != Cut::Clean, "{cut:?}: {end:?}");
    }
}

#[tokio::test]
async fn stops_and_restarts_on_its_port() {
    let simulator = start().await;
    create(&simulator, "default", "a");
    let mut watch = Watch::open(&simulator, MAPS, "").await;
    watch.next().await;
    simulator.stop();
    assert!(watch.line().await.is_err());
    simulator.restart().await.unwrap();
    assert_eq!(get(&simulator, &format!("{MAPS}/a")).await.code, 200);
}

#[tokio::test]
async fn kube_client_connects_over_tls() {
    let options = SimulatorOptions { tls: true, ..SimulatorOptions::default() };
    let simulator = start_with(options).await;
    create(&simulator, "default", "a");
    let config = serde_json::from_str(&simulator.kubeconfig("t")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let request = http::Request::get(MAPS).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn upgrades_echo() {
    let simulator = start().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    simulator.store().create(pod).unwrap();
    let exec = "/api/v1/namespaces/default/pods/p/exec";
    assert_eq!(get(&simulator, exec).await.message(), "Upgrade request required");
    let mut stream = tokio::net::TcpStream::connect(simulator.address()).await.unwrap();
    let head = format!(
        "POST {exec} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("v4.channel.k8s.io"), "{answer}");
    stream.write_all(b"\x00raw\xff").await.unwrap();
    let mut echo = [0; 5];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"\x00raw\xff");
}

#[tokio::test(start_paused = true)]
async fn the_cluster_rolls_out_new_deployments() {
    let simulator = start().await;
    let cluster = Cluster::populate(&simulator.store(), 3, 12).unwrap();
    assert_eq!(simulator.store().count("v1", "pods"), 12);
    let idle = simulator.store().revision();
    let cancel = CancellationToken::new();
    let control = {
        let (cluster, cancel) = (cluster.clone(), cancel.clone());
        tokio::spawn(async move { cluster.control(cancel).await })
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(simulator.store().revision(), idle, "a populated cluster is at rest");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    simulator.store().create(deployment).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let web = || simulator.store().get("apps/v1", "deployments", "default", "web").unwrap();
    assert_eq!(web()["status"]["availableReplicas"], 2);
    assert_eq!(web()["status"]["observedGeneration"], web()["metadata"]["generation"]);
    let churn = tokio::time::timeout(Duration::from_secs(4), cluster.churn(20.0, cancel.clone()));
    assert!(churn.await.is_err(), "it goes on until it is cancelled");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(simulator.store().count("v1", "pods"), 14);
    cancel.cancel();
    control.await.unwrap();
}

#[tokio::test]
async fn more_requests_than_allowed_are_refused_and_all_are_recorded() {
    let users = vec![
        User::with_rules("jane", "jane", vec![Rule::new(&["*"], &["*"], &["*"])]),
        User::admin("root", "root"),
    ];
    let simulator = start_with(SimulatorOptions {
        users,
        records_requests: true,
        requests_max: Some(1),
        ..SimulatorOptions::default()
    })
    .await;
    simulator.faults().add("list", "configmaps", 1, Action::Hang);
    let send = |token: &'static str, path: &'static str| {
        let headers = [("authorization", token), ("audit-id", path)];
        let simulator = &simulator;
        async move { request(simulator, Method::GET, path, &headers, Value::Null).await.unwrap() }
    };
    let others = async {
        while simulator.requests().flights().is_empty() {
            tokio::task::yield_now().await;
        }
        let refused = send("Bearer jane", PODS).await;
        assert_eq!(refused.code, 429);
        assert_eq!(refused.headers["retry-after"], "1");
        // An administrator is exempt.
        assert_eq!(send("Bearer root", "/api/v1/secrets").await.code, 200);
    };
    tokio::select! {
        reply = send("Bearer jane", MAPS) => panic!("{}", reply.code),
        () = others => {}
    }
    let record = simulator.requests().flights();
    let flights: Vec<_> =
        record.iter().map(|flight| (&*flight.user, &*flight.audit_id, flight.status)).collect();
    assert_eq!(
        flights,
        [("jane", MAPS, None), ("jane", PODS, Some(429)), ("root", "/api/v1/secrets", Some(200)),]
    );
    // The first client has gone away.
    let has_room = async { while send("Bearer jane", PODS).await.code != 200 {} };
    tokio::time::timeout(Duration::from_secs(10), has_room).await.unwrap();
    assert!(simulator.requests().flights()[0].ended.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_as_long_as_was_said() {
    let service_time = Duration::from_secs(5);
    let simulator =
        start_with(SimulatorOptions { service_time, ..SimulatorOptions::default() }).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(get(&simulator, MAPS).await.code, 200);
    assert!(begun.elapsed() >= service_time);
}
