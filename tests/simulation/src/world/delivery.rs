//! C1: in the calm, every open stream brings an event within seconds, also after one short break.
//! W12: it brings a bookmark within a minute.
//!
//! A wake-up that is lost shows itself only here: a later event, or the next bookmark, brings what
//! was late. So does a back-off that outlives its failures.

use std::time::Duration;

use tokio::time::sleep;
use weir::simulator::Cut;

use super::write;
use crate::clients::{Informer, Setting};
use crate::resources::RESOURCES;
use crate::write_log::Moment;

/// Looks whether events arrive soon; then breaks all watches of the API server once, and looks
/// again.
pub(super) async fn check(setting: &Setting, informers: &[Informer], mut rng: fastrand::Rng) {
    events_arrive(setting, informers, &mut rng).await;
    let written = setting.checker.now();
    sleep(BACKOFF_RESET).await;
    bookmarks_arrive(setting, informers, written);
    // The watches end as at their time-out. No stream of a client ends for it (W6).
    setting.trace.line("all watches end");
    setting.simulator.faults().cut_watches(None, Cut::Clean);
    sleep(RESUMED).await;
    // A request that must be fresh ends the back-off of a reflector.
    setting.phase.hold_requests(true);
    sleep(ANSWERED).await;
    setting.trace.line("all watches break");
    setting.simulator.faults().cut_watches(None, Cut::Reset);
    sleep(RESUMED).await;
    events_arrive(setting, informers, &mut rng).await;
    setting.phase.hold_requests(false);
}

/// W12: looks whether the streams that have been open since `written` claim the last write before
/// it. One from a cache of a single namespace needs to claim only those there: the writes elsewhere
/// reach that cache with the upstream's next bookmark, and its clients with theirs after that.
fn bookmarks_arrive(setting: &Setting, informers: &[Informer], written: Moment) {
    for informer in informers {
        let progress = informer.progress.lock();
        if !progress.is_running || progress.opened > written.time {
            continue;
        }
        setting.checker.checked("W12");
        let last = setting.checker.last_received(&progress.selection, written);
        if progress.place < last {
            let (name, path, place) = (&informer.name, progress.selection.path(""), progress.place);
            let what = format!(
                "{name} would resume {path} from {place}, a minute after the last write at {last}"
            );
            setting.checker.violated("W12", &what);
        }
    }
}

/// Writes to each resource, and looks whether all informers have it soon, some times.
async fn events_arrive(setting: &Setting, informers: &[Informer], rng: &mut fastrand::Rng) {
    for _ in 0..ROUNDS {
        for resource in &RESOURCES {
            write(setting, resource, rng);
        }
        sleep(SOON).await;
        let now = setting.checker.now();
        for informer in informers {
            setting.checker.checked("C1");
            let progress = informer.progress.lock();
            // A stream that has just been opened may still be behind.
            if !progress.is_running || progress.opened.elapsed() < SOON {
                continue;
            }
            let selection = &progress.selection;
            if setting.checker.store_at(selection, now.epoch, now.revision) != progress.store {
                let (name, path) = (&informer.name, selection.path(""));
                let what = format!("{name} lacks events of {path} after {SOON:?}");
                setting.checker.violated("C1", &what);
            }
        }
    }
}

const ROUNDS: usize = 8;
/// The latency of all connections in a row, and of a turn of each task, are far below.
const SOON: Duration = Duration::from_secs(3);
/// With the calm before, far more than the time after which a reflector's back-off is reset. Each
/// stream gets a bookmark in it.
const BACKOFF_RESET: Duration = Duration::from_secs(65);
/// The time in which requests that were sent before are answered.
const ANSWERED: Duration = Duration::from_secs(5);
/// The time of the first wait of a back-off, and of a proof that the history is the same.
const RESUMED: Duration = Duration::from_secs(10);
