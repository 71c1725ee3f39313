//! 100,000 distinct bad tokens before a whole Weir: what it holds, what the upstream is asked, and what others notice. `cargo bench --bench
//! flood`.
//!
//! Weir is a process of its own, before a simulator in this one. A known user asks steadily from an address of their own, beside
//! newcomers, whose tokens nobody has seen yet, from a third; the flood comes from a second one.
//!
//! Flood, clients, simulator and Weir share the machine, and each flood takes all of it that it gets. So for what others
//! notice, the measure of a flood is not quiet but `good`: as many connections that ask as fast with one good token.

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
/// Users whom Weir has not seen yet, in all.
const NEWCOMERS: usize = 4_000;
/// How often the known user asks, and how often somebody new comes.
const PACE: Duration = Duration::from_millis(4);
const NEW_PACE: Duration = Duration::from_millis(25);
/// What a flood may do a second where it does not take what it gets.
const PACED: u32 = 2_000;

/// One kind of load.
struct Phase {
    name: &'static str,
    requests: usize,
    connections: usize,
    /// With a token of its own for each request, which is nobody's.
    bad: bool,
    /// Requests a second, if it does not take what it gets.
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
    upstream.store().create(object).expect("it is created");
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
        phase("good, 2000/s", FLOOD / 5, 64, false, Some(PACED)),
        phase("bad, 2000/s", FLOOD / 5, 64, true, Some(PACED)),
        phase("quiet again", 0, 0, false, None),
    ];
    let mut stage = Stage { weir, admin, upstream, newcomers: Arc::default(), sent: 0 };
    for phase in phases {
        stage.play(&phase).await;
    }
}

struct Stage {
    weir: Weir,
    /// Where its metrics are.
    admin: SocketAddr,
    upstream: Simulator,
    /// How many came.
    newcomers: Arc<AtomicUsize>,
    /// Bad tokens.
    sent: usize,
}

/// What is counted before and after.
struct Counts {
    resident: f64,
    cpu: Duration,
    asked: u64,
    good: f64,
    forwarded: f64,
}

impl Stage {
    async fn play(&mut self, phase: &Phase) {
        let before = self.counts().await;
        let ended = CancellationToken::new();
        let known = tokio::spawn(known(self.weir.address, ended.clone()));
        let new = tokio::spawn(newcomers(self.weir.address, self.newcomers.clone(), ended.clone()));
        let started = Instant::now();
        let codes = self.load(phase).await;
        let took = started.elapsed();
        ended.cancel();
        let (known, new) = (known.await.expect("it ends"), new.await.expect("it ends"));
        let after = self.counts().await;
        println!("\n{}: {:.1} s, answers {codes:?}", phase.name, took.as_secs_f64());
        println!(
            "  Weir: resident {:.0} -> {:.0} MiB, CPU {:.1} s; remembered: {} good, {} failed",
            before.resident,
            after.resident,
            (after.cpu.saturating_sub(before.cpu)).as_secs_f64(),
            metric(self.admin, "weir_token_review_cache_tokens{result=\"authenticated\"}").await,
            metric(self.admin, "weir_token_review_cache_tokens{result=\"failed\"}").await,
        );
        println!(
            "  upstream: {} token reviews ({} of good tokens), {} requests forwarded",
            after.asked - before.asked,
            after.good - before.good,
            after.forwarded - before.forwarded,
        );
        println!("  known user: {}", percentiles(known));
        println!("  newcomers:  {}", percentiles(new));
    }

    async fn counts(&self) -> Counts {
        Counts {
            resident: resident(&self.weir),
            cpu: self.weir.cpu(),
            asked: self.upstream.requests().count("create", "tokenreviews"),
            good: metric(self.admin, "weir_token_reviews_total{result=\"authenticated\"}").await,
            forwarded: self.upstream.requests().count("get", "configmaps") as f64,
        }
    }

    /// Its answers, by status.
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
        let mut all = JoinSet::new();
        for _ in 0..phase.connections {
            let next = Arc::clone(&next);
            all.spawn(async move {
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
                    *codes.entry(connection.ask(&token(&name)).await.code).or_default() += 1;
                }
            });
        }
        let mut codes = BTreeMap::new();
        while let Some(of_one) = all.join_next().await {
            for (code, count) in of_one.expect("it ends") {
                *codes.entry(code).or_default() += count;
            }
        }
        codes
    }
}

/// Its memory as the kernel counts it, in MiB.
fn resident(weir: &Weir) -> f64 {
    let status = std::fs::read_to_string(format!("{}/status", weir.proc()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024.0
}

/// The sum of its metrics whose lines begin so.
async fn metric(admin: SocketAddr, begins: &str) -> f64 {
    let mut tcp = TcpStream::connect(admin).await.expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("it is taken");
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.expect("an answer");
    let lines = text.lines().filter(|line| line.starts_with(begins));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Until the cache answers.
async fn warm(weir: &Weir) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut connection = Connection::open(1, weir.address).await;
    while !connection.ask(&token("known")).await.hit {
        assert!(Instant::now() < deadline, "nothing comes from the cache");
        sleep(Duration::from_millis(50)).await;
    }
}

/// One who asks steadily.
async fn known(address: SocketAddr, ended: CancellationToken) -> Vec<Duration> {
    let mut connection = Connection::open(1, address).await;
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (token, mut times) = (token("known"), Vec::new());
    while !ended.is_cancelled() {
        ticks.tick().await;
        let started = Instant::now();
        let answer = connection.ask(&token).await;
        times.push(started.elapsed());
        assert!(answer.hit, "a known user was not answered from the cache");
    }
    times
}

/// Many who ask once.
async fn newcomers(
    address: SocketAddr,
    came: Arc<AtomicUsize>,
    ended: CancellationToken,
) -> Vec<Duration> {
    let mut connection = Connection::open(3, address).await;
    let mut ticks = interval(NEW_PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut times = Vec::new();
    while !ended.is_cancelled() {
        ticks.tick().await;
        let token = token(&new_name(came.fetch_add(1, Ordering::Relaxed) % NEWCOMERS));
        let started = Instant::now();
        let answer = connection.ask(&token).await;
        times.push(started.elapsed());
        assert_eq!(answer.code, 200, "a newcomer was not answered");
    }
    times
}

fn new_name(n: usize) -> String {
    format!("new{n}.")
}

/// A connection to Weir.
struct Connection {
    tcp: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// From the loopback's address that ends so.
    async fn open(last: u8, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let own = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
        socket.bind(SocketAddr::from((own, 0))).expect("the whole network is here");
        let tcp = socket.connect(address).await.expect("it listens");
        tcp.set_nodelay(true).expect("a socket");
        Self { tcp, read: Vec::new() }
    }

    async fn ask(&mut self, token: &str) -> Answer {
        self.tcp.write_all(&get(PATH, token)).await.expect("it is taken");
        loop {
            let read = self.tcp.read_buf(&mut self.read).await.expect("it answers");
            assert!(read > 0, "the connection was closed");
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
