//! What identity costs: Weir's CPU time and the wall time of one cached GET in sidecar mode, in gateway mode with a token whose review and
//! decision are remembered, and the same with the audit log on. `cargo bench --bench identity`.
//!
//! Not by criterion: the figure asked for is CPU time, and the ways are compared by turns in one run, so that what else the machine does falls
//! on all alike. Each Weir is a process of its own; the client's time and the simulator's are not counted.
//!
//! Twice: one request at a time, of which most is the sleeping and waking of a connection without work; and pipelined, [`DEPTH`] at once, as
//! it is where there is much to do, so that identity's share is the largest.

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

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::Instant;
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::answer::Answer;
use crate::weir_process::Weir;

const WEIR: &str = "weirs-own";
const PATH: &str = "/api/v1/namespaces/default/configmaps/cm?resourceVersion=0";
const ROUNDS: usize = 7;
/// A process' CPU time is told in ticks of 10 ms: they should be few against what this many take.
const REQUESTS: u32 = 48_000;
const DEPTH: u32 = 16;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let alice = token::token("alice");
    let users = vec![User::admin(WEIR, "weir"), User::admin(&alice, "alice")];
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = runtime.block_on(Simulator::start(options)).expect("a simulator");
    let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "default"}, "data": {"key": "x".repeat(1024)}});
    upstream.store().create(object).expect("it is created");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = upstream.kubeconfig(WEIR);
    let open = |name, sections| Way::open(&runtime, name, &kubeconfig, &alice, sections);
    let gateway = serde_json::json!({"mode": "gateway"});
    let audit = serde_json::json!({"output": dir.path().join("audit.log"),
        "policy": {"rules": [{"level": "Metadata"}]}});
    let mut ways = [
        open("sidecar", serde_json::json!({})),
        open("gateway, token", serde_json::json!({"authentication": gateway})),
        open(
            "gateway, token, audit",
            serde_json::json!({"authentication": gateway, "audit": audit}),
        ),
    ];
    println!("one GET of 1 KiB from the cache, HTTP/1.1; median of {ROUNDS} rounds of {REQUESTS}");
    for depth in [1, DEPTH] {
        compare(&mut ways, depth);
    }
}

/// All ways by turns.
fn compare(ways: &mut [Way], depth: u32) {
    for round in 0..=ROUNDS {
        for way in &mut *ways {
            let cost = way.requests(depth);
            if round > 0 {
                way.costs.push(cost);
            }
        }
    }
    let base = ways.first().map_or(0.0, |way| way.median(|cost| cost.0));
    println!("\n{:24} {:>12} {:>12} {:>8}", format!("{depth} at once"), "CPU us", "wall us", "CPU");
    for way in &mut *ways {
        let (cpu, wall) = (way.median(|cost| cost.0), way.median(|cost| cost.1));
        println!("{:24} {cpu:>12.1} {wall:>12.1} {:>7.2}x", way.name, cpu / base);
        way.costs.clear();
    }
}

/// A Weir, and a connection to it.
struct Way {
    name: &'static str,
    connection: TcpStream,
    read: Vec<u8>,
    request: Vec<u8>,
    /// CPU and wall time of a request, in microseconds.
    costs: Vec<(f64, f64)>,
    weir: Weir,
}

impl Way {
    fn open(
        runtime: &Runtime,
        name: &'static str,
        kubeconfig: &str,
        token: &str,
        sections: serde_json::Value,
    ) -> Self {
        let weir = runtime.block_on(Weir::start(kubeconfig, sections));
        let connection = TcpStream::connect(weir.address).expect("it listens");
        connection.set_nodelay(true).expect("a socket");
        let request = answer::get(PATH, token);
        let (read, costs) = (Vec::new(), Vec::new());
        let mut way = Self { name, connection, read, request, costs, weir };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !way.ask(1) {
            assert!(Instant::now() < deadline, "{name}: nothing comes from the cache");
            std::thread::yield_now();
        }
        way
    }

    fn requests(&mut self, depth: u32) -> (f64, f64) {
        let (cpu, wall) = (self.weir.cpu(), Instant::now());
        for _ in 0..REQUESTS / depth {
            assert!(self.ask(depth), "{}: not from the cache", self.name);
        }
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(REQUESTS);
        (each(self.weir.cpu().saturating_sub(cpu)), each(wall.elapsed()))
    }

    /// So many requests at once; whether the cache answered all.
    fn ask(&mut self, depth: u32) -> bool {
        let requests = self.request.repeat(usize::try_from(depth).expect("it is small"));
        self.connection.write_all(&requests).expect("it is taken");
        (0..depth).fold(true, |all, _| {
            let answer = self.answer();
            answer.hit && answer.code == 200 && all
        })
    }

    fn answer(&mut self) -> Answer {
        loop {
            if let Some(answer) = Answer::parse(&self.read) {
                self.read.drain(..answer.bytes);
                return answer;
            }
            let mut more = [0; 16 << 10];
            let read = self.connection.read(&mut more).expect("it answers");
            self.read.extend_from_slice(more.get(..read).expect("what was read"));
        }
    }

    fn median(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let mut all: Vec<f64> = self.costs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
