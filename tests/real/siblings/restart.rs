//! A rolling restart of three replicas before two thousand watchers, with a writer and readers.
//!
//! The watchers share forty connections. A small collection is watched. A large one, whose pages
//! are compared by their metadata, is only warm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::audit::AuditedPlane;
use super::client::Client;
use super::informer::{Informed, Informer, ONE_NAMESPACE, Scope, Seen};
use super::reference::Reference;
use super::replicas::{Balanced, Replicas};
use super::report::{self, Round};
use crate::control_plane::ADMIN;
use crate::suite::objects::create;
use crate::suite::wire::Endpoint;
use crate::support::free_port;

/// The watchers, and their observations.
pub(super) struct Watchers {
    pub(super) all: Vec<(Scope, Arc<Mutex<Informed>>)>,
    pub(super) seen: Arc<Seen>,
    pub(super) clients: Vec<Arc<Client>>,
    tasks: JoinSet<()>,
}

pub(crate) fn rolling_restart() {
    let plane = AuditedPlane::start();
    let runtime = Runtime::new().unwrap();
    let direct = plane.endpoint(ADMIN);
    runtime.block_on(fill(&direct));
    let ports = [(); REPLICAS].map(|()| free_port());
    let mut replicas = Replicas::start(&plane, &ports, WARM);
    report::outcomes("at first", &replicas);
    let reference = runtime.block_on(Reference::start(&direct));
    let mut watchers = runtime.block_on(async { Watchers::start(&plane, &replicas.balanced) });
    until("all watches are open", || watchers.all_are_open());
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = runtime.block_on(async { load(&plane, &replicas.balanced, &watchers, &stop) });
    std::thread::sleep(CALM);

    *watchers.seen.gaps.lock() = Vec::new();
    let before = report::Before::of(&plane);
    let mut rounds = Vec::new();
    for which in 0..REPLICAS {
        let at = [RESOURCES[0], RESOURCES[1]].map(|resource| plane.requests(resource));
        let began = Instant::now();
        let restart = replicas.restart(&plane, which);
        until("all watches are open again", || watchers.all_are_open());
        let streams = began.elapsed();
        std::thread::sleep(CALM);
        let requests = RESOURCES.map(|resource| plane.requests(resource));
        let requests = [requests[0].since(at[0]), requests[1].since(at[1])];
        let outcomes = replicas.running[which].outcomes();
        rounds.push(Round { restart, streams, requests, outcomes });
    }
    stop.store(true, Ordering::Relaxed);
    let last = runtime.block_on(async {
        while load.join_next().await.is_some() {}
        write(&watchers.clients[0], Method::PATCH, &object_path(ONE_NAMESPACE, ONE), 1).await
    });
    let last = last.expect("the last write is answered");
    until("the reference has the last event", || reference.has(last));
    until("all watchers have the last event", || {
        watchers.all.iter().all(|(_, informed)| informed.lock().known() >= last)
    });
    runtime.block_on(watchers.tasks.shutdown());
    report::finish(&plane, &before, &replicas, &watchers, &reference, &rounds);
}

impl Watchers {
    fn start(plane: &AuditedPlane, balanced: &Balanced) -> Self {
        let seen = Arc::new(Seen::default());
        let new = || Arc::new(Client::new(&plane.credentials(), balanced));
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| new()).collect();
        let (mut all, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 0..WATCHERS {
            let scope = match number % 4 {
                0 | 1 => Scope::All,
                2 => Scope::Namespace("b"),
                _ => Scope::One(ONE),
            };
            let client = Arc::clone(&clients[number % CONNECTIONS]);
            let streams = (number / 4).is_multiple_of(2);
            let informer = Informer::new(client, scope, streams, Arc::clone(&seen));
            all.push((scope, informer.informed()));
            tasks.spawn(informer.run());
        }
        Self { all, seen, clients, tasks }
    }

    fn all_are_open(&self) -> bool {
        self.seen.open.load(Ordering::Relaxed) == self.all.len()
    }
}

