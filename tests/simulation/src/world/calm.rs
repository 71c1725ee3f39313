//! The last checks: C1, every client has caught up, and every cache answers; D1, in the bytes of
//! the present definition; U1, what Weirs ask of the API servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::API;
use crate::caller::Caller;
use crate::clients::{Informer, Setting};
use crate::plan::Plan;
use crate::resources::{RESOURCES, Selection};

/// C1: every informer has a stream, and the latest state.
pub(super) fn check_informers(setting: &Setting, informers: &[Informer]) {
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
pub(super) async fn check_caches(setting: &Setting) {
    for target in setting.targets.iter().filter(|target| *target != API) {
        for resource in &RESOURCES {
            setting.checker.checked("C1");
            let mut caller = Caller::new(setting.network.clone(), "judge", target, false);
            let selection = Selection::every_object(resource);
            let mut cache = String::new();
            // The first request may start the cache. A consistent list may be forwarded.
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
            check_definition(setting, &mut caller, &selection).await;
        }
    }
}

/// D1: long after the last change of a definition a cache shows the bytes that the API servers show
/// by the present one.
async fn check_definition(setting: &Setting, caller: &mut Caller, selection: &Selection) {
    let path = selection.path("resourceVersion=0");
    let cached = caller.get(&path).await;
    let mut direct = Caller::new(setting.network.clone(), "judge", API, false);
    // Without a resourceVersion: the watch cache of an API server may be idle, and behind.
    let upstream = direct.get(&selection.path("")).await;
    let (Ok(cached), Ok(upstream)) = (cached, upstream) else { return };
    if !cached.is_hit() || upstream.status != 200 {
        return;
    }
    let path = format!("{path} from {}", caller.target());
    setting.checker.same_bytes(&path, &cached, &upstream);
}

/// U1: while nothing fails, each Weir has one watch of its own for a resource in a representation
/// and a scope, besides short ones for proofs of freshness. It lists a resource only for such a
/// proof, and opens a watch only when one has ended or for a proof. No watch of a client stays open
/// at an API server: a cache takes it over.
pub(super) async fn check_upstream(setting: &Setting, plan: &Plan) {
    let before = setting.simulator.requests().counts();
    let mut most = BTreeMap::new();
    // By path and query, the seconds for which clients' watches have been open upstream.
    let mut forwarded: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..CALM_SECONDS {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (watched, count) in own_watches(setting) {
            let open: &mut usize = most.entry(watched).or_default();
            *open = count.max(*open);
        }
        let open = forwarded_watches(setting).into_iter();
        forwarded = open
            .map(|watched| {
                let seconds = forwarded.get(&watched).map_or(1, |seconds| seconds + 1);
                (watched, seconds)
            })
            .collect();
    }
    if plan.weirs == 0 {
        return;
    }
    setting.checker.checked("U1");
    if let Some((watched, seconds)) =
        forwarded.iter().find(|(_, forwarded_seconds)| **forwarded_seconds > TAKEN_OVER_SECONDS)
    {
        let what = format!("a watch of a client, {watched}, is forwarded for {seconds} s");
        setting.checker.violated("U1", &what);
    }
    for (watched, open) in most {
        setting.checker.checked("U1");
        if open > plan.weirs {
            let what = format!("{open} watches of {watched} at once for {} Weirs", plan.weirs);
            setting.checker.violated("U1", &what);
        }
    }
    let now = setting.simulator.requests().counts();
    for resource in &RESOURCES {
        for verb in ["list", "watch"] {
            setting.checker.checked("U1");
            let key = (verb.to_owned(), resource.plural.to_owned());
            let count = |counts: &BTreeMap<_, u64>| counts.get(&key).copied().unwrap_or(0);
            let sent = count(&now) - count(&before);
            let most = CALM_REQUESTS_MAX * plan.clients.len() as u64;
            if sent > most {
                let what = format!("{sent} times {verb} {} in the calm", resource.plural);
                setting.checker.violated("U1", &what);
            }
        }
    }
}

/// Counts the open watches of Weirs' reflectors by path and representation.
fn own_watches(setting: &Setting) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for watch in setting.simulator.requests().open_watches() {
        let seconds = watch.query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="));
        let is_short =
            seconds.and_then(|seconds| seconds.parse().ok()).is_some_and(|s: u64| s < 60);
        if watch.user_agent.starts_with("weir/") && !is_short {
            *counts.entry(format!("{} as {}", watch.path, watch.accept)).or_default() += 1;
        }
    }
    counts
}

/// Returns the watches of clients that are open at the API servers.
fn forwarded_watches(setting: &Setting) -> BTreeSet<String> {
    let open = setting.simulator.requests().open_watches().into_iter();
    let clients = open.filter(|watch| !watch.user_agent.starts_with("weir/"));
    clients.map(|watch| format!("{}?{}", watch.path, watch.query)).collect()
}

/// A client without a stream for longer, while nothing fails, is starved.
const STARVED: Duration = Duration::from_secs(60);
/// For each client: a reader reads every two seconds, a third of it is forwarded or proved, each
/// for one of three resources.
const CALM_REQUESTS_MAX: u64 = 20;
/// A cache takes over within four seconds of becoming ready (`cache::registry`).
const TAKEN_OVER_SECONDS: u64 = 30;
/// Longer than the longest interval of bookmarks.
const CALM_SECONDS: u64 = 65;
