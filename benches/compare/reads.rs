//! Measures reads. In each row all servers get the same load in alternating rounds: a number of
//! streams on a number of connections, each with one request after another.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::client::{Connection, JSON, PROTOBUF, PreparedRequest, Protocol};
use crate::pods;
use crate::results::{Results, percentile, sorted};
use crate::server::{NGINX, Server, UPSTREAM};
use crate::usage::UsageSample;

pub(crate) struct Read {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) gzip: bool,
    connections: usize,
    /// On each connection.
    streams: usize,
}

/// Returns all rows.
pub(crate) fn reads() -> Vec<Read> {
    let read = |name, path: String, accept, connections, streams| {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}resourceVersion=0");
        Read { name, path, accept, gzip: false, connections, streams }
    };
    let every_pod = || "/api/v1/pods".to_owned();
    let node = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", pods::node(0));
    let namespace = format!("/api/v1/namespaces/{}/pods", pods::namespace(0));
    let half = "/api/v1/pods?labelSelector=half%3Dfirst".to_owned();
    let gzip = Read { gzip: true, ..read("list-5000-gzip", every_pod(), JSON, 2, 1) };
    // Each ends a second after it began.
    let watch_list = || read(WATCH_LIST, format!("{}?{INITIAL}", every_pod()), JSON, 2, 8);
    let compressed = Read { name: WATCH_LIST_GZIP, gzip: true, ..watch_list() };
    vec![
        read("get", pods::path(0), JSON, 4, 8),
        read("get-protobuf", pods::path(0), PROTOBUF, 4, 8),
        read("list-node-protobuf", node, PROTOBUF, 4, 4),
        read("list-500", namespace, JSON, 4, 1),
        read("list-5000", every_pod(), JSON, 2, 1),
        read("list-5000-protobuf", every_pod(), PROTOBUF, 2, 1),
        gzip,
        read("list-label-protobuf", half, PROTOBUF, 2, 1),
        watch_list(),
        compressed,
    ]
}

/// The rows of watches that begin with the state.
pub(crate) const WATCH_LIST: &str = "watch-list-5000";
pub(crate) const WATCH_LIST_GZIP: &str = "watch-list-5000-gzip";
const INITIAL: &str = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&\
    resourceVersionMatch=NotOlderThan&timeoutSeconds=1";

impl Read {
    /// Whether it is a watch that begins with the state.
    pub(crate) fn is_watch(&self) -> bool {
        self.path.contains("watch=1")
    }

    /// Returns the request for a server. nginx serves files, which are named after their rows.
    fn request(&self, server: &Server) -> PreparedRequest {
        let path = if server.name == NGINX { format!("/{}", self.name) } else { self.path.clone() };
        PreparedRequest::get(server, &path, self.accept, self.gzip)
    }
}

/// The duration and the number of each server's rounds.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) round: Duration,
    pub(crate) rounds: usize,
}

/// The measurement of one server.
struct Measurement<'a> {
    server: &'a Server,
    request: PreparedRequest,
    connections: Vec<Connection>,
    bytes: usize,
    probe_cost: f64,
    /// CPU seconds, requests and seconds of each round.
    rounds: Vec<(f64, f64, f64)>,
    latency: Vec<f64>,
    /// Taken at the end of the last round.
    last_sample: Option<UsageSample>,
}

/// The interval of requests while Weir's cache is not ready.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) async fn compare(read: &Read, servers: &[&Server], pace: Pace, results: &mut Results) {
    let mut measurements = Vec::new();
    for server in servers {
        measurements.extend(Measurement::new(read, server).await);
    }
    for round in 0..=pace.rounds {
        for measurement in &mut measurements {
            // The first round is a short warm-up.
            let time = if round == 0 { pace.round / 4 } else { pace.round };
            measurement.round(read.streams, time, round > 0).await;
        }
    }
    for measurement in measurements {
        let name = measurement.server.name;
        let mut set = |what, value| results.set(read.name, name, what, value);
        set("bytes", measurement.bytes as f64);
        set("cpu_ms", measurement.cpu_ms());
        set("rate", measurement.rate());
        let latency = sorted(measurement.latency);
        set("p50_ms", percentile(&latency, 50));
        set("p99_ms", percentile(&latency, 99));
        set("resident_bytes", measurement.last_sample.map_or(f64::NAN, |sample| sample.resident));
    }
}

