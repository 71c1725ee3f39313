//! One run: API servers, Weirs before them, clients, faults; then calm, and the last checks.

mod calm;
mod delivery;
mod faults;
mod restart;
mod upstream;
mod weirs;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::weirs::Weirs;
use crate::checker::{Checker, Violation};
use crate::clients::{self, Informer, Phase, Setting};
use crate::network::Network;
use crate::pipe::CutPoint;
use crate::plan::{ClientKind, Plan};
use crate::resources::{self, NAMESPACES, RESOURCES, Resource};
use crate::trace::Trace;
use crate::write_log::WriteLog;

pub(crate) use self::upstream::API;

/// The result of a run.
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
    let begun = Instant::now();
    trace.line(&plan.settings());
    resources::vary(plan.varied);
    let mut rng = fastrand::Rng::with_seed(plan.seed ^ 0x5eed);
    let simulator = Arc::new(upstream::simulator(plan, &mut rng));
    let cut_point = Arc::new(cut_point);
    let network = Network::new(rng.fork(), trace.clone(), Arc::clone(&cut_point));
    upstream::listen(&network, &simulator, plan);
    let write_log = WriteLog::new(Arc::clone(&simulator));
    let checker = Checker::new(write_log, trace.clone(), plan);
    let mut weirs = Weirs::new(plan, &network, &checker);
    weirs.start_all().await;
    let setting = Setting {
        network: network.clone(),
        checker: checker.clone(),
        trace: trace.clone(),
        simulator: Arc::clone(&simulator),
        targets: if plan.weirs == 0 { vec![API.to_owned()] } else { weirs.names() },
        phase: Arc::new(Phase::default()),
        do_writes_hang: !plan.http2 && plan.has_dead_connections(),
    };
    let (informers, mut tasks) = start_clients(plan, &setting);
    tasks.push(churn(plan, &setting));
    faults::inject(plan, &setting, &mut weirs).await;

    trace.line("calm");
    cut_point.finish();
    setting.phase.calm_down();
    tokio::time::sleep(RECOVERY).await;
    checker.check_load(plan, &simulator.requests().flights());
    setting.phase.settle();
    calm::check_upstream(&setting, plan).await;
    delivery::check(&setting, &informers, rng.fork()).await;
    calm::check_informers(&setting, &informers);
    calm::check_caches(&setting).await;
    restart::check(&setting, plan, &informers, &mut weirs, rng.fork()).await;
    setting.phase.finish();
    end(tasks, &checker).await;
    if plan.weirs > 0 {
        tokio::time::sleep(LEAVING).await;
        weirs.check_bounds();
    }
    weirs.stop_all().await;
    trace.line("the end");
    Outcome {
        violations: checker.violations(),
        counts: checker.counts(),
        cut_points: cut_point.count(),
        virtual_time: begun.elapsed(),
    }
}

fn start_clients(plan: &Plan, setting: &Setting) -> (Vec<Informer>, Vec<JoinHandle<()>>) {
    let (mut informers, mut tasks) = (Vec::new(), Vec::new());
    for client in &plan.clients {
        let rng = fastrand::Rng::with_seed(client.seed);
        tasks.push(match client.kind {
            ClientKind::Informer => {
                let (informer, task) = Informer::spawn(setting, client.number, rng);
                informers.push(informer);
                task
            }
            ClientKind::Reader => clients::spawn_reader(setting, client.number, rng),
            ClientKind::Watcher => clients::spawn_watcher(setting, client.number, rng),
            ClientKind::Flood => clients::spawn_flood(setting, client.number, rng),
            ClientKind::Neighbour => clients::spawn_neighbour(setting, client.number, rng),
            ClientKind::Guest => clients::spawn_guest(setting, client.number, rng),
            ClientKind::Revoked => clients::spawn_revoked(setting, rng),
            ClientKind::Writer => clients::spawn_writer(setting, client.number, rng),
        });
    }
    (informers, tasks)
}

/// Writes what the plan says.
fn churn(plan: &Plan, setting: &Setting) -> JoinHandle<()> {
    let (setting, writes) = (setting.clone(), plan.writes.clone());
    let begun = Instant::now();
    tokio::spawn(async move {
        for burst in writes {
            tokio::time::sleep_until(begun + Duration::from_millis(burst.at_ms)).await;
            setting.phase.until_writes().await;
            if setting.phase.is_calm() {
                return;
            }
            let mut rng = fastrand::Rng::with_seed(burst.seed);
            let resource = &RESOURCES[rng.usize(..RESOURCES.len())];
            if burst.count > EMPTIED_BY && resources::is_varied() {
                empty_namespace(&setting, resource, &mut rng);
            }
            for _ in 0..burst.count {
                write(&setting, resource, &mut rng);
            }
        }
    })
}

/// Creates, replaces or deletes an object; fails if it exists, or does not.
pub(super) fn write(setting: &Setting, resource: &Resource, rng: &mut fastrand::Rng) {
    let object = resource.object(rng);
    let word = |pointer: &str| {
        object.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let (namespace, name) = (word("/metadata/namespace"), word("/metadata/name"));
    let api = setting.simulator.store();
    let delete = || api.delete(resource.api_version, resource.plural, &namespace, &name).is_ok();
    let kinds = if resources::is_varied() { 6 } else { 5 };
    let written = match rng.u8(..kinds) {
        0 | 1 => api.create(object).is_ok(),
        2 | 3 => api.update(object).is_ok(),
        4 => delete(),
        // Another object of the same name follows at once.
        _ => delete() && api.create(object).is_ok(),
    };
    let revision = api.revision();
    setting
        .trace
        .line(&format!("write {} {namespace}/{name}: {written}, {revision}", resource.plural));
}

/// Deletes all objects of a namespace. Others of the same names follow.
fn empty_namespace(setting: &Setting, resource: &Resource, rng: &mut fastrand::Rng) {
    let api = setting.simulator.store();
    let namespace = NAMESPACES[rng.usize(..NAMESPACES.len())];
    for name in resource.names() {
        drop(api.delete(resource.api_version, resource.plural, namespace, &name));
    }
    setting.trace.line(&format!("{namespace} has no {}, {}", resource.plural, api.revision()));
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

/// Larger bursts begin with an empty namespace.
const EMPTIED_BY: usize = 30;
/// The longest back-off of a client and of a reflector, and a proof of freshness.
const RECOVERY: Duration = Duration::from_secs(60);
/// How long after the last client Weir may hold anything for them.
const LEAVING: Duration = Duration::from_secs(30);
