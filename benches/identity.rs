//! What identity costs: CPU and wall time of one cached GET in sidecar mode, in gateway mode with a token whose review and decision are
//! cached, and the same with the audit log on. `cargo bench --bench identity`.
//!
//! Not by criterion: the figure asked for is CPU time, and the ways are compared by turns in one run, so that what else the machine does falls
//! on all alike. The client, the simulator and Weir share the process; the client's part is the same in all, so that differences are
//! Weir's, and the simulator is asked nothing but the reviews of every ten seconds.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where something fails"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use weir::app::App;
use weir::config::{AuditOutput, AuditRule, Config, ListenerConfig, Mode};
use weir::simulator::{Simulator, SimulatorOptions, User};

const WEIR: &str = "weirs-own";
const ALICE: &str = "alices";
const PATH: &str = "/api/v1/namespaces/ns1/configmaps/cm";
const ROUNDS: usize = 15;
const REQUESTS: u32 = 4_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let users = vec![User::admin(WEIR, "weir"), User::admin(ALICE, "alice")];
    let options = SimulatorOptions { users, ..SimulatorOptions::default() };
    let upstream = Simulator::start(options).await.unwrap();
    let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "ns1"}, "data": {"key": "x".repeat(1024)}});
    upstream.store().create(object).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let sidecar = Way::open("sidecar", &upstream, dir.path(), |_| {}).await;
    let gateway = |config: &mut Config| config.authentication.mode = Mode::Gateway;
    let token = Way::open("gateway, token", &upstream, dir.path(), gateway).await;
    let log = dir.path().join("audit.log");
    let audited = Way::open("gateway, token, audit", &upstream, dir.path(), |config| {
        gateway(config);
        config.audit.output = Some(AuditOutput::File(log));
        config.audit.rules = vec![AuditRule::default()];
    });
    let mut ways = [sidecar, token, audited.await];
    for round in 0..=ROUNDS {
        for way in &mut ways {
            let cost = way.requests().await;
            if round > 0 {
                way.costs.push(cost);
            }
        }
    }
    let base = ways[0].median(|cost| cost.0);
    println!(
        "one GET of 1 KiB from the cache, one HTTP/1.1 connection, median of {ROUNDS} rounds of {REQUESTS}"
    );
    println!("{:24} {:>12} {:>12} {:>8}", "", "CPU us", "wall us", "CPU");
    for way in &mut ways {
        let (cpu, wall) = (way.median(|cost| cost.0), way.median(|cost| cost.1));
        println!("{:24} {cpu:>12.1} {wall:>12.1} {:>7.2}x", way.name, cpu / base);
    }
}

/// A Weir, and a connection to it.
struct Way {
    name: &'static str,
    connection: TcpStream,
    request: Vec<u8>,
    /// CPU and wall time of a request, in microseconds.
    costs: Vec<(f64, f64)>,
    _stop: tokio_util::sync::DropGuard,
}

impl Way {
    async fn open(
        name: &'static str,
        upstream: &Simulator,
        dir: &Path,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, upstream.kubeconfig(WEIR)).unwrap();
        let mut config = Config::default();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        config.upstream.kubeconfig = Some(kubeconfig);
        config.admin_listen = None;
        config.server.listeners = vec![ListenerConfig::Plain { address }];
        adjust(&mut config);
        let app = App::start(config).await.unwrap();
        let address = app.listeners()[0].address.clone();
        let stop = CancellationToken::new();
        tokio::spawn(app.run(stop.clone()));
        let request = format!(
            "GET {PATH}?resourceVersion=0 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ALICE}\r\n\r\n"
        );
        let connection = TcpStream::connect(address).await.unwrap();
        connection.set_nodelay(true).unwrap();
        let request = request.into_bytes();
        let _stop = stop.drop_guard();
        let mut way = Self { name, connection, request, costs: Vec::new(), _stop };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !way.ask().await {
            assert!(Instant::now() < deadline, "{name}: nothing comes from the cache");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        way
    }

    async fn requests(&mut self) -> (f64, f64) {
        let (cpu, wall) = (cpu(), Instant::now());
        for _ in 0..REQUESTS {
            assert!(self.ask().await, "{}: not from the cache", self.name);
        }
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(REQUESTS);
        (each(self::cpu() - cpu), each(wall.elapsed()))
    }

    /// One request; whether the cache answered.
    async fn ask(&mut self) -> bool {
        self.connection.write_all(&self.request).await.unwrap();
        let mut bytes = Vec::with_capacity(4096);
        loop {
            self.connection.read_buf(&mut bytes).await.unwrap();
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            while bytes.len() < end + 4 + length {
                self.connection.read_buf(&mut bytes).await.unwrap();
            }
            return head.contains("x-weir-cache: hit");
        }
    }

    fn median(&mut self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let mut all: Vec<f64> = self.costs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

/// CPU time of this process so far, as the scheduler counts it.
fn cpu() -> Duration {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let Ok(text) = std::fs::read_to_string(task.unwrap().path().join("schedstat")) else {
            continue;
        };
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Duration::from_nanos(sum)
}
