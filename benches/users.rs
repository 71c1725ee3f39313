//! 1,000 users behind one address, and one more who is hostile: how long the others wait, compared
//! with how long they wait alone. Run `cargo bench --bench users`.
//!
//! Weir is a separate process in front of a simulator in this one; all clients come from one
//! address, as behind a load balancer. Each user has a connection of its own and sends a GET every
//! two seconds; every tenth is forwarded. The hostile user, with a token as good as the
//! others', opens as many connections as it can, holds streams to the API server, asks for lists of
//! 25 MB and reads nothing of them, and cancels forwarded requests. Somebody without a credential
//! opens connections and sends nothing.
//!
//! Phases without and with the hostile user alternate, and the users connect again in each. All
//! share the machine, so the figures compare only within one run.

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
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weir::simulator::{Rule, Simulator, SimulatorOptions, User};

use crate::answer::{Answer, get};
use crate::token::token;
use crate::weir_process::{Weir, free_address};

const WEIR: &str = "weirs-own";
const HOSTILE: &str = "hostile.";
const USERS: usize = 1_000;
/// The interval between two requests of a user.
const INTERVAL: Duration = Duration::from_secs(2);
/// The number of requests of which one is forwarded.
const FORWARDED_ONE_IN: usize = 10;
const CACHED: &str = "/api/v1/namespaces/default/configmaps/cm?resourceVersion=0";
const FORWARDED: &str = "/api/v1/namespaces/default/configmaps/cm";
/// 5,000 objects of 5 KB, indented, so that Weir writes them for this response alone.
const LIST: &str = "/api/v1/namespaces/large/configmaps?resourceVersion=0&pretty=true";
/// Events are not cached, so their watches are streams to the API server.
const STREAM: &str = "/api/v1/namespaces/default/events?watch=true";
const PHASE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 3;

/// The load of one phase beside the users.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Hostile,
}

/// The measurements of one phase.
#[derive(Default)]
struct Phase {
    cached: Vec<Duration>,
    forwarded: Vec<Duration>,
    /// Users whose connection was refused or closed, and those with another status than 200.
    failed: BTreeMap<String, usize>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let names = (0..USERS).map(user).chain([HOSTILE.to_owned()]);
    // Not members of `system:masters`, who are exempt.
    let everything = vec![Rule::new(&["*"], &["*"], &["*"])];
    let user = |name: String| User::with_rules(&token(&name), &name, everything.clone());
    let mut users: Vec<_> = names.map(user).collect();
    users.push(User::admin(WEIR, "weir"));
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.expect("a simulator");
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "large"}});
    upstream.store().create(namespace).expect("the namespace is created");
    create(&upstream, "default", "cm", 1 << 10);
    for number in 0..5_000 {
        create(&upstream, "large", &format!("cm{number}"), 5 << 10);
    }
    let admin = free_address();
    let gateway = serde_json::json!({"authentication": {"mode": "gateway"},
        "admin": {"listen": admin.to_string()}});
    let weir = Weir::start(&upstream.kubeconfig(WEIR), gateway).await;
    warm(weir.address).await;

    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let alone = measure(&weir, admin, Beside::Nothing).await;
        let beside = measure(&weir, admin, Beside::Hostile).await;
        // In the first round all tokens are new.
        if round > 0 {
            let ratio = |durations: fn(&Phase) -> &Vec<Duration>| {
                percentile(durations(&beside), 99) / percentile(durations(&alone), 99)
            };
            let both = [ratio(|phase| &phase.cached), ratio(|phase| &phase.forwarded)];
            println!(
                "round {round}: p99 beside the hostile user, as a multiple of that alone: cached {:.2}, forwarded {:.2}",
                both[0], both[1]
            );
            ratios.push(both);
        }
    }
    for (index, name) in ["cached", "forwarded"].into_iter().enumerate() {
        let mut sorted_ratios: Vec<f64> =
            ratios.iter().filter_map(|both| both.get(index).copied()).collect();
        sorted_ratios.sort_unstable_by(f64::total_cmp);
        let median = sorted_ratios.get(sorted_ratios.len() / 2).copied().unwrap_or_default();
        println!("{name}: median of the ratios {median:.2} (at most 1.5)");
    }
}

/// Measures one phase.
async fn measure(weir: &Weir, admin: SocketAddr, beside: Beside) -> Phase {
    let (address, cpu_before) = (weir.address, weir.cpu());
    let mut hostile = JoinSet::new();
    if beside == Beside::Hostile {
        attack(&mut hostile, address);
        // Until it holds what it can get.
        sleep(Duration::from_secs(3)).await;
    }
    let begun = Instant::now() + Duration::from_secs(3);
    let mut users = JoinSet::new();
    for number in 0..USERS {
        users.spawn(one_user(address, number, begun));
    }
    let mut phase = Phase::default();
    while let Some(ended) = users.join_next().await {
        let of_one = ended.expect("it ends");
        phase.cached.extend(of_one.cached);
        phase.forwarded.extend(of_one.forwarded);
        for (cause, count) in of_one.failed {
            *phase.failed.entry(cause).or_default() += count;
        }
    }
    let name = if beside == Beside::Hostile { "beside the hostile user" } else { "alone" };
    let open = metric(admin, "weir_connections{").await;
    let held = metric(admin, "weir_response_memory_bytes ").await / f64::from(1 << 20);
    println!(
        "{name}: {open} connections, {held:.0} MiB held, {:.1} s of CPU, failures {:?}\n  cached    {}\n  forwarded {}",
        weir.cpu().saturating_sub(cpu_before).as_secs_f64(),
        phase.failed,
        percentiles(&phase.cached),
        percentiles(&phase.forwarded)
    );
    hostile.shutdown().await;
    // Until Weir has noticed the end of all of it.
    sleep(Duration::from_secs(2)).await;
    phase
}

