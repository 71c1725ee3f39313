//! Requests to a whole Weir, with flow control in each of its modes: the difference is the cost of
//! flow control. Weir, its upstream and the client run on one thread, over a socket. Only in
//! optimized builds: `cargo bench --bench counts`.

use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use weir::app::App;
use weir::config::{Config, FlowControlMode, ListenerConfig, Mode, ProxyNetworks};
use weir::simulator::{Simulator, SimulatorOptions, User};

use crate::answer::{self, Answer};
use crate::cases::Case;
use crate::token::token;

/// The requests of a case.
const TIMES: usize = 400;
/// How often each case is measured. Without optimization Weir's own timers take several times as
/// much as the requests, so that nothing is measured.
const ROUNDS: usize = if cfg!(debug_assertions) { 0 } else { 3 };
/// The time in which Weir finishes its start.
const START: Duration = Duration::from_secs(2);
const WEIR: &str = "weirs-own";
/// Answered from the cache with `resourceVersion=0`, else forwarded.
const PATH: &str = "/api/v1/namespaces/default/configmaps/cm";
const MODES: [FlowControlMode; 3] =
    [FlowControlMode::Off, FlowControlMode::Observe, FlowControlMode::Enforce];
const CACHED: [&str; 3] = [
    "GET from the cache, flow control off",
    "GET from the cache, observe",
    "GET from the cache, enforce",
];
const FORWARDED: [&str; 3] =
    ["forwarded GET, flow control off", "forwarded GET, observe", "forwarded GET, enforce"];

/// The most that flow control may add, in instructions of an optimized build.
const CACHED_MAX: f64 = 2_500.0;
const FORWARDED_MAX: f64 = 10_000.0;

/// Returns the cases of the modes, one by one, each several times.
pub(crate) fn all() -> impl Iterator<Item = Case> {
    let of = |names: [&'static str; 3], is_cached: bool| {
        MODES.into_iter().zip(names).map(move |(mode, name)| whole(name, mode, is_cached))
    };
    (0..ROUNDS).flat_map(move |_| of(CACHED, true).chain(of(FORWARDED, false)))
}

/// Returns the instructions that flow control adds to a request, by case, and their bound.
pub(crate) fn added(instructions: impl Fn(&str) -> Option<f64>) -> Vec<(&'static str, f64, f64)> {
    let mut added = Vec::new();
    for (names, most) in [(CACHED, CACHED_MAX), (FORWARDED, FORWARDED_MAX)] {
        let [off, modes @ ..] = names;
        let of_mode =
            |name: &'static str| Some((name, instructions(name)? - instructions(off)?, most));
        added.extend(modes.into_iter().filter_map(of_mode));
    }
    added
}

fn whole(name: &'static str, mode: FlowControlMode, is_cached: bool) -> Case {
    let query = if is_cached { "?resourceVersion=0" } else { "" };
    let request = answer::get(&format!("{PATH}{query}"), &token("alice"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = Rc::new(runtime.expect("a runtime"));
    let mut weir = runtime.block_on(InProcess::start(mode));
    let warm_up = async {
        let mut hits = 0;
        while hits < 20 {
            let answer = weir.send(&request).await;
            hits += usize::from(answer.hit == is_cached && answer.code == 200);
        }
        tokio::time::sleep(START).await;
    };
    runtime.block_on(warm_up);
    let run = move || {
        let weir = &mut weir;
        runtime.block_on(async {
            for _ in 0..TIMES {
                let answer = weir.send(&request).await;
                assert!(answer.hit == is_cached && answer.code == 200, "{}", answer.code);
            }
        });
    };
    Case { name, times: TIMES, run: Box::new(run) }
}

/// A gateway and its upstream.
struct InProcess {
    connection: TcpStream,
    read: Vec<u8>,
    stop: CancellationToken,
    _upstream: Simulator,
    _dir: TempDir,
}

impl InProcess {
    async fn start(mode: FlowControlMode) -> Self {
        let users = vec![User::admin(WEIR, "weir"), User::admin(&token("alice"), "alice")];
        let options = SimulatorOptions { users, ..SimulatorOptions::default() };
        let upstream = Simulator::start(options).await.expect("a simulator");
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "cm", "namespace": "default"}, "data": {"key": "x".repeat(64)}});
        upstream.store().create(object).expect("the object is created");
        let dir = tempfile::tempdir().expect("a directory");
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, upstream.kubeconfig(WEIR)).expect("a file");
        let mut config = Config::default();
        config.upstream.kubeconfig = Some(kubeconfig);
        config.admin_listen = None;
        config.authentication.mode = Mode::Gateway;
        config.flow_control.mode = mode;
        config.server.listeners = vec![ListenerConfig::Plain {
            address: ([127, 0, 0, 1], 0).into(),
            proxies: ProxyNetworks::default(),
        }];
        let app = Box::pin(App::start(config)).await.expect("weir starts");
        let address = app.listeners().first().expect("a listener").address.clone();
        let stop = CancellationToken::new();
        tokio::spawn(app.run(stop.clone()));
        let connection = TcpStream::connect(address).await.expect("weir listens");
        connection.set_nodelay(true).expect("a socket");
        Self { connection, read: Vec::new(), stop, _upstream: upstream, _dir: dir }
    }

    async fn send(&mut self, request: &[u8]) -> Answer {
        self.connection.write_all(request).await.expect("the request is sent");
        loop {
            if let Some(answer) = Answer::parse(&self.read) {
                self.read.drain(..answer.bytes);
                return answer;
            }
            self.connection.read_buf(&mut self.read).await.expect("a response");
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