impl<'a> Measurement<'a> {
    /// Returns `None` if the server does not have the resource.
    async fn new(read: &Read, server: &'a Server) -> Option<Self> {
        let request = read.request(server);
        let mut connections = Vec::new();
        for _ in 0..read.connections {
            connections.push(Connection::open(server, Protocol::Http2).await);
        }
        let bytes = warm(read.name, server, connections.first()?, &request, POLL_INTERVAL).await?;
        let probe_cost = server.usage.sampling_cost().await;
        let (rounds, latency) = (Vec::new(), Vec::new());
        Some(Self {
            server,
            request,
            connections,
            bytes,
            probe_cost,
            rounds,
            latency,
            last_sample: None,
        })
    }

    async fn round(&mut self, streams: usize, time: Duration, counts: bool) {
        let (before, start) = (self.server.usage.sample().await, Instant::now());
        let streams = self.connections.iter().flat_map(|one| (0..streams).map(move |_| one));
        let tasks = streams.map(|connection| {
            let (connection, request) = (connection.clone(), self.request.clone());
            tokio::spawn(async move { stream(&connection, &request, start + time).await })
        });
        let latency: Vec<f64> = join_all(tasks)
            .await
            .into_iter()
            .flat_map(|reads| reads.expect("a stream ends"))
            .collect();
        let wall = start.elapsed().as_secs_f64();
        let after = self.server.usage.sample().await;
        if counts {
            let requests = latency.len() as f64;
            self.rounds.push((after.cpu - before.cpu - self.probe_cost, requests, wall));
            self.latency.extend(latency);
            self.last_sample = Some(after);
        }
    }

    /// Returns the CPU time per request: the median of all rounds, or the mean if the clock is too
    /// coarse for single rounds.
    fn cpu_ms(&self) -> f64 {
        if let Some(last_sample) = self.last_sample.filter(|sample| sample.coarse) {
            let cpu = last_sample.cpu_if_resolved(self.rounds.iter().map(|(cpu, _, _)| cpu).sum());
            return cpu * 1e3 / self.rounds.iter().map(|(_, requests, _)| requests).sum::<f64>();
        }
        let each = self.rounds.iter().map(|(cpu, requests, _)| cpu * 1e3 / requests);
        percentile(&sorted(each.collect()), 50)
    }

    fn rate(&self) -> f64 {
        let each = self.rounds.iter().map(|(_, requests, wall)| requests / wall);
        percentile(&sorted(each.collect()), 50)
    }
}

/// Sends one request after another until `end` and returns their latencies in milliseconds.
async fn stream(connection: &Connection, request: &PreparedRequest, end: Instant) -> Vec<f64> {
    let mut latency = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        let summary = connection.count(request).await;
        latency.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(summary.code.is_success(), "{}", summary.code);
    }
    latency
}

/// Repeats a request every `measurement` until the cache answers, and returns the length of the
/// body. Returns `None` if the server does not have the resource.
pub(crate) async fn warm(
    row: &str,
    server: &Server,
    connection: &Connection,
    request: &PreparedRequest,
    interval: Duration,
) -> Option<usize> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let summary = connection.count(request).await;
        if summary.code == http::StatusCode::NOT_FOUND && server.name != UPSTREAM {
            return None;
        }
        assert!(summary.code.is_success(), "{row} of {}: {}", server.name, summary.code);
        if summary.is_hit() {
            return Some(summary.bytes);
        }
        assert!(Instant::now() < deadline, "{row} of {}: {:?}", server.name, summary.cache);
        sleep(interval).await;
    }
}
