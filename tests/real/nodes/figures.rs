//! A rehearsal of a large cluster before a real kube-apiserver: hundreds of kubelets through Weir,
//! their steady cost, changes of permissions, a killed Weir, a restarted API server, and the same
//! kubelets without Weir.
//!
//! `WEIR_NODES` is their number (300), and `WEIR_SECONDS` how long each population is measured
//! (60).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::compare;
use super::grants::{self, Bounds};
use super::kubelet::{CHANGED, Kubelet, Seen, change_of, lag};
use super::report::{Sample, print_lags};
use super::testbed::{NAMED, PODS_PATH, Testbed, fill_node, node_name};
use crate::matrix_suite::world::Side;
use crate::suite::frames::Frames;
use crate::suite::wire::{Call, Endpoint};

pub(crate) fn rehearsal() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let nodes = number("WEIR_NODES").unwrap_or(NODES);
    let time = Duration::from_secs(number("WEIR_SECONDS").unwrap_or(SECONDS) as u64);
    let testbed = Testbed::start("");
    Runtime::new().unwrap().block_on(async {
        fill(&testbed, nodes).await;
        Rehearsal::new(testbed, nodes, time).run().await;
    });
}

struct Rehearsal {
    testbed: Testbed,
    nodes: usize,
    time: Duration,
    seen: Arc<Seen>,
    epoch: Instant,
    kubelets: JoinSet<()>,
}

impl Rehearsal {
    fn new(testbed: Testbed, nodes: usize, time: Duration) -> Self {
        let kubelets = JoinSet::new();
        Self { testbed, nodes, time, seen: Arc::default(), epoch: Instant::now(), kubelets }
    }

    async fn run(mut self) {
        eprintln!("{} nodes, {WATCHES} watches each, through Weir:", self.nodes);
        let through = self.testbed.through.clone();
        self.connect(&through).await;
        self.compare_statuses().await;
        self.steady().await;
        self.compare().await;
        self.permissions().await;
        eprintln!("Weir is killed and started:");
        self.restart_weir().await;
        eprintln!("kube-apiserver is killed, and started two seconds later:");
        self.restart_api_server().await;
        eprintln!("the same kubelets without Weir:");
        self.kubelets.shutdown().await;
        let direct = self.testbed.direct.clone();
        self.connect(&direct).await;
        self.steady().await;
    }

    fn kubelet(&self, number: usize, side: &Side) -> Kubelet {
        let node = node_name(number);
        let certificate = self.testbed.certificate(&node);
        Kubelet::new(&node, side, &certificate, &self.seen, self.epoch)
    }

    /// Connects all kubelets to a side, and waits until their watches are open.
    async fn connect(&mut self, side: &Side) {
        let kubelets: Vec<_> = (0..self.nodes).map(|number| self.kubelet(number, side)).collect();
        let (before, began) = (Sample::take(&self.testbed), Instant::now());
        for kubelet in kubelets {
            self.kubelets.spawn(kubelet.run());
        }
        self.until_open().await;
        eprintln!("  all watches are open after {:.1} s", began.elapsed().as_secs_f64());
        before.print_since(&self.testbed, true);
        self.print_answers();
    }

