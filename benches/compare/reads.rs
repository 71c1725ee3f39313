//! The reads: each row asked of all servers by turns, each time for a while, by so many streams on so many connections.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::client::{Ask, Connection, JSON, PROTOBUF, Protocol};
use crate::pods;
use crate::results::{Results, percentile, sorted};
use crate::server::{NGINX, Server, UPSTREAM};
use crate::usage::Used;

pub(crate) struct Read {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) gzip: bool,
    connections: usize,
    /// On each connection.
    streams: usize,
}

/// All of them.
pub(crate) fn reads() -> Vec<Read> {
    let read = |name, path: String, accept, connections, streams| {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}resourceVersion=0");
        Read { name, path, accept, gzip: false, connections, streams }
    };
    let all = || "/api/v1/pods".to_owned();
    let node = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", pods::node(0));
    let namespace = format!("/api/v1/namespaces/{}/pods", pods::namespace(0));
    let half = "/api/v1/pods?labelSelector=half%3Dfirst".to_owned();
    let gzip = Read { gzip: true, ..read("list-5000-gzip", all(), JSON, 2, 1) };
    vec![
        read("get", pods::path(0), JSON, 4, 8),
        read("get-protobuf", pods::path(0), PROTOBUF, 4, 8),
        read("list-node-protobuf", node, PROTOBUF, 4, 4),
        read("list-500", namespace, JSON, 4, 1),
        read("list-5000", all(), JSON, 2, 1),
        read("list-5000-protobuf", all(), PROTOBUF, 2, 1),
        gzip,
        read("list-label-protobuf", half, PROTOBUF, 2, 1),
    ]
}

impl Read {
    /// As this server is to be asked.
    fn ask(&self, server: &Server) -> Ask {
        let path = if server.name == NGINX { format!("/{}", self.name) } else { self.path.clone() };
        Ask::get(server, &path, self.accept, self.gzip)
    }
}

/// How long each turn is, and how many each server has.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) turn: Duration,
    pub(crate) turns: usize,
}

/// One server, ready to be asked.
struct Asked<'a> {
    server: &'a Server,
    ask: Ask,
    connections: Vec<Connection>,
    bytes: usize,
    probe_cost: f64,
    /// CPU seconds, requests and seconds, turn by turn.
    turns: Vec<(f64, f64, f64)>,
    latency: Vec<f64>,
    /// In the end.
    used: Option<Used>,
}

/// How often a cache is asked whether it is there.
const ASKED: Duration = Duration::from_millis(100);

pub(crate) async fn compare(read: &Read, servers: &[&Server], pace: Pace, results: &mut Results) {
    let mut all = Vec::new();
    for server in servers {
        all.extend(Asked::new(read, server).await);
    }
    for turn in 0..=pace.turns {
        for asked in &mut all {
            // The first turn warms up, and is short.
            let time = if turn == 0 { pace.turn / 4 } else { pace.turn };
            asked.turn(read.streams, time, turn > 0).await;
        }
    }
    for asked in all {
        let name = asked.server.name;
        let mut set = |what, value| results.set(read.name, name, what, value);
        set("bytes", asked.bytes as f64);
        set("cpu_ms", asked.cpu_ms());
        set("rate", asked.rate());
        let latency = sorted(asked.latency);
        set("p50_ms", percentile(&latency, 50));
        set("p99_ms", percentile(&latency, 99));
        set("resident_bytes", asked.used.map_or(f64::NAN, |it| it.resident));
    }
}

impl<'a> Asked<'a> {
    /// `None` for one that has nothing of the kind.
    async fn new(read: &Read, server: &'a Server) -> Option<Self> {
        let ask = read.ask(server);
        let mut connections = Vec::new();
        for _ in 0..read.connections {
            connections.push(Connection::open(server, Protocol::Http2).await);
        }
        let bytes = warm(read.name, server, connections.first()?, &ask, ASKED).await?;
        let probe_cost = server.usage.cost().await;
        let (turns, latency) = (Vec::new(), Vec::new());
        Some(Self { server, ask, connections, bytes, probe_cost, turns, latency, used: None })
    }

    async fn turn(&mut self, streams: usize, time: Duration, counts: bool) {
        let (before, start) = (self.server.usage.used().await, Instant::now());
        let streams = self.connections.iter().flat_map(|one| (0..streams).map(move |_| one));
        let tasks = streams.map(|connection| {
            let (connection, ask) = (connection.clone(), self.ask.clone());
            tokio::spawn(async move { stream(&connection, &ask, start + time).await })
        });
        let latency: Vec<f64> =
            join_all(tasks).await.into_iter().flat_map(|it| it.expect("a stream ends")).collect();
        let wall = start.elapsed().as_secs_f64();
        let after = self.server.usage.used().await;
        if counts {
            let requests = latency.len() as f64;
            self.turns.push((after.cpu - before.cpu - self.probe_cost, requests, wall));
            self.latency.extend(latency);
            self.used = Some(after);
        }
    }

    /// Of a request: the median of turns, or of all together where the clock is too coarse for turns.
    fn cpu_ms(&self) -> f64 {
        if let Some(used) = self.used.filter(|it| it.coarse) {
            let all = used.told(self.turns.iter().map(|(cpu, _, _)| cpu).sum());
            return all * 1e3 / self.turns.iter().map(|(_, requests, _)| requests).sum::<f64>();
        }
        let each = self.turns.iter().map(|(cpu, requests, _)| cpu * 1e3 / requests);
        percentile(&sorted(each.collect()), 50)
    }

    fn rate(&self) -> f64 {
        let each = self.turns.iter().map(|(_, requests, wall)| requests / wall);
        percentile(&sorted(each.collect()), 50)
    }
}

/// Asks again and again until then; how long each took, in milliseconds.
async fn stream(connection: &Connection, ask: &Ask, end: Instant) -> Vec<f64> {
    let mut latency = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        let counted = connection.count(ask).await;
        latency.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(counted.code.is_success(), "{}", counted.code);
    }
    latency
}

/// Waits until a cache answers; how many bytes it is then.
pub(crate) async fn warm(
    row: &str,
    server: &Server,
    connection: &Connection,
    ask: &Ask,
    asked: Duration,
) -> Option<usize> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let counted = connection.count(ask).await;
        if counted.code == http::StatusCode::NOT_FOUND && server.name != UPSTREAM {
            return None;
        }
        assert!(counted.code.is_success(), "{row} of {}: {}", server.name, counted.code);
        if counted.hit() {
            return Some(counted.bytes);
        }
        assert!(Instant::now() < deadline, "{row} of {}: {:?}", server.name, counted.cache);
        sleep(asked).await;
    }
}