/// Sends the requests of one user from `begun` on.
async fn one_user(address: SocketAddr, number: usize, begun: Instant) -> Phase {
    let mut phase = Phase::default();
    let token = token(&user(number));
    let own_offset = INTERVAL.mul_f64(number as f64 / USERS as f64);
    // Users connect one after another, as they do behind a load balancer that runs.
    sleep(own_offset).await;
    let Ok(mut connection) = Connection::open(address).await else {
        return Phase { failed: [("connect".to_owned(), 1)].into(), ..phase };
    };
    let mut due = begun + own_offset;
    for request in 0.. {
        if due >= begun + PHASE {
            return phase;
        }
        sleep_until(due).await;
        let is_forwarded = (number + request).is_multiple_of(FORWARDED_ONE_IN);
        let path = if is_forwarded { FORWARDED } else { CACHED };
        let started = Instant::now();
        match connection.send(path, &token).await {
            Some(200) if is_forwarded => phase.forwarded.push(started.elapsed()),
            Some(200) => phase.cached.push(started.elapsed()),
            other => {
                let cause = other.map_or_else(|| "closed".to_owned(), |code| code.to_string());
                *phase.failed.entry(cause).or_default() += 1;
                match Connection::open(address).await {
                    Ok(another) => connection = another,
                    Err(_) => return phase,
                }
            }
        }
        due += INTERVAL;
    }
    phase
}

/// Starts the hostile user, and somebody without a credential, at the same address.
fn attack(tasks: &mut JoinSet<()>, address: SocketAddr) {
    let token = token(HOSTILE);
    let request = |path: &str| get(path, &token);
    // Connections that send one request, or nothing, and are opened again when they are closed.
    for number in 0..3_000 {
        let first = if number % 2 == 0 { request(CACHED) } else { Vec::new() };
        tasks.spawn(keep_open(address, first, Duration::from_secs(5)));
    }
    for _ in 0..100 {
        tasks.spawn(keep_open(address, request(STREAM), Duration::from_secs(1)));
    }
    for _ in 0..60 {
        tasks.spawn(leave_unread(address, request(LIST)));
    }
    for _ in 0..5 {
        let list = request("/api/v1/namespaces/default/configmaps");
        tasks.spawn(async move {
            loop {
                if let Ok(mut connection) = Connection::open(address).await {
                    let _closed = connection.tcp.write_all(&list).await;
                    sleep(Duration::from_micros(500)).await;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

/// Sends `first` and reads everything, again and again.
async fn keep_open(address: SocketAddr, first: Vec<u8>, pause: Duration) {
    loop {
        if let Ok(mut connection) = Connection::open(address).await
            && connection.tcp.write_all(&first).await.is_ok()
        {
            let mut bytes = [0; 4096];
            while connection.tcp.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        }
        sleep(pause).await;
    }
}

/// Asks for a list and reads nothing of it.
async fn leave_unread(address: SocketAddr, request: Vec<u8>) {
    loop {
        if let Ok(mut connection) = Connection::open(address).await
            && connection.tcp.write_all(&request).await.is_ok()
        {
            sleep(Duration::from_secs(30)).await;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn user(number: usize) -> String {
    format!("user{number}.")
}

fn create(upstream: &Simulator, namespace: &str, name: &str, bytes: usize) {
    let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"key": "x".repeat(bytes)}});
    upstream.store().create(object).expect("the object is created");
}

/// Waits until Weir answers from its cache.
async fn warm(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut connection = Connection::open(address).await.expect("it listens");
    loop {
        assert!(Instant::now() < deadline, "no response from the cache within 60 s");
        let answer = connection.answer(CACHED, &token(HOSTILE)).await;
        if answer.is_some_and(|answer| answer.hit) {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
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

/// An HTTP/1.1 connection to Weir.
struct Connection {
    tcp: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        Ok(Self { tcp, read: Vec::new() })
    }

    /// Returns the status of the response; `None` if there was none.
    async fn send(&mut self, path: &str, token: &str) -> Option<u16> {
        let answer = timeout(Duration::from_secs(10), self.answer(path, token)).await;
        answer.ok().flatten().map(|answer| answer.code)
    }

    async fn answer(&mut self, path: &str, token: &str) -> Option<Answer> {
        self.tcp.write_all(&get(path, token)).await.ok()?;
        loop {
            self.tcp.read_buf(&mut self.read).await.ok().filter(|read| *read > 0)?;
            if let Some(answer) = Answer::parse(&self.read) {
                self.read.drain(..answer.bytes);
                return Some(answer);
            }
        }
    }
}

/// Returns a percentile in seconds.
fn percentile(times: &[Duration], of_hundred: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() * of_hundred / 100).copied().unwrap_or_default().as_secs_f64()
}

fn percentiles(times: &[Duration]) -> String {
    let at = |of_hundred| percentile(times, of_hundred) * 1e3;
    format!("{} requests, p50 {:.2} ms, p99 {:.2} ms", times.len(), at(50), at(99))
}
