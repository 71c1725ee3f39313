//! Sends 100,000 distinct bad tokens to a Weir process and measures its memory, its requests to the
//! upstream and the effect on other users. Run `cargo bench --bench flood`.
//!
//! Weir is a separate process in front of a simulator in this one. A known user sends requests at a
//! steady rate from a first address. The flood comes from a second address. Newcomers, whose tokens
//! Weir has not seen, come from a third address.
//!
//! Flood, clients, simulator and Weir share the machine, and each flood takes as much of it as it
//! can. The effect on others is therefore compared not with an idle machine but with the phase
//! `good`: the same number of connections with one good token.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

#[path = "support/answer.rs"]
mod answer;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/token.rs"]
mod token;
#[path = "support/weir_process.rs"]
#[expect(dead_code, reason = "each bench uses a part of it")]
mod weir_process;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::answer::{Answer, get};
use crate::token::token;
use crate::weir_process::{Weir, free_address};

const WEIR: &str = "weirs-own";
const PATH: &str = "/api/v1/namespaces/default/configmaps/cm?resourceVersion=0";
const FLOOD: usize = 100_000;
/// The number of users that Weir has not seen.
const NEWCOMERS: usize = 4_000;
/// The interval between requests of the known user.
const KNOWN_USER_INTERVAL: Duration = Duration::from_millis(4);
/// The interval between newcomers.
const NEWCOMER_INTERVAL: Duration = Duration::from_millis(25);
/// The rate of a paced flood, in requests per second.
const PACED_RATE: u32 = 2_000;

/// One kind of load.
struct Phase {
    name: &'static str,
    requests: usize,
    connections: usize,
    /// Whether each request has a different, invalid token.
    bad: bool,
    /// Requests per second. `None` is as fast as possible.
    pace: Option<u32>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let names = ["known".to_owned(), "load".to_owned()].into_iter();
    let names = names.chain((0..NEWCOMERS).map(new_name));
    let mut users: Vec<_> = names.map(|name| User::admin(&token(&name), &name)).collect();
    users.push(User::admin(WEIR, "weir"));
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.expect("a simulator");
    let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "default"}, "data": {"key": "x".repeat(1024)}});
    upstream.store().create(object).expect("the object is created");
    let admin = free_address();
    let gateway = serde_json::json!({"authentication": {"mode": "gateway"},
        "admin": {"listen": admin.to_string()}});
    let weir = Weir::start(&upstream.kubeconfig(WEIR), gateway).await;
    warm(&weir).await;

    let phase =
        |name, requests, connections, bad, pace| Phase { name, requests, connections, bad, pace };
    let phases = [
        phase("quiet", 0, 0, false, None),
        phase("good, 64 connections", FLOOD, 64, false, None),
        phase("bad, 64 connections", FLOOD, 64, true, None),
        phase("good, 1000 connections", FLOOD, 1000, false, None),
        phase("bad, 1000 connections", FLOOD, 1000, true, None),
        phase("good, 2000/s", FLOOD / 5, 64, false, Some(PACED_RATE)),
        phase("bad, 2000/s", FLOOD / 5, 64, true, Some(PACED_RATE)),
        phase("quiet again", 0, 0, false, None),
    ];
    let mut testbed = Testbed { weir, admin, upstream, newcomers: Arc::default(), sent: 0 };
    for phase in phases {
        testbed.run(&phase).await;
    }
}

struct Testbed {
    weir: Weir,
    /// The address of Weir's admin listener, which serves metrics.
    admin: SocketAddr,
    upstream: Simulator,
    /// The number of newcomers in all phases.
    newcomers: Arc<AtomicUsize>,
    /// The number of tokens that were used, so that each phase uses others.
    sent: usize,
}

/// Figures before or after a phase.
struct Counts {
    resident: f64,
    cpu: Duration,
    reviews: u64,
    good: f64,
    forwarded: f64,
}

impl Testbed {
    async fn run(&mut self, phase: &Phase) {
        let before = self.counts().await;
        let ended = CancellationToken::new();
        let known_clients = tokio::spawn(latencies_of_known_user(self.weir.address, ended.clone()));
        let new = tokio::spawn(newcomers(self.weir.address, self.newcomers.clone(), ended.clone()));
        let started = Instant::now();
        let codes = self.load(phase).await;
        let took = started.elapsed();
        ended.cancel();
        let (known_clients, new) =
            (known_clients.await.expect("it ends"), new.await.expect("it ends"));
        let after = self.counts().await;
        println!("\n{}: {:.1} s, responses by status {codes:?}", phase.name, took.as_secs_f64());
        println!(
            "  Weir: resident {:.0} -> {:.0} MiB, CPU {:.1} s; cached tokens: {} good, {} failed",
            before.resident,
            after.resident,
            (after.cpu.saturating_sub(before.cpu)).as_secs_f64(),
            metric(self.admin, "weir_token_review_cache_tokens{result=\"authenticated\"}").await,
            metric(self.admin, "weir_token_review_cache_tokens{result=\"failed\"}").await,
        );
        println!(
            "  upstream: {} token reviews ({} of good tokens), {} requests forwarded",
            after.reviews - before.reviews,
            after.good - before.good,
            after.forwarded - before.forwarded,
        );
        println!("  known user: {}", percentiles(known_clients));
        println!("  newcomers:  {}", percentiles(new));
    }

