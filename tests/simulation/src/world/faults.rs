//! Injects the faults of a plan until its end, and repairs what is still broken then.
//!
//! A fault that lasts is ended by a task of its own, so that others strike meanwhile.

use std::time::Duration;

use tokio::time::Instant;
use weir::simulator::{Action, Cut};

use super::upstream::{self, host, listen_at};
use super::weirs::Weirs;
use crate::clients::Setting;
use crate::crowd;
use crate::determinism;
use crate::plan::{Fault, Plan};
use crate::resources::{self, RESOURCES};

/// Injects faults for the duration of the plan.
pub(super) async fn inject(plan: &Plan, setting: &Setting, weirs: &mut Weirs) {
    let begun = Instant::now();
    for strike in &plan.faults {
        tokio::time::sleep_until(begun + Duration::from_millis(strike.at_ms)).await;
        if begun.elapsed() >= plan.duration {
            break;
        }
        let fault = strike.fault;
        // While a restore is to be noticed, nothing is written, and each Weir can ask.
        if setting.phase.are_writes_held()
            && matches!(fault, Fault::BlackHole | Fault::Redefine | Fault::Revoke)
        {
            continue;
        }
        setting.trace.line(&format!("fault {fault:?}"));
        if fault != Fault::ChangePlan {
            setting.checker.broke();
        }
        let mut rng = fastrand::Rng::with_seed(strike.seed);
        setting.checker.struck(fault.loses_history());
        match fault {
            Fault::Crash | Fault::Drain => {
                let number = rng.usize(..weirs.names().len().max(1));
                let away = Duration::from_millis(rng.u64(1..5000));
                weirs.restart(number, away, fault == Fault::Drain).await;
            }
            Fault::Restart | Fault::RestartAll => restart(fault, plan, setting, rng).await,
            Fault::Restore | Fault::Swap => change_state(fault, plan, setting, rng).await,
            Fault::Lag => lag(plan, setting, rng),
            Fault::Revoke => revoke(setting, rng),
            Fault::ChangePlan => crowd::change_plan(&setting.simulator.store(), &mut rng),
            fault if fault.is_of_weir() => connection(fault, setting, rng).await,
            fault => api_server(fault, plan, setting, rng),
        }
        setting.checker.struck(fault.loses_history());
        if fault != Fault::ChangePlan {
            setting.checker.broke();
        }
    }
    tokio::time::sleep_until(begun + plan.duration).await;
    setting.phase.until_writes().await;
    if plan.narrow {
        upstream::grant(&setting.simulator.store());
    }
    setting.simulator.faults().clear();
    setting.simulator.release_definitions();
    (0..plan.servers).for_each(|server| setting.simulator.resume_caches(server));
    setting.network.thaw();
    let lasts = plan.faults.iter().any(|strike| strike.fault.loses_history());
    setting.checker.struck(lasts);
}

/// Breaks a connection of a Weir to its upstream.
async fn connection(fault: Fault, setting: &Setting, mut rng: fastrand::Rng) {
    let network = &setting.network;
    let seconds = |most: u64, rng: &mut fastrand::Rng| Duration::from_millis(rng.u64(100..most));
    match fault {
        Fault::CutUpstream => network.disturb("weir", "", |link| link.cut()),
        Fault::HalfClose => network.disturb("weir", "", |link| link.half_close()),
        Fault::FreezeUpstream => {
            network.disturb("weir", "", |link| link.freeze(true));
            tokio::time::sleep(seconds(20_000, &mut rng)).await;
            network.thaw();
        }
        Fault::BlackHole => {
            // Both directions, or that of the answers alone. The clients' patience ends it.
            let both = rng.bool();
            network.disturb("weir", "", |link| match both {
                true => link.freeze(true),
                false => link.freeze_from(1),
            });
        }
        Fault::GoAwayLost => {
            let faults = setting.simulator.faults();
            faults.add("*", "*", rng.u32(1..3), Action::EndConnection);
            tokio::time::sleep(seconds(5000, &mut rng)).await;
            network.disturb("weir", "", |link| link.cut());
        }
        _ => {}
    }
}

/// Lets API servers answer wrongly, or end what they serve.
fn api_server(fault: Fault, plan: &Plan, setting: &Setting, mut rng: fastrand::Rng) {
    let simulator = &setting.simulator;
    let (faults, plural) = (simulator.faults(), resource(&mut rng));
    let verb = if rng.bool() { "list" } else { "watch" };
    let times = rng.u32(1..5);
    match fault {
        Fault::CutClient => {
            let kind = ["informer", "reader", "watcher", "writer"][rng.usize(..4)];
            setting.network.disturb(kind, "", |link| link.cut());
        }
        Fault::CutWatches => {
            let cut = [Cut::Clean, Cut::Reset, Cut::MidFrame][rng.usize(..3)];
            faults.cut_watches(Some(plural), cut);
        }
        Fault::Compact => simulator.compact(),
        Fault::Refuse => {
            let actions = [Action::TooManyRequests(1), Action::Status(500), Action::Status(503)];
            let action = actions[rng.usize(..3)].clone();
            // A write that failed may have been done, so that it may not be sent again (Q3).
            if plan.crowd.is_some() && matches!(action, Action::Status(500)) {
                faults.add("create", plural, times, action.clone());
            }
            faults.add(verb, plural, times, action);
        }
        Fault::Forbid => {
            faults.add("*", plural, u32::MAX, Action::Status(403));
            faults.cut_watches(rng.bool().then_some(plural), Cut::Clean);
            let lasts = Duration::from_millis(rng.u64(10..10_000));
            later(setting, lasts, |setting| setting.simulator.faults().clear());
        }
        Fault::Garbage => {
            faults.add("watch", plural, 1, Action::Garbage);
            faults.cut_watches(Some(plural), Cut::Clean);
        }
        Fault::Gone => faults.add("watch", plural, times, Action::Gone),
        Fault::GoneList => faults.add("list", plural, times, Action::Gone),
        Fault::GoAway => faults.add("*", "*", times, Action::EndConnection),
        Fault::LateHeads => {
            let action = if rng.bool() {
                Action::Delay(Duration::from_millis(rng.u64(100..20_000)))
            } else {
                Action::DelayAnswer(Duration::from_millis(rng.u64(100..3000)))
            };
            faults.add(verb, plural, times, action);
        }
        Fault::Redefine => {
            let definition = resources::definition(rng.u32(1..));
            // API servers may learn of it later than it is stored.
            if rng.bool() {
                simulator.hold_definitions();
                let delay = Duration::from_millis(rng.u64(10..3000));
                later(setting, delay, |setting| setting.simulator.release_definitions());
            }
            // An update that changes nothing is no write.
            drop(simulator.store().update(definition));
        }
        Fault::Clock => determinism::shift_wall_clock(rng.i64(-3600..3600)),
        _ => {}
    }
}

