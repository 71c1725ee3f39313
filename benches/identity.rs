//! Measures the cost of authentication, authorization and audit: Weir's CPU time and the wall time
//! of one cached GET in sidecar mode, in gateway mode with a token whose review and decision are
//! cached, and in gateway mode with the audit log. Run `cargo bench --bench identity`.
//!
//! Criterion cannot measure the CPU time of another process. The modes are alternated in one run,
//! so that other load affects all of them alike. Each Weir is a separate process; the time of the
//! client and of the simulator is not counted.
//!
//! There are two measurements. With one request at a time, most of the cost is the suspending and
//! waking of an idle connection. With [`DEPTH`] pipelined requests, as under load, the share of
//! identity is largest.

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
/// Requests per round. The CPU time of a process has a resolution of 10 ms, which must be small in
/// comparison with the time of a round.
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
    upstream.store().create(object).expect("the object is created");
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = upstream.kubeconfig(WEIR);
    let open = |name, sections| Setup::open(&runtime, name, &kubeconfig, &alice, sections);
    let gateway = serde_json::json!({"mode": "gateway"});
    let audit = serde_json::json!({"output": dir.path().join("audit.log"),
        "policy": {"rules": [{"level": "Metadata"}]}});
    let mut setups = [
        open("sidecar", serde_json::json!({})),
        open("gateway, token", serde_json::json!({"authentication": gateway})),
        open(
            "gateway, token, audit",
            serde_json::json!({"authentication": gateway, "audit": audit}),
        ),
    ];
    println!("one cached GET of 1 KiB over HTTP/1.1; median of {ROUNDS} rounds of {REQUESTS}");
    for depth in [1, DEPTH] {
        compare(&mut setups, depth);
    }
}

/// Measures all set-ups in alternation and prints the medians.
fn compare(setups: &mut [Setup], depth: u32) {
    for round in 0..=ROUNDS {
        for setup in &mut *setups {
            let cost = setup.requests(depth);
            if round > 0 {
                setup.costs.push(cost);
            }
        }
    }
    let base = setups.first().map_or(0.0, |setup| setup.median(|cost| cost.0));
    println!("\n{:24} {:>12} {:>12} {:>8}", format!("{depth} at once"), "CPU us", "wall us", "CPU");
    for setup in &mut *setups {
        let (cpu, wall) = (setup.median(|cost| cost.0), setup.median(|cost| cost.1));
        println!("{:24} {cpu:>12.1} {wall:>12.1} {:>7.2}x", setup.name, cpu / base);
        setup.costs.clear();
    }
}

/// A Weir in one mode, and a connection to it.
struct Setup {
    name: &'static str,
    connection: TcpStream,
    read: Vec<u8>,
    request: Vec<u8>,
    /// CPU and wall time per request in microseconds, by round.
    costs: Vec<(f64, f64)>,
    weir: Weir,
}

impl Setup {
    fn open(
        runtime: &Runtime,
        name: &'static str,
        kubeconfig: &str,
        token: &str,
        sections: serde_json::Value,
    ) -> Self {
        let weir = runtime.block_on(Weir::start(kubeconfig, sections));
        let connection = TcpStream::connect(weir.address).expect("weir listens");
        connection.set_nodelay(true).expect("a socket");
        let request = answer::get(PATH, token);
        let (read, costs) = (Vec::new(), Vec::new());
        let mut setup = Self { name, connection, read, request, costs, weir };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !setup.send(1) {
            assert!(Instant::now() < deadline, "{name}: no response from the cache within 10 s");
            std::thread::yield_now();
        }
        setup
    }

    fn requests(&mut self, depth: u32) -> (f64, f64) {
        let (cpu, wall) = (self.weir.cpu(), Instant::now());
        for _ in 0..REQUESTS / depth {
            assert!(self.send(depth), "{}: a response was not from the cache", self.name);
        }
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(REQUESTS);
        (each(self.weir.cpu().saturating_sub(cpu)), each(wall.elapsed()))
    }

    /// Sends `depth` pipelined requests. Returns whether the cache answered all of them.
    fn send(&mut self, depth: u32) -> bool {
        let requests = self.request.repeat(usize::try_from(depth).expect("a small number"));
        self.connection.write_all(&requests).expect("the requests are sent");
        (0..depth).fold(true, |are_hits, _| {
            let answer = self.answer();
            answer.hit && answer.code == 200 && are_hits
        })
    }

    fn answer(&mut self) -> Answer {
        loop {
            if let Some(answer) = Answer::parse(&self.read) {
                self.read.drain(..answer.bytes);
                return answer;
            }
            let mut more = [0; 16 << 10];
            let read = self.connection.read(&mut more).expect("a response");
            self.read.extend_from_slice(more.get(..read).expect("at most the buffer's length"));
        }
    }

    fn median(&self, figure: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.costs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
