//! W13 and W10: in the calm, a Weir drains, and another one starts in its place. Every watch that
//! it ends has claimed all writes, so that its client resumes from there, and does not list.

use std::time::Duration;

use tokio::time::sleep;

use super::weirs::Weirs;
use super::{calm, write};
use crate::clients::{Informer, Setting};
use crate::plan::Plan;
use crate::resources::RESOURCES;

/// Restarts the first Weir, which may be the one from which the second one reads.
pub(super) async fn check(
    setting: &Setting,
    plan: &Plan,
    informers: &[Informer],
    weirs: &mut Weirs,
    mut rng: fastrand::Rng,
) {
    let Some(target) = setting.targets.first().filter(|_| plan.weirs > 0) else { return };
    // A selector matches few of these writes, and no regular bookmark follows within `SOON`. An API
    // server ends the watches that have not got the events that leave its history (W6).
    let writes = WRITES.min(plan.history_events / EVENTS_PER_WRITE);
    for resource in &RESOURCES {
        (0..writes).for_each(|_| write(setting, resource, &mut rng));
    }
    sleep(SOON).await;
    // Requests that are refused meanwhile are not judged.
    setting.phase.unsettle();
    setting.trace.line("a Weir drains in the calm");
    let written = setting.checker.now();
    let drained: Vec<&Informer> = informers
        .iter()
        .filter(|informer| {
            let progress = informer.progress.lock();
            progress.is_running && progress.target.as_ref() == Some(target)
        })
        .collect();
    weirs.restart(0, AWAY, true).await;
    for informer in drained {
        setting.checker.checked("W13");
        let progress = informer.progress.lock();
        let last = setting.checker.last_received(&progress.selection, written);
        if progress.place < last {
            let (name, path, place) = (&informer.name, progress.selection.path(""), progress.place);
            let what = format!(
                "{name} resumes {path} from {place} after a drain, and the last write was at {last}"
            );
            setting.checker.violated("W13", &what);
        }
    }
    sleep(RESUMED).await;
    calm::check_informers(setting, informers);
}

const WRITES: usize = 4;
/// The events of a deletion and a creation.
const EVENTS_PER_WRITE: usize = 2;
/// The time in which events arrive (`world::delivery`).
const SOON: Duration = Duration::from_secs(3);
const AWAY: Duration = Duration::from_secs(1);
/// The first back-offs of an informer.
const RESUMED: Duration = Duration::from_secs(15);