    async fn until_open(&self) {
        let began = Instant::now();
        while self.open() < WATCHES * self.nodes {
            if began.elapsed() > RECOVERY_MAX {
                self.print_answers();
                panic!("{} watches are open after {RECOVERY_MAX:?}", self.open());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn open(&self) -> usize {
        self.seen.open.load(Ordering::Relaxed)
    }

    fn print_answers(&self) {
        let answers = std::mem::take(&mut *self.seen.answers.lock());
        let [ended, expired, failed] =
            [&self.seen.ended, &self.seen.expired, &self.seen.failed_leases]
                .map(|count| count.swap(0, Ordering::Relaxed));
        eprintln!(
            "  responses to watches: {answers:?}; {ended} ended, {expired} with 410; {failed} leases not written"
        );
    }

    /// Sends each watch to kube-apiserver too, which must allow all of them.
    async fn compare_statuses(&self) {
        let mut statuses = BTreeMap::<u16, usize>::new();
        for number in 0..self.nodes {
            for status in self.kubelet(number, &self.testbed.direct).statuses().await {
                *statuses.entry(status).or_default() += 1;
            }
        }
        eprintln!("  kube-apiserver itself answers the same watches: {statuses:?}");
        assert_eq!(statuses, BTreeMap::from([(200, WATCHES * self.nodes)]));
    }

    /// Measures while pods change, and waits until each node has seen its last change.
    async fn steady(&self) {
        let direct = watch_pods(&self.testbed.admin(), self.epoch).await;
        self.seen.lags.lock().clear();
        direct.lock().clear();
        let changer = Changer::start(self);
        let (leases, before) = (self.leases(), Sample::take(&self.testbed));
        tokio::time::sleep(self.time).await;
        before.print_since(&self.testbed, false);
        let leases = (self.leases() - leases) as f64 / self.time.as_secs_f64();
        eprintln!("  {leases:.1} leases written a second");
        self.print_answers();
        let last = changer.stop().await;
        let began = Instant::now();
        while *self.seen.changes.lock() != last {
            assert!(began.elapsed() < RECOVERY_MAX, "a node has not seen its last change");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        eprintln!("  {} nodes saw their last change", last.len());
        print_lags("from a change to its node", std::mem::take(&mut *self.seen.lags.lock()));
        print_lags("to a watch of all pods without Weir", std::mem::take(&mut *direct.lock()));
    }

    fn leases(&self) -> usize {
        self.seen.leases.load(Ordering::Relaxed)
    }

    /// Compares some nodes' answers.
    async fn compare(&self) {
        let (mut allowed, mut refused) = (0, 0);
        for number in (0..self.nodes).step_by(self.nodes.div_ceil(COMPARED)) {
            let (node, other) = (node_name(number), node_name((number + 1) % self.nodes));
            allowed += compare::allowed(&self.testbed, &node).await;
            refused += compare::refused(&self.testbed, &node, &other).await;
        }
        eprintln!("  equal answers: {allowed} allowed, {refused} refused");
    }

    async fn permissions(&self) {
        let node = node_name(0);
        for (side, name) in ["kube-apiserver", "Weir"].into_iter().enumerate() {
            let starts = grants::starts(&self.testbed, &node, side, STARTS).await;
            let at = |percent: usize| starts.times[(STARTS - 1) * percent / 100];
            eprintln!(
                "  a new pod's secret at {name}: {} of {STARTS} refused at first; readable after {:.1?} (p50), {:.1?} (p90)",
                starts.refused,
                at(50),
                at(90)
            );
        }
        let bounds = Bounds { denied: DEFAULT_TTL, allowed: DEFAULT_TTL };
        let times = grants::come_and_go(&self.testbed, &node, bounds).await;
        eprintln!("  a secret, after kube-apiserver: {times}");
    }

    async fn restart_weir(&mut self) {
        self.print_answers();
        self.testbed.kill_weir();
        while self.open() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let began = Instant::now();
        self.testbed.start_weir();
        let before = Sample::take(&self.testbed);
        self.until_open().await;
        eprintln!("  all watches are open after {:.1} s", began.elapsed().as_secs_f64());
        before.print_since(&self.testbed, true);
        self.print_answers();
    }

    async fn restart_api_server(&mut self) {
        self.print_answers();
        self.testbed.plane.kill_apiserver();
        tokio::time::sleep(AWAY).await;
        let began = Instant::now();
        self.testbed.plane.start_apiserver();
        eprintln!("  /readyz passes after {:.1} s", began.elapsed().as_secs_f64());
        let change = change(&self.testbed.admin(), &node_name(0), self.epoch).await;
        while self.seen.changes.lock().get(&node_name(0)) != Some(&change) {
            assert!(began.elapsed() < RECOVERY_MAX, "a change does not reach its node");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        eprintln!(
            "  a change is made and reaches its node {:.1} s after the start",
            began.elapsed().as_secs_f64()
        );
        let before = Sample::take(&self.testbed);
        tokio::time::sleep(CALM).await;
        before.print_since(&self.testbed, true);
        self.print_answers();
        eprintln!("  {} of {} watches are open", self.open(), WATCHES * self.nodes);
    }
}

/// Creates the objects of all nodes.
async fn fill(testbed: &Testbed, nodes: usize) {
    let (began, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (admin, next) = (testbed.admin(), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= nodes {
                    return;
                }
                fill_node(&admin, &node_name(number)).await;
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
    eprintln!("objects are created after {:.1} s", began.elapsed().as_secs_f64());
}

/// Changes pods, a fiftieth of the number of nodes a second.
struct Changer {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<BTreeMap<String, u64>>,
}

impl Changer {
    fn start(rehearsal: &Rehearsal) -> Self {
        let (admin, nodes, epoch) = (rehearsal.testbed.admin(), rehearsal.nodes, rehearsal.epoch);
        let mut last = rehearsal.seen.changes.lock().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs_f64(50.0 / nodes as f64));
            for number in 0.. {
                ticks.tick().await;
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let node = node_name(number % nodes);
                let changed = change(&admin, &node, epoch).await;
                last.insert(node, changed);
            }
            last
        });
        Self { stop, task }
    }

    /// Stops, and returns the last change of each node.
    async fn stop(self) -> BTreeMap<String, u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Changes a pod of a node, and returns the time of the change.
async fn change(admin: &Endpoint, node: &str, epoch: Instant) -> u64 {
    let at = u64::try_from(epoch.elapsed().as_micros()).unwrap();
    let patch = json!({"metadata": {"annotations": {CHANGED: at.to_string()}}});
    let path = format!("{PODS_PATH}/{node}-pod-0");
    let answer = admin.send(&Call::json(Method::PATCH, &path, &patch)).await;
    assert_eq!(answer.status, 200, "{path}: {}", compare::text(&answer));
    at
}

/// Watches all pods without Weir, and returns the lags of changes.
async fn watch_pods(admin: &Endpoint, epoch: Instant) -> Arc<Mutex<Vec<f64>>> {
    let path = format!("/api/v1/pods?{}", compare::WATCH);
    let mut frames = Frames::new(admin.open(&Call::get(path)).await.expect("a response"));
    while frames.next().await.is_some_and(|frame| !frame.ends_state) {}
    let lags = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&lags);
    tokio::spawn(async move {
        while let Some(frame) = frames.next().await {
            if let Some(change) = change_of(&frame) {
                noted.lock().push(lag(epoch, change));
            }
        }
    });
    lags
}

const NODES: usize = 300;
const SECONDS: usize = 60;
/// A node watches its pods, itself, and each secret and config map.
const WATCHES: usize = 2 + NAMED;
/// Connections that create objects.
const WRITERS: usize = 16;
/// Nodes whose answers are compared byte by byte.
const COMPARED: usize = 5;
/// New pods whose secrets are asked for.
const STARTS: usize = 20;
/// The default of `allowTTL`, and how long a denial is cached.
const DEFAULT_TTL: Duration = Duration::from_secs(10);
const AWAY: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const RECOVERY_MAX: Duration = Duration::from_secs(300);
