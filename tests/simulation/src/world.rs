//! One run: an API server, Weirs before it, clients, faults; then calm, and the last checks.

mod faults;
mod weirs;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use weir::simulator::{Simulator, SimulatorOptions};

use self::weirs::Weirs;
use crate::caller::Caller;
use crate::checker::{Checker, Violation};
use crate::clients::{self, Informer, Phase, Setting};
use crate::network::Network;
use crate::pipe::CutPoint;
use crate::plan::Plan;
use crate::resources::{self, NAMESPACES, RESOURCES, Resource, Selection};
use crate::trace::Trace;
use crate::write_log::WriteLog;

/// The host name of the API server.
pub(crate) const API: &str = "api";

/// What a run has shown.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: std::collections::BTreeMap<&'static str, u64>,
    /// How many points there are at which a connection to the upstream can be cut.
    pub(crate) cut_points: u64,
    /// The virtual time that it took.
    pub(crate) virtual_time: Duration,
}

/// Runs a plan.
pub(crate) async fn run(plan: &Plan, trace: &Trace, cut_point: CutPoint) -> Outcome {
    let begun = tokio::time::Instant::now();
    trace.line(&format!("{plan:?}"));
    let mut rng = fastrand::Rng::with_seed(plan.seed ^ 0x5eed);
    let simulator = Arc::new(simulator(plan));
    seed_objects(&simulator, &mut rng);
    let cut_point = Arc::new(cut_point);
    let network = Network::new(rng.fork(), trace.clone(), Arc::clone(&cut_point));
    listen(&network, &simulator);
    let write_log = WriteLog::new(Arc::clone(&simulator));
    let checker = Checker::new(write_log, trace.clone(), plan.relists());
    let mut weirs = Weirs::new(plan, &network, &checker);
    weirs.start_all().await;
    let setting = Setting {
        network: network.clone(),
        checker: checker.clone(),
        trace: trace.clone(),
        simulator: Arc::clone(&simulator),
        targets: if plan.weirs == 0 { vec![API.to_owned()] } else { weirs.names() },
        phase: Arc::new(Phase::default()),
    };
    let mut tasks = Vec::new();
    let mut informers = Vec::new();
    for number in 0..plan.informers {
        let (informer, task) = Informer::spawn(&setting, number, rng.fork());
        informers.push(informer);
        tasks.push(task);
    }
    for number in 0..plan.readers {
        tasks.push(clients::spawn_reader(&setting, number, rng.fork()));
    }
    for number in 0..plan.writers {
        tasks.push(clients::spawn_writer(&setting, number, rng.fork()));
    }
    tasks.push(churn(&setting, plan.write_interval, rng.fork()));
    faults::inject(plan, &setting, &mut weirs, rng.fork()).await;

    trace.line("calm");
    setting.phase.calm_down();
    tokio::time::sleep(RECOVERY).await;
    setting.phase.settle();
    tokio::time::sleep(CALM).await;
    check_informers(&setting, &informers);
    check_caches(&setting).await;
    setting.phase.finish();
    end(tasks, &checker).await;
    weirs.stop_all().await;
    trace.line("the end");
    Outcome {
        violations: checker.violations(),
        counts: checker.counts(),
        cut_points: cut_point.count(),
        virtual_time: begun.elapsed(),
    }
}

fn simulator(plan: &Plan) -> Simulator {
    let options = SimulatorOptions {
        history_events_max: plan.history_events,
        bookmark_interval: plan.bookmark_interval,
        records_writes: true,
        ..SimulatorOptions::default()
    };
    Simulator::without_listener(options).expect("a simulator without TLS starts")
}

/// Lets the API server accept connections.
fn listen(network: &Network, simulator: &Arc<Simulator>) {
    let simulator = Arc::clone(simulator);
    network.listen(API, move |pipe| {
        simulator.accept(pipe);
        true
    });
}

fn seed_objects(simulator: &Simulator, rng: &mut fastrand::Rng) {
    let api = simulator.store();
    for namespace in NAMESPACES {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace}});
        api.create(object).expect("a namespace is created");
    }
    api.create(resources::definition()).expect("a definition is created");
    for resource in &RESOURCES {
        for _ in 0..rng.usize(..30) {
            // The name may exist already.
            drop(api.create(resource.object(rng)));
        }
    }
}