    async fn counts(&self) -> Counts {
        Counts {
            resident: resident(&self.weir),
            cpu: self.weir.cpu(),
            reviews: self.upstream.requests().count("create", "tokenreviews"),
            good: metric(self.admin, "weir_token_reviews_total{result=\"authenticated\"}").await,
            forwarded: self.upstream.requests().count("get", "configmaps") as f64,
        }
    }

    /// Sends the phase's requests and returns the number of responses by status code.
    async fn load(&mut self, phase: &Phase) -> BTreeMap<u16, usize> {
        if phase.requests == 0 {
            sleep(Duration::from_secs(12)).await;
            return BTreeMap::new();
        }
        let (address, bad, first) = (self.weir.address, phase.bad, self.sent);
        self.sent += phase.requests;
        let next = Arc::new(AtomicUsize::new(0));
        let (requests, pace) = (phase.requests, phase.pace);
        let started = Instant::now();
        let mut senders = JoinSet::new();
        for _ in 0..phase.connections {
            let next = Arc::clone(&next);
            senders.spawn(async move {
                let mut connection = Connection::open(2, address).await;
                let mut codes = BTreeMap::<u16, usize>::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= requests {
                        return codes;
                    }
                    if let Some(pace) = pace {
                        let due = Duration::from_secs_f64(n as f64 / f64::from(pace));
                        tokio::time::sleep_until(started + due).await;
                    }
                    let name = if bad { format!("bad{}.", first + n) } else { "load".to_owned() };
                    *codes.entry(connection.send(&token(&name)).await.code).or_default() += 1;
                }
            });
        }
        let mut codes = BTreeMap::new();
        while let Some(of_one) = senders.join_next().await {
            for (code, count) in of_one.expect("it ends") {
                *codes.entry(code).or_default() += count;
            }
        }
        codes
    }
}

/// Returns Weir's resident memory in MiB.
fn resident(weir: &Weir) -> f64 {
    let status = std::fs::read_to_string(format!("{}/status", weir.proc()));
    let status = status.expect("weir runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024.0
}

/// Returns the sum of the metrics whose lines begin with `prefix`.
async fn metric(admin: SocketAddr, prefix: &str) -> f64 {
    let mut tcp = TcpStream::connect(admin).await.expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("it is taken");
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.expect("an answer");
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Waits until Weir answers from its cache.
async fn warm(weir: &Weir) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut connection = Connection::open(1, weir.address).await;
    while !connection.send(&token("known")).await.hit {
        assert!(Instant::now() < deadline, "no response from the cache within 20 s");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sends requests of the known user at a steady rate and returns their latencies.
async fn latencies_of_known_user(address: SocketAddr, ended: CancellationToken) -> Vec<Duration> {
    let mut connection = Connection::open(1, address).await;
    let mut ticks = interval(KNOWN_USER_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (token, mut times) = (token("known"), Vec::new());
    while !ended.is_cancelled() {
        ticks.tick().await;
        let started = Instant::now();
        let answer = connection.send(&token).await;
        times.push(started.elapsed());
        assert!(answer.hit, "a response to the known user was not from the cache");
    }
    times
}

/// Sends one request for each newcomer and returns their latencies.
async fn newcomers(
    address: SocketAddr,
    count: Arc<AtomicUsize>,
    ended: CancellationToken,
) -> Vec<Duration> {
    let mut connection = Connection::open(3, address).await;
    let mut ticks = interval(NEWCOMER_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut times = Vec::new();
    while !ended.is_cancelled() {
        ticks.tick().await;
        let token = token(&new_name(count.fetch_add(1, Ordering::Relaxed) % NEWCOMERS));
        let started = Instant::now();
        let answer = connection.send(&token).await;
        times.push(started.elapsed());
        assert_eq!(answer.code, 200, "a newcomer's request failed");
    }
    times
}

fn new_name(n: usize) -> String {
    format!("new{n}.")
}

/// An HTTP/1.1 connection to Weir.
struct Connection {
    tcp: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// Connects from the loopback address 127.0.0.`last`.
    async fn open(last: u8, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let source = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
        socket.bind(SocketAddr::from((source, 0))).expect("an address of the loopback network");
        let tcp = socket.connect(address).await.expect("it listens");
        tcp.set_nodelay(true).expect("a socket");
        Self { tcp, read: Vec::new() }
    }

    async fn send(&mut self, token: &str) -> Answer {
        self.tcp.write_all(&get(PATH, token)).await.expect("it is taken");
        loop {
            let read = self.tcp.read_buf(&mut self.read).await.expect("it answers");
            assert!(read > 0, "weir closed the connection");
            if let Some(answer) = Answer::parse(&self.read) {
                self.read.drain(..answer.bytes);
                return answer;
            }
        }
    }
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |of_hundred: usize| {
        let time = times.get(times.len() * of_hundred / 100).copied().unwrap_or_default();
        time.as_secs_f64() * 1e3
    };
    format!("{} requests, p50 {:.2} ms, p99 {:.2} ms", times.len(), at(50), at(99))
}
