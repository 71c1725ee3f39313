//! The Weirs of a run, each a whole `App`.

mod checks;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir::app::App;
use weir::app::metrics::Metrics;
use weir::config::seams::{Connection, Dial, Seams};
use weir::config::{Config, ConsistentLists, FlowControlMode, Mode, OnRelist, VerifyMode};

use super::upstream::{self, API, WEIR};
use crate::checker::Checker;
use crate::guests::ADMINISTRATOR;
use crate::network::Network;
use crate::plan::Plan;

/// All Weirs.
pub(super) struct Weirs {
    plan: Plan,
    network: Network,
    checker: Checker,
    running: Vec<Option<Running>>,
    directory: PathBuf,
}

struct Running {
    stop: CancellationToken,
    /// Whether it can still open connections: nothing that a crashed process does may be seen.
    is_alive: Arc<AtomicBool>,
    task: JoinHandle<()>,
    metrics: Metrics,
}

impl Weirs {
    pub(super) fn new(plan: &Plan, network: &Network, checker: &Checker) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-simulation-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory is created");
        Self {
            plan: plan.clone(),
            network: network.clone(),
            checker: checker.clone(),
            running: (0..plan.weirs).map(|_| None).collect(),
            directory,
        }
    }

    /// Returns the host names.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.running.len()).map(name).collect()
    }

    pub(super) async fn start_all(&mut self) {
        for number in 0..self.running.len() {
            self.start(number).await;
        }
    }

    /// Ends a Weir, and starts another one after some time. Without a drain it ends as a killed
    /// process does.
    pub(super) async fn restart(&mut self, number: usize, away: Duration, drains: bool) {
        let Some(running) = self.running.get_mut(number).and_then(Option::take) else { return };
        self.check_alarms(&running.metrics);
        let ended = self.checker.now();
        if drains {
            running.stop.cancel();
            self.ended(running).await;
            self.network.shut(&name(number));
            tokio::time::sleep(away).await;
        } else {
            self.network.shut(&name(number));
            running.is_alive.store(false, Ordering::Relaxed);
            self.network.cut_host(&name(number));
            running.stop.cancel();
            tokio::time::sleep(away).await;
            self.ended(running).await;
        }
        self.checker.forget(&name(number), ended);
        self.start(number).await;
    }

    /// Stops all Weirs, the last one first.
    pub(super) async fn stop_all(&mut self) {
        for number in (0..self.running.len()).rev() {
            self.network.shut(&name(number));
            if let Some(running) = self.running[number].take() {
                self.check_alarms(&running.metrics);
                running.stop.cancel();
                self.ended(running).await;
            }
        }
        // Files that are left there do no harm.
        drop(std::fs::remove_dir_all(&self.directory));
    }

    /// B1: a Weir that was asked to stop ends.
    async fn ended(&self, running: Running) {
        self.checker.checked("B1");
        match tokio::time::timeout(STOP_TIMEOUT, running.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.checker.violated("B1", &format!("Weir failed: {error}")),
            Err(_) => self.checker.violated("B1", "Weir does not stop"),
        }
    }

    async fn start(&mut self, number: usize) {
        let is_alive = Arc::new(AtomicBool::new(true));
        let options = (self.config(number), self.seams(number, &is_alive));
        self.running[number] = self.run(&name(number), options, is_alive).await;
    }

    async fn run(
        &self,
        name: &str,
        (config, seams): (Config, Seams),
        is_alive: Arc<AtomicBool>,
    ) -> Option<Running> {
        let app = match App::start(config, seams).await {
            Ok(app) => app,
            Err(error) => {
                self.checker.violated("C1", &format!("no start: {error:#}"));
                return None;
            }
        };
        let listener = app.pipe_listener();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.network.listen(name, move |pipe| listener.accept(pipe, address));
        let stop = CancellationToken::new();
        let metrics = app.metrics().clone();
        let task = tokio::spawn(app.run(stop.clone()));
        Some(Running { stop, is_alive, task, metrics })
    }

    fn seams(&self, number: usize, is_alive: &Arc<AtomicBool>) -> Seams {
        let is_second = self.plan.in_a_row && number == 1;
        let upstream = if is_second { name(0) } else { API.to_owned() };
        let seams = Seams {
            dial: Some(self.dial(&name(number), upstream, is_alive)),
            verify_round: VERIFY_ROUND,
            page_size: self.plan.page_size,
            idle_timeout: self.plan.idle_timeout,
            ..Seams::default()
        };
        match self.plan.seed.is_multiple_of(2) {
            true => Seams { verify_whole_bytes: VERIFY_WHOLE_BYTES, ..seams },
            false => seams,
        }
    }

    fn config(&self, number: usize) -> Config {
        let is_second = self.plan.in_a_row && number == 1;
        let mut config = self.config_of(&name(number));
        if self.plan.listed && !is_second {
            // The balancer is the last resort.
            let hosts = (0..self.plan.servers).map(upstream::host);
            let urls = hosts.map(|host| format!("http://{host}")).collect();
            config.upstream.endpoints.static_urls = urls;
        }
        // A stream that lives through a relist skips the states in between. A Weir that reads it
        // would show states that never were.
        let is_read_by_weir = self.plan.in_a_row && number == 0;
        config.cache.on_relist = if self.plan.keeps_streams && !is_read_by_weir {
            OnRelist::KeepStreams
        } else {
            OnRelist::EndStreams
        };
        config
    }

    /// Returns the settings that all Weirs have.
    fn config_of(&self, name: &str) -> Config {
        let kubeconfig = self.directory.join(format!("{name}.kubeconfig"));
        let token = if self.plan.narrow { WEIR } else { ADMINISTRATOR };
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "http://localhost"}}],
            "users": [{"name": "c", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).expect("the kubeconfig is written");
        let mut config = Config::default();
        config.upstream.kubeconfig = Some(kubeconfig);
        config.upstream.http2 = self.plan.http2;
        if self.plan.gateway {
            config.authentication.mode = Mode::Gateway;
            config.authorization.watch_recheck = Some(WATCH_RECHECK);
        }
        if let Some(crowd) = &self.plan.crowd {
            config.flow_control.seats_per_server = Some(crowd.seats);
            if crowd.enforces {
                config.flow_control.mode = FlowControlMode::Enforce;
            }
        }
        config.admin.listen = None;
        config.server.listeners = Vec::new();
        config.server.shutdown_timeout = Duration::from_secs(10);
        config.cache.consistent_lists = consistent_lists(self.plan.seed);
        // Without it the seeds keep their meaning.
        let verify = self.plan.verify;
        config.cache.verify = if verify { VerifyMode::Enforce } else { VerifyMode::Off };
        if let Some(bytes) = self.plan.history_bytes {
            config.cache.history_bytes_max = bytes;
        }
        config
    }

    /// Connects to API servers by their names, and to `upstream` by that of the kubeconfig.
    fn dial(&self, name: &str, upstream: String, is_alive: &Arc<AtomicBool>) -> Dial {
        let (network, is_alive) = (self.network.clone(), Arc::clone(is_alive));
        let name = name.to_owned();
        Dial::new(move |host, _port| {
            let host = if host == "localhost" { upstream.clone() } else { host.to_owned() };
            let (network, name) = (network.clone(), name.clone());
            let is_alive = Arc::clone(&is_alive);
            Box::pin(async move {
                if !is_alive.load(Ordering::Relaxed) {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                let pipe = network.connect(&name, &host).await?;
                Ok(Box::new(pipe) as Box<dyn Connection>)
            })
        })
    }
}

/// Returns the setting of consistent lists. In a simulation forwarding is as quick as a proof, so
/// that `auto` alone would hardly prove any.
fn consistent_lists(seed: u64) -> ConsistentLists {
    match seed % 8 {
        2 | 6 => ConsistentLists::Always,
        4 => ConsistentLists::Auto,
        _ => ConsistentLists::Forward,
    }
}

fn name(number: usize) -> String {
    format!("weir-{number}")
}

/// How often it is looked whether a user may still watch.
const WATCH_RECHECK: Duration = Duration::from_secs(20);
/// Small caches have one page, so that each is compared twice a minute.
const VERIFY_ROUND: Duration = Duration::from_secs(30);
/// So few that most pages of more than 64 KiB have metadata alone.
const VERIFY_WHOLE_BYTES: usize = 64 * 1024;
/// The deadline of a shutdown is 10 s; a virtual minute leaves room for its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