/// Starts a writer and readers, with connections of their own, until `stop` is set.
fn load(
    plane: &AuditedPlane,
    balanced: &Balanced,
    watchers: &Watchers,
    stop: &Arc<AtomicBool>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..=READERS {
        let client = Client::new(&plane.credentials(), balanced);
        let (seen, stop) = (Arc::clone(&watchers.seen), Arc::clone(stop));
        tasks.spawn(async move {
            for turn in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let done = match number {
                    0 => change(&client, turn).await,
                    _ => read(&client, number, turn).await,
                };
                match done {
                    Ok(()) => drop(seen.answered.fetch_add(1, Ordering::Relaxed)),
                    Err(what) => seen.fail(what),
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
    }
    tasks
}

/// Creates, patches and deletes config maps in both namespaces.
async fn change(client: &Client, turn: usize) -> Result<(), String> {
    let namespace = NAMESPACES[turn % 2];
    let extra = object_path(namespace, &format!("extra-{}", turn / 10));
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    match turn % 10 {
        2 => {
            let object = json!({"metadata": {"name": format!("extra-{}", turn / 10)}});
            answered(client.fetch(&Method::POST, &collection, &object.to_string()).await).map(drop)
        }
        8 => answered(client.fetch(&Method::DELETE, &extra, "").await).map(drop),
        _ => {
            let name = format!("cm-{}", fastrand::usize(..OBJECTS));
            let path = object_path(namespace, &name);
            write(client, Method::PATCH, &path, turn).await.map(drop)
        }
    }
}

/// Reads an object, from the cache or as it is now.
async fn read(client: &Client, number: usize, turn: usize) -> Result<(), String> {
    let query = if number.is_multiple_of(2) { "?resourceVersion=0" } else { "" };
    let path = object_path(NAMESPACES[turn % 2], &format!("cm-{}", fastrand::usize(..OBJECTS)));
    answered(client.fetch(&Method::GET, &format!("{path}{query}"), "").await).map(drop)
}

/// Writes a number, and returns the object's resourceVersion.
async fn write(client: &Client, method: Method, path: &str, number: usize) -> Result<u64, String> {
    let patch = json!({"data": {"n": format!("{number}-{}", fastrand::u64(..))}});
    let body = answered(client.fetch(&method, path, &patch.to_string()).await)?;
    let version = body["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
    version.ok_or_else(|| format!("no object: {body}"))
}

fn answered(answer: Result<(u16, bytes::Bytes), String>) -> Result<Value, String> {
    match answer {
        Ok((200 | 201, body)) => Ok(serde_json::from_slice(&body).unwrap_or_default()),
        Ok((status, body)) => Err(format!("{status} {}", String::from_utf8_lossy(&body))),
        Err(error) => Err(error),
    }
}

/// Creates config maps that fit on one page of the comparison, and secrets that do not.
async fn fill(direct: &Endpoint) {
    let mut connection = direct.connection();
    for name in NAMESPACES {
        create(&mut connection, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    for number in 0..OBJECTS {
        for namespace in NAMESPACES {
            let object = json!({"metadata": {"name": format!("cm-{number}")}, "data": {"n": "0"}});
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            create(&mut connection, &path, &object).await;
        }
    }
    for number in 0..SECRETS {
        let data = json!({"n": "x".repeat(2000)});
        let object = json!({"metadata": {"name": format!("s-{number}")}, "stringData": data});
        create(&mut connection, "/api/v1/namespaces/a/secrets", &object).await;
    }
}

fn object_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// Waits until a condition holds, at most two minutes: the machine may be busy.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) const RESOURCES: [&str; 2] = ["configmaps", "secrets"];
pub(super) const WATCHERS: usize = 2_000;
pub(super) const CONNECTIONS: usize = 40;
const WARM: &str = "v1/configmaps, v1/secrets";
const REPLICAS: usize = 3;
const READERS: usize = 6;
const NAMESPACES: [&str; 2] = [ONE_NAMESPACE, "b"];
const ONE: &str = "cm-0";
/// The config maps in each namespace. Together they have less than 64 KiB, up to which a page is
/// compared byte for byte.
const OBJECTS: usize = 20;
const SECRETS: usize = 1_000;
/// Between two requests of a client.
const INTERVAL: Duration = Duration::from_millis(300);
/// Between restarts. A replica that was filled from another one compares its caches meanwhile.
const CALM: Duration = Duration::from_secs(20);
