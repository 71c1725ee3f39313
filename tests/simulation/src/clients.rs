//! The scripts of the clients, each a task until the run is over.

mod crowd;
mod flood;
mod guest;
mod informer;
mod neighbour;
mod reader;
mod revoked;
mod watcher;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use weir::simulator::Simulator;

pub(crate) use self::informer::Informer;
use crate::caller::{Caller, NO_RESPONSE};
use crate::checker::Checker;
use crate::crowd::{FLOOD, NEIGHBOUR};
use crate::guests;
use crate::network::Network;
use crate::trace::{FNV_OFFSET, Trace, fnv};

/// The parts of the world that all scripts share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) network: Network,
    pub(crate) checker: Checker,
    pub(crate) trace: Trace,
    pub(crate) simulator: Arc<Simulator>,
    /// The hosts that clients may call.
    pub(crate) targets: Vec<String>,
    pub(crate) phase: Arc<Phase>,
    /// Whether a write may wait for as long as an API server may take: where a connection goes dead
    /// over HTTP/1.1, which has no pings.
    pub(crate) do_writes_hang: bool,
}

/// How far the run is.
#[derive(Default)]
pub(crate) struct Phase {
    is_calm: AtomicBool,
    /// How many reasons there are to hold writes.
    writes_held: AtomicUsize,
    are_requests_held: AtomicBool,
    is_settled: AtomicBool,
    is_over: AtomicBool,
}

impl Phase {
    /// Holds all writes.
    pub(crate) fn hold_writes(&self) {
        self.writes_held.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether writes are held.
    pub(crate) fn are_writes_held(&self) -> bool {
        self.writes_held.load(Ordering::Relaxed) > 0
    }

    /// Takes back one call that held them.
    pub(crate) fn release_writes(&self) {
        self.writes_held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until writes are not held.
    pub(crate) async fn until_writes(&self) {
        while self.are_writes_held() && !self.is_calm() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets the clients send nothing new, or go on. Streams stay open.
    pub(crate) fn hold_requests(&self, are_held: bool) {
        self.are_requests_held.store(are_held, Ordering::Relaxed);
    }

    /// Ends the faults and the writes.
    pub(crate) fn calm_down(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// Whether faults and writes have ended.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Says that everything has had time to recover.
    pub(crate) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// Says that something fails again.
    pub(crate) fn unsettle(&self) {
        self.is_settled.store(false, Ordering::Relaxed);
    }

    /// Whether nothing may fail any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Ends the clients.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The parts of one client.
struct Client {
    name: String,
    setting: Setting,
    caller: Caller,
    rng: fastrand::Rng,
}

impl Client {
    fn new(setting: &Setting, name: String, mut rng: fastrand::Rng) -> Self {
        let target = setting.targets[rng.usize(..setting.targets.len())].clone();
        let caller = Caller::new(setting.network.clone(), &name, &target, rng.bool());
        Self { name, setting: setting.clone(), caller, rng }
    }

    /// Returns another client with the same name and connection, for a task of its own.
    fn twin(&mut self) -> Self {
        let caller = self.caller.twin();
        let (name, setting) = (self.name.clone(), self.setting.clone());
        Self { name, setting, caller, rng: self.rng.fork() }
    }

    /// Adds an operation to the trace.
    fn trace(&self, what: &str, status: u16, cache: &str, body: &Bytes) {
        let hash = fnv(FNV_OFFSET, body);
        let (name, target, length) = (&self.name, self.caller.target(), body.len());
        self.setting.trace.line(&format!(
            "{name} {target} {what}: {status} {cache}, {length} bytes, {hash:016x}"
        ));
    }

    /// Adds a failure to the trace.
    fn trace_failure(&self, what: &str, why: &str) {
        let (name, target) = (&self.name, self.caller.target());
        self.setting.trace.line(&format!("{name} {target} {what}: failed: {why}"));
        let is_write = ["POST ", "PUT ", "DELETE "].iter().any(|verb| what.starts_with(verb));
        if why == NO_RESPONSE && !(is_write && self.setting.do_writes_hang) {
            self.setting.checker.violated("Q2", &format!("{what} at {target}: {why}"));
        }
    }

    /// Waits for a random time of this mean, and until requests are not held.
    async fn pause(&mut self, mean: Duration) {
        let share = self.rng.f64() + 0.5;
        tokio::time::sleep(mean.mul_f64(share)).await;
        while self.setting.phase.are_requests_held.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Moves to another target now and then.
    fn wander(&mut self, one_in: u32) {
        if self.rng.u32(..one_in) == 0 {
            let targets = &self.setting.targets;
            let target = targets[self.rng.usize(..targets.len())].clone();
            self.caller.retarget(&target);
        }
    }
}

/// W6: while nothing fails, a watch does not end at once without an event.
fn ended_at_once(client: &Client, path: &str) {
    if must_streams_last(client) {
        client.setting.checker.violated("W6", &format!("{path} ended at once"));
    }
}

/// W6: while nothing fails, a watch of a cache does not end before its `timeoutSeconds`.
fn ended_early(client: &Client, path: &str) {
    client.setting.checker.checked("W6");
    if must_streams_last(client) {
        let what = format!("{path} from {} ended before its time", client.caller.target());
        client.setting.checker.violated("W6", &what);
    }
}

/// Whether nothing fails, and no cache lists again for what has failed, which ends its streams.
fn must_streams_last(client: &Client) -> bool {
    let Setting { checker, phase, .. } = &client.setting;
    phase.is_settled() && !phase.is_over() && !checker.has_cause_to_relist()
}

/// Starts a reader of lists, pages and single objects.
pub(crate) fn spawn_reader(
    setting: &Setting,
    number: usize,
    rng: fastrand::Rng,
) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, format!("reader-{number}"), rng);
    tokio::spawn(reader::run(client))
}

/// Starts a user of a gateway with few permissions.
pub(crate) fn spawn_guest(
    setting: &Setting,
    number: usize,
    rng: fastrand::Rng,
) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, guests::name(number), rng);
    tokio::spawn(guest::run(client, number))
}

/// Starts a user of a gateway whose permission comes and goes.
pub(crate) fn spawn_revoked(setting: &Setting, rng: fastrand::Rng) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, guests::name(guests::GUESTS), rng);
    tokio::spawn(revoked::run(client))
}

/// Starts a client that sends more than its share.
pub(crate) fn spawn_flood(
    setting: &Setting,
    number: usize,
    rng: fastrand::Rng,
) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, crate::crowd::name(FLOOD, number), rng);
    tokio::spawn(flood::run(client))
}

/// Starts a client that behaves, beside a flood.
pub(crate) fn spawn_neighbour(
    setting: &Setting,
    number: usize,
    rng: fastrand::Rng,
) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, crate::crowd::name(NEIGHBOUR, number), rng);
    tokio::spawn(neighbour::run(client))
}

/// Starts a watcher, whose streams begin and end in all ways.
pub(crate) fn spawn_watcher(
    setting: &Setting,
    number: usize,
    rng: fastrand::Rng,
) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, format!("watcher-{number}"), rng);
    tokio::spawn(watcher::run(client))
}

/// Starts a writer that reads its own writes.
pub(crate) fn spawn_writer(
    setting: &Setting,
    number: usize,
    rng: fastrand::Rng,
) -> tokio::task::JoinHandle<()> {
    let client = Client::new(setting, format!("writer-{number}"), rng);
    tokio::spawn(writer::run(client))
}
