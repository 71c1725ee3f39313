//! Injects the faults of a plan until its end, and repairs what is still broken then.

use std::time::Duration;

use tokio::time::Instant;
use weir::simulator::{Action, Cut};

use super::weirs::Weirs;
use super::{API, listen};
use crate::clients::Setting;
use crate::determinism;
use crate::plan::{Fault, Plan};
use crate::resources::RESOURCES;

/// Injects faults for the duration of the plan.
pub(super) async fn inject(
    plan: &Plan,
    setting: &Setting,
    weirs: &mut Weirs,
    mut rng: fastrand::Rng,
) {
    let end = Instant::now() + plan.duration;
    loop {
        let pause = plan.fault_interval.mul_f64(rng.f64() * 2.0);
        if Instant::now() + pause >= end || plan.faults.is_empty() {
            break;
        }
        tokio::time::sleep(pause).await;
        let fault = plan.faults[rng.usize(..plan.faults.len())];
        setting.trace.line(&format!("fault {fault:?}"));
        one(fault, setting, weirs, &mut rng).await;
    }
    tokio::time::sleep_until(end).await;
    setting.simulator.faults().clear();
    setting.network.thaw();
}

async fn one(fault: Fault, setting: &Setting, weirs: &mut Weirs, rng: &mut fastrand::Rng) {
    let (network, simulator) = (&setting.network, &setting.simulator);
    let resource = RESOURCES[rng.usize(..RESOURCES.len())].plural;
    let verb = if rng.bool() { "list" } else { "watch" };
    let times = rng.u32(1..5);
    match fault {
        Fault::CutClient => {
            let kind = ["informer", "reader", "writer"][rng.usize(..3)];
            network.disturb(kind, "", |link| link.cut());
        }
        Fault::CutUpstream => network.disturb("weir", "", |link| link.cut()),
        Fault::FreezeUpstream => {
            network.disturb("weir", "", |link| link.freeze(true));
            tokio::time::sleep(Duration::from_millis(rng.u64(100..20_000))).await;
            network.thaw();
        }
        Fault::CutWatches => {
            let cut = [Cut::Clean, Cut::Reset, Cut::MidFrame][rng.usize(..3)];
            simulator.faults().cut_watches(Some(resource), cut);
        }
        Fault::Compact => simulator.compact(),
        Fault::Restart => {
            network.shut(API);
            simulator.stop();
            tokio::time::sleep(Duration::from_millis(rng.u64(10..8000))).await;
            simulator.compact();
            simulator.resume();
            listen(network, simulator);
        }
        Fault::Refuse => {
            let actions = [Action::TooManyRequests(1), Action::Status(500), Action::Status(503)];
            simulator.faults().add(verb, resource, times, actions[rng.usize(..3)].clone());
        }
        Fault::Gone => simulator.faults().add("watch", resource, times, Action::Gone),
        Fault::Crash => {
            let count = weirs.names().len();
            let away = Duration::from_millis(rng.u64(1..5000));
            weirs.crash(rng.usize(..count.max(1)), away).await;
        }
        Fault::Clock => determinism::shift_wall_clock(rng.i64(-3600..3600)),
        Fault::Restore => {
            let snapshot = simulator.snapshot();
            tokio::time::sleep(Duration::from_millis(rng.u64(100..20_000))).await;
            simulator.rewind(&snapshot);
        }
        Fault::Forbid => simulator.faults().add(verb, resource, times, Action::Status(403)),
    }
}