/// Writes at random until it is calm.
fn churn(setting: &Setting, interval: Duration, mut rng: fastrand::Rng) -> JoinHandle<()> {
    let setting = setting.clone();
    tokio::spawn(async move {
        while !setting.phase.is_calm() {
            tokio::time::sleep(interval.mul_f64(rng.f64() * 2.0)).await;
            let resource = &RESOURCES[rng.usize(..RESOURCES.len())];
            // A burst overtakes readers, and short histories.
            let burst = if rng.u8(..20) == 0 { rng.usize(..60) } else { 1 };
            for _ in 0..burst {
                write(&setting, resource, &mut rng);
            }
        }
    })
}

/// Creates, replaces or deletes an object; fails if it exists, or does not.
fn write(setting: &Setting, resource: &Resource, rng: &mut fastrand::Rng) {
    let object = resource.object(rng);
    let word = |pointer: &str| {
        object.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let (namespace, name) = (word("/metadata/namespace"), word("/metadata/name"));
    let api = setting.simulator.store();
    let written = match rng.u8(..5) {
        0 | 1 => api.create(object).is_ok(),
        2 | 3 => api.update(object).is_ok(),
        _ => api.delete(resource.api_version, resource.plural, &namespace, &name).is_ok(),
    };
    let revision = api.revision();
    setting
        .trace
        .line(&format!("write {} {namespace}/{name}: {written}, {revision}", resource.plural));
}

/// C1: every informer has a stream, and the latest state.
fn check_informers(setting: &Setting, informers: &[Informer]) {
    let now = setting.checker.now();
    for informer in informers {
        setting.checker.checked("C1");
        let progress = informer.progress.lock();
        let path = progress.selection.path("");
        let stopped = progress.stopped.map(|stopped| stopped.elapsed());
        if stopped.is_some_and(|stopped| stopped > STARVED) {
            let what = format!("{} has no stream of {path} for {stopped:?}", informer.name);
            setting.checker.violated("C1", &what);
        }
        if progress.is_running {
            let (selection, store) = (&progress.selection, &progress.store);
            let expected = setting.checker.store_at(selection, now.epoch, now.revision);
            if expected != *store {
                let missing =
                    expected.iter().filter(|(key, bytes)| store.get(*key) != Some(*bytes));
                let (missing, extra) = (missing.count(), store.len());
                let what = format!(
                    "{} of {path} lacks {missing} of {} objects, and has {extra}",
                    informer.name,
                    expected.len()
                );
                setting.checker.violated("C1", &what);
            }
        }
    }
}

/// C1: every cache answers again, as Weir alone was asked.
async fn check_caches(setting: &Setting) {
    for target in setting.targets.iter().filter(|target| *target != API) {
        for resource in &RESOURCES {
            setting.checker.checked("C1");
            let mut caller = Caller::new(setting.network.clone(), "judge", target, false);
            let selection = Selection { resource, namespace: None, label: None };
            let mut cache = String::new();
            // The first request may start the cache. A consistent list is always forwarded.
            let path = selection.path("resourceVersion=0");
            for _ in 0..3 {
                cache = match caller.get(&path).await {
                    Ok(answer) => format!("{} {}", answer.cache, answer.status),
                    Err(why) => why,
                };
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            if !cache.starts_with("hit") {
                let what = format!(
                    "{} of {target} is not answered by the cache: {cache}",
                    resource.plural
                );
                setting.checker.violated("C1", &what);
            }
        }
    }
}

/// Waits for the clients' ends.
async fn end(tasks: Vec<JoinHandle<()>>, checker: &Checker) {
    for task in tasks {
        let abort = task.abort_handle();
        match tokio::time::timeout(Duration::from_secs(180), task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => checker.violated("B1", &format!("a client failed: {error}")),
            Err(_) => {
                abort.abort();
                checker.violated("B1", "a client does not end");
            }
        }
    }
}

/// The longest back-off of a client and of a reflector, and a proof of freshness.
const RECOVERY: Duration = Duration::from_secs(60);
const CALM: Duration = Duration::from_secs(65);
/// A client without a stream for longer, while nothing fails, is starved.
const STARVED: Duration = Duration::from_secs(60);
