//! Replicas of Weir, and a load balancer's list of those that get connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::audit::AuditedPlane;
use crate::control_plane::ADMIN;
use crate::suite::wire::{Answer, Call, Endpoint};
use crate::support::Weir;

/// One Weir as a gateway.
pub(super) struct Replica {
    pub(super) weir: Weir,
    port: u16,
    ca: String,
}

/// The settings that differ between replicas.
#[derive(Clone, Default)]
pub(super) struct Settings {
    /// `cache.siblings`; empty for none.
    pub(super) siblings: String,
    /// `cache.warm`.
    pub(super) warm: &'static str,
    /// Further sections.
    pub(super) more: &'static str,
    /// `shutdownDelay` and `shutdownTimeout`, in seconds.
    pub(super) shutdown: Option<(u64, u64)>,
}

impl Replica {
    /// Starts one at a port, without waiting.
    pub(super) fn spawn(plane: &AuditedPlane, port: u16, settings: &Settings) -> Self {
        let dir = plane.credentials();
        let ca = std::fs::read_to_string(dir.join("ca.crt")).expect("the CA was written");
        let dir = dir.display();
        let shutdown = settings.shutdown.map(|(delay, timeout)| {
            format!("  shutdownDelay: {delay}s\n  shutdownTimeout: {timeout}s\n")
        });
        let siblings = match settings.siblings.as_str() {
            "" => String::new(),
            siblings => format!("  siblings: {siblings}\n"),
        };
        let config = format!(
            "server:\n{}  listeners:\n  - listen: https://127.0.0.1:{port}\n    \
             certificate: {{certificateFile: {dir}/server.crt, privateKeyFile: {dir}/server.key, \
             caFile: {dir}/ca.crt}}\n\
             authentication: {{mode: gateway}}\naudit: {{output: none}}\n\
             cache:\n  warm: [{}]\n{siblings}{}",
            shutdown.unwrap_or_default(),
            settings.warm,
            settings.more,
        );
        let weir = Weir::spawn_gateway(&plane.kubeconfig(ADMIN), &config, port, "info");
        Self { weir, port, ca }
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint::tls(([127, 0, 0, 1], self.port).into(), &self.ca, ADMIN)
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.endpoint().send(&Call::get(path)).await
    }

    /// Returns how many of its caches have this outcome.
    pub(super) fn seeds(&self, outcome: &str) -> f64 {
        self.weir.metric("weir_seeds_total", &[&format!("outcome=\"{outcome}\"")])
    }

    /// Returns the outcomes of its caches.
    pub(super) fn outcomes(&self) -> BTreeMap<String, f64> {
        self.counts("weir_seeds_total{")
    }

    /// Returns what it answered to siblings.
    pub(super) fn served(&self) -> BTreeMap<String, f64> {
        self.counts("weir_seeds_served_total{")
    }

    fn counts(&self, metric: &str) -> BTreeMap<String, f64> {
        let (_, text) = self.weir.admin("/metrics").expect("metrics are served");
        let count = |line: &str| {
            let (labels, count) = line.strip_prefix(metric)?.rsplit_once(' ')?;
            let outcome = labels.split_once("outcome=\"")?.1.split('"').next()?;
            Some((outcome.to_owned(), count.parse::<f64>().ok()?))
        };
        text.lines().filter_map(count).filter(|(_, count)| *count > 0.0).collect()
    }
}

/// The ports that get connections, as a load balancer has them.
pub(super) type Balanced = Arc<Mutex<Vec<u16>>>;

/// Three replicas, each a sibling of the others.
pub(super) struct Replicas {
    pub(super) running: Vec<Replica>,
    pub(super) balanced: Balanced,
    settings: Settings,
}

/// The times of a restart, from SIGTERM on.
pub(super) struct Restart {
    pub(super) ended: Duration,
    pub(super) exit_code: Option<i32>,
    pub(super) ready: Duration,
}

impl Replicas {
    /// Starts them one after the other, as a Deployment's first rollout does.
    pub(super) fn start(plane: &AuditedPlane, ports: &[u16], warm: &'static str) -> Self {
        let urls: Vec<_> = ports.iter().map(|port| format!("https://127.0.0.1:{port}")).collect();
        let settings = Settings {
            siblings: plane.siblings(&urls),
            warm,
            more: "",
            shutdown: Some((SHUTDOWN_DELAY.as_secs(), SHUTDOWN_TIMEOUT.as_secs())),
        };
        let mut running = Vec::new();
        for port in ports {
            let replica = Replica::spawn(plane, *port, &settings);
            replica.weir.wait_until_ready();
            running.push(replica);
        }
        Self { running, balanced: Arc::new(Mutex::new(ports.to_vec())), settings }
    }

    /// Stops one by SIGTERM, waits until it has drained, and starts another at its address. The
    /// load balancer learns late that it stops.
    pub(super) fn restart(&mut self, plane: &AuditedPlane, which: usize) -> Restart {
        let old = &mut self.running[which];
        let (port, began) = (old.port, Instant::now());
        old.weir.signal("TERM");
        std::thread::sleep(LATE);
        self.balanced.lock().retain(|it| *it != port);
        let exit_code = old.weir.wait(SHUTDOWN_DELAY + SHUTDOWN_TIMEOUT + Duration::from_secs(20));
        let ended = began.elapsed();
        let new = Replica::spawn(plane, port, &self.settings);
        new.weir.wait_until_ready();
        self.running[which] = new;
        self.balanced.lock().push(port);
        Restart { ended, exit_code, ready: began.elapsed() }
    }
}

/// After SIGTERM, until a Service sends no connections any more.
const LATE: Duration = Duration::from_secs(2);
const SHUTDOWN_DELAY: Duration = Duration::from_secs(5);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
