//! The memory of requests that wait, and of flow control that has nothing to do.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Target;
use crate::floor::{self, Floor};
use crate::rows::introduce;
use crate::upstream::{GET, USERS, Upstream, user_token};
use crate::weir_process::{Weir, free_address};

const WAITING: usize = 20_000;
const MIB: f64 = 1_048_576.0;

/// Defines a kind of flow control, which the simulator does not have by itself.
fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.flowcontrol.apiserver.k8s.io")},
        "spec": {
            "group": "flowcontrol.apiserver.k8s.io", "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// 20,000 requests that wait, over 100 connections.
pub(crate) async fn waiting(upstream: &Upstream) -> Vec<Target> {
    let admin = free_address();
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration", "metadata": {"name": "large"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1_000_000,
            "limitResponse": {"type": "Queue",
                "queuing": {"queues": 512, "handSize": 6, "queueLengthLimit": 50}}}}});
    let kinds = [
        definition("flowschemas", "FlowSchema"),
        definition("prioritylevelconfigurations", "PriorityLevelConfiguration"),
    ];
    for object in kinds.into_iter().chain([level]) {
        upstream.simulator.store().create(object).expect("the object is created");
    }
    let rule = json!({"name": "to-large", "level": "large", "match": [{
        "subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
            "namespaces": ["work"]}]}]});
    let sections = json!({"authentication": {"mode": "gateway"},
        "admin": {"listen": admin.to_string()},
        "flowControl": {"mode": "enforce", "seatsPerServer": 100, "rules": [rule]}});
    let weir = Weir::start(&upstream.kubeconfig(), sections).await;
    introduce(&weir).await;
    let mut connections = Vec::new();
    for _ in 0..USERS {
        connections.push(connect(weir.address).await);
    }
    sleep(Duration::from_secs(1)).await;
    let before = resident(&weir.proc());
    upstream.work.hold(true);
    let mut requests = JoinSet::new();
    send(&mut requests, &connections, weir.address);
    let (mut most, mut used) = (0.0, before);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        let waiting = waiting_requests(admin).await;
        if waiting >= most {
            (most, used) = (waiting, resident(&weir.proc()).max(used));
        }
        sleep(Duration::from_millis(100)).await;
    }
    requests.abort_all();
    upstream.work.hold(false);
    let grown = used - before;
    println!(
        "memory: {most} requests wait: {:.1} MiB more, {:.0} bytes each",
        grown / MIB,
        grown / most
    );
    println!("memory: the same in a bare hyper server: {:.0} bytes each", bare().await);
    let allowed = 64.0 * MIB * most / WAITING as f64 + 2048.0 * most;
    vec![
        Target {
            what: "row 19: memory of those that wait, of what is allowed",
            is: grown / allowed,
            most: 1.0,
        },
        Target {
            what: "row 19: requests that did not wait, of 20,000",
            is: WAITING as f64 - most,
            most: 2_000.0,
        },
    ]
}

/// Sends somewhat more than [`WAITING`] requests, of a user over each connection.
fn send(requests: &mut Requests, connections: &[SendRequest<Empty<Bytes>>], address: SocketAddr) {
    for (user, connection) in connections.iter().enumerate() {
        for _ in 0..(WAITING + 90) / USERS {
            let (mut connection, token) = (connection.clone(), user_token(user));
            let request = Request::get(format!("http://{address}{GET}"))
                .header("authorization", format!("Bearer {token}"))
                .body(Empty::<Bytes>::new())
                .expect("a request");
            requests.spawn(async move {
                connection.ready().await.expect("a free stream");
                connection.send_request(request).await.map(|response| response.status())
            });
        }
    }
}

/// Returns the bytes of each such request in a server that only holds it.
async fn bare() -> f64 {
    let floor = Floor::start().await;
    let mut connections = Vec::new();
    for _ in 0..USERS {
        connections.push(connect(floor.address).await);
    }
    sleep(Duration::from_secs(1)).await;
    let before = resident(&floor.proc());
    let mut requests = JoinSet::new();
    send(&mut requests, &connections, floor.address);
    sleep(Duration::from_secs(3)).await;
    let grown = resident(&floor.proc()) - before;
    requests.abort_all();
    grown / ((WAITING + 90) / USERS * USERS) as f64
}

type Requests = JoinSet<Result<StatusCode, hyper::Error>>;

/// A Weir with flow control beside one without, both idle: medians of several.
pub(crate) async fn idle(upstream: &Upstream) -> Vec<Target> {
    let mut medians = Vec::new();
    for mode in ["off", "enforce"] {
        let mut samples = Vec::new();
        for _ in 0..5 {
            let sections =
                json!({"authentication": {"mode": "gateway"}, "flowControl": {"mode": mode}});
            let weir = Weir::start(&upstream.kubeconfig(), sections).await;
            sleep(Duration::from_secs(3)).await;
            samples.push(resident(&weir.proc()));
        }
        samples.sort_by(f64::total_cmp);
        medians.push(samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN));
    }
    let more =
        medians.last().zip(medians.first()).map_or(f64::NAN, |(with, without)| with - without);
    println!("memory: flow control that is idle: {:.2} MiB", more / MIB);
    vec![Target { what: "row 19: MiB of idle flow control", is: more / MIB, most: 2.0 }]
}

fn resident(proc: &str) -> f64 {
    let status = fs::read_to_string(format!("{proc}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024.0
}

async fn waiting_requests(admin: SocketAddr) -> f64 {
    let mut tcp = TcpStream::connect(admin).await.expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("it is sent");
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.expect("an answer");
    let lines = text.lines().filter(|line| line.starts_with("weir_flowcontrol_waiting_requests{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn connect(weir: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let tcp = TcpStream::connect(weir).await.expect("weir listens");
    tcp.set_nodelay(true).expect("a socket");
    let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(tcp));
    let (sender, connection) = handshake.await.expect("HTTP/2");
    tokio::spawn(async move { drop(connection.await) });
    sender
}

/// Runs as the floor: accepts HTTP/2, and answers nothing. Weir itself takes all memory that its
/// requests need beyond that.
pub(crate) async fn run_floor() -> ! {
    let listener = floor::listen().await;
    loop {
        let (tcp, _) = listener.accept().await.expect("a connection");
        let wait = service_fn(|request: Request<Incoming>| async move {
            let _request = request;
            pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        });
        tokio::spawn(async move {
            let mut builder = server::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(1_000);
            drop(builder.serve_connection(TokioIo::new(tcp), wait).await);
        });
    }
}