/// Restarts one API server, or all: it is away, then fills its caches, and has no history.
async fn restart(fault: Fault, plan: &Plan, setting: &Setting, mut rng: fastrand::Rng) {
    let one = rng.usize(..plan.servers);
    let servers = if fault == Fault::Restart { one..one + 1 } else { 0..plan.servers };
    // Nobody notices that revisions went back while all are away.
    if fault == Fault::RestartAll && setting.phase.are_writes_held() {
        setting.phase.hold_writes();
        later(setting, NOTICED_WITHIN + AWAY_MAX, |setting| setting.phase.release_writes());
    }
    for server in servers.clone() {
        setting.network.shut(&host(server));
        setting.network.cut_host(&host(server));
    }
    tokio::time::sleep(Duration::from_millis(rng.u64(10..8000))).await;
    let refusals = [Action::TooManyRequests(1), Action::Status(403), Action::Status(503)];
    let refusal = refusals[rng.usize(..3)].clone();
    setting.simulator.faults().add("*", "*", rng.u32(..10), refusal);
    for server in servers {
        setting.simulator.restart_caches(server);
        listen_at(&setting.network, &setting.simulator, server);
    }
}

/// Restores etcd, or puts another cluster in its place.
async fn change_state(fault: Fault, plan: &Plan, setting: &Setting, mut rng: fastrand::Rng) {
    let mut bump = if rng.bool() { 0 } else { rng.u64(1..10_000) };
    let snapshot = if fault == Fault::Swap {
        upstream::simulator(plan, &mut rng).snapshot()
    } else {
        let snapshot = setting.simulator.snapshot();
        tokio::time::sleep(Duration::from_millis(rng.u64(100..20_000))).await;
        snapshot
    };
    // If the new revision is also one of the lost history, nobody can distinguish them. A restore
    // without a higher revision is noticed while writes are held.
    let lost = setting.checker.present_revisions();
    if (fault == Fault::Swap || bump > 0) && lost.contains(&(snapshot.revision() + bump)) {
        bump = lost.end() - snapshot.revision() + 1;
    }
    // Either way the API servers are started again.
    (0..plan.servers).for_each(|server| setting.network.cut_host(&host(server)));
    setting.simulator.rewind(&snapshot.bumped(bump));
    if bump == 0 {
        // Nobody can notice that revisions went back once they have reached the lost ones again.
        setting.phase.hold_writes();
        later(setting, NOTICED_WITHIN, |setting| setting.phase.release_writes());
    }
}

/// Lets the watch caches of one API server stay where they are for up to a minute.
fn lag(plan: &Plan, setting: &Setting, mut rng: fastrand::Rng) {
    let server = rng.usize(..plan.servers);
    setting.simulator.pause_caches(server);
    let lasts = Duration::from_millis(rng.u64(100..60_000));
    later(setting, lasts, move |setting| {
        setting.checker.struck(true);
        setting.simulator.resume_caches(server);
    });
}

/// Takes the permission to read the whole cluster from the Weirs, until some minutes have passed.
fn revoke(setting: &Setting, mut rng: fastrand::Rng) {
    upstream::revoke(&setting.simulator.store());
    // An open watch would go on.
    setting.simulator.faults().cut_watches(None, Cut::Clean);
    let lasts = Duration::from_secs(rng.u64(60..240));
    let setting = setting.clone();
    tokio::spawn(async move {
        tokio::time::sleep(lasts).await;
        setting.phase.until_writes().await;
        if !setting.phase.is_calm() {
            upstream::grant(&setting.simulator.store());
        }
    });
}

/// Does something after a time, unless the run is calm then.
fn later(setting: &Setting, after: Duration, what: impl FnOnce(&Setting) + Send + 'static) {
    let setting = setting.clone();
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        if !setting.phase.is_calm() {
            what(&setting);
        }
    });
}

fn resource(rng: &mut fastrand::Rng) -> &'static str {
    RESOURCES[rng.usize(..RESOURCES.len())].plural
}

/// How long Weir needs to ask after its connections were cut.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);
/// The longest restart of an API server.
const AWAY_MAX: Duration = Duration::from_secs(8);
