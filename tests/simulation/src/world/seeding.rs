//! SD: a Weir that starts beside warm siblings fills its caches from them, costs the API servers no
//! list, and sends on no cache of a resource of which nothing was compared.

use std::time::Duration;

use weir::api::seed::{CODEC_VERSION, SeedRequest};
use weir::simulator::LoggedRequest;

use super::faults::write_pair;
use super::weirs::{SiblingSet, Weirs};
use crate::caller::Caller;
use crate::checker::{Form, ReadAt, ReadOperation, Walk};
use crate::clients::Setting;
use crate::plan::Plan;
use crate::resources::{RESOURCES, Resource, Selection};

/// A cache of a Weir.
#[derive(Clone, Copy)]
struct Cache {
    resource: &'static Resource,
    form: Form,
}

/// Restarts one Weir after the other, while nothing fails, and looks how it fills its caches.
pub(super) async fn check(
    setting: &Setting,
    plan: &Plan,
    weirs: &mut Weirs,
    mut rng: fastrand::Rng,
) {
    let Some(siblings) = &plan.siblings else { return };
    // After a list that cannot be proved the API server is listed, and no other sibling asked.
    weirs.set_siblings(SiblingSet::Weirs);
    for number in 0..plan.weirs {
        if !are_warm(setting).await {
            return;
        }
        // The newest events are in the lists, and in the watches that follow.
        for resource in &RESOURCES {
            write_pair(setting, resource, None, &mut rng);
        }
        tokio::time::sleep(ARRIVED).await;
        setting.simulator.requests().reset();
        restart(setting, weirs, number, &mut rng).await;
        read_all(setting, &setting.targets[number]).await;
        if is_filled_by_siblings(setting, weirs, number) {
            sends_nothing_unverified(setting, weirs, number).await;
        }
    }
    if siblings.has_wrong_weir {
        weirs.set_siblings(SiblingSet::Wrong);
        let number = rng.usize(..plan.weirs);
        is_found(setting, plan, weirs, number, &mut rng).await;
    }
}

async fn restart(setting: &Setting, weirs: &mut Weirs, number: usize, rng: &mut fastrand::Rng) {
    let away = Duration::from_millis(rng.u64(1..5000));
    let drains = rng.bool();
    let (target, siblings) = (&setting.targets[number], weirs.siblings());
    setting.trace.line(&format!("{target} restarts, it drains: {drains}, siblings: {siblings:?}"));
    weirs.restart(number, away, drains).await;
}

/// A sibling whose errors the short comparison may miss, as it may in large collections, is found
/// by the long one: after a while no answer is wrong.
async fn is_found(
    setting: &Setting,
    plan: &Plan,
    weirs: &mut Weirs,
    number: usize,
    rng: &mut fastrand::Rng,
) {
    // Three resources at once would be three quarantines.
    let resource = &RESOURCES[rng.usize(..RESOURCES.len())];
    write_pair(setting, resource, Some(plan.servers), rng);
    tokio::time::sleep(ARRIVED).await;
    // Events that were not lost by then arrive.
    setting.simulator.faults().clear();
    restart(setting, weirs, number, rng).await;
    let target = &setting.targets[number];
    // These answers may be wrong.
    for cache in caches() {
        let mut caller = Caller::new(setting.network.clone(), CLIENT, target, false);
        drop(caller.get_as(&cache.path(), cache.form.accept()).await);
    }
    let adopted = seeds(weirs, number, "adopted");
    tokio::time::sleep(FOUND_WITHIN).await;
    let wrong = seeds(weirs, number, "wrong");
    let different = seeds(weirs, number, "different");
    setting.trace.line(&format!("{adopted} adopted, {wrong} wrong, {different} different"));
    (0..wrong).for_each(|_| setting.checker.checked("SD (found)"));
    read_all(setting, target).await;
}

/// Returns how many caches of a Weir were filled from a sibling, or were not, by outcome.
fn seeds(weirs: &Weirs, number: usize, outcome: &str) -> usize {
    let counters = weirs.counters(number, "weir_seeds_total", &[("outcome", outcome)]);
    counters.iter().map(|(_, count)| *count as usize).sum()
}

/// Whether every Weir has all caches, and sends them. The clients are gone, and nothing fails.
async fn are_warm(setting: &Setting) -> bool {
    for target in &setting.targets {
        for cache in caches() {
            let mut waited = Duration::ZERO;
            while let Err(why) = ask(setting, target, cache).await {
                if waited >= WARM_WITHIN {
                    let path = cache.path();
                    let what = format!("{target} does not send {path} for {waited:?}: {why}");
                    setting.checker.violated("SD", &what);
                    return false;
                }
                waited += ASKED_EVERY;
                tokio::time::sleep(ASKED_EVERY).await;
            }
        }
    }
    true
}

/// Reads from a cache, and asks for it as a sibling does.
async fn ask(setting: &Setting, target: &str, cache: Cache) -> Result<(), String> {
    let mut caller = Caller::new(setting.network.clone(), CLIENT, target, false);
    let answer = caller.get_as(&cache.path(), cache.form.accept()).await?;
    if !answer.is_hit() {
        return Err(format!("{} {}", answer.status, answer.cache));
    }
    let sent = caller.seed(&cache.path(), cache.form.accept(), &REQUEST).await?;
    if sent.status == 200 { Ok(()) } else { Err(sent.text()) }
}

/// Reads from all caches at once. Each must answer, and each answer must be right.
async fn read_all(setting: &Setting, target: &str) {
    let mut reads = Vec::new();
    for cache in caches() {
        let selection = Selection::all(cache.resource);
        let operation = ReadOperation {
            target: target.to_owned(),
            floor: setting.checker.floor(target, &selection, cache.form),
            selection,
            read_at: ReadAt::Any,
            form: cache.form,
            begun: setting.checker.now(),
        };
        let mut caller = Caller::new(setting.network.clone(), CLIENT, target, false);
        let read =
            tokio::spawn(async move { caller.get_as(&cache.path(), cache.form.accept()).await });
        reads.push((operation, read));
    }
    for (operation, read) in reads {
        setting.checker.checked("SD");
        let path = operation.selection.path("");
        match read.await {
            Ok(Ok(answer)) if answer.is_hit() && answer.status == 200 => {
                setting.checker.list(&operation, &mut Walk::default(), &answer);
            }
            Ok(Ok(answer)) => {
                let what = format!("{path} from {target}: {} {}", answer.status, answer.cache);
                setting.checker.violated("SD", &what);
            }
            Ok(Err(why)) => setting.checker.violated("SD", &format!("{path}: {why}")),
            Err(error) => setting.checker.violated("SD", &format!("{path}: {error}")),
        }
    }
}

/// Whether no list reached the API servers, and each cache came from a sibling.
fn is_filled_by_siblings(setting: &Setting, weirs: &Weirs, number: usize) -> bool {
    let target = &setting.targets[number];
    let lists: Vec<String> =
        setting.simulator.requests().recent().iter().filter_map(list).collect();
    let adopted = seeds(weirs, number, "adopted");
    let all = caches().count();
    setting.trace.line(&format!("{target} has {adopted} caches from siblings, lists: {lists:?}"));
    setting.checker.checked("SD");
    let is_filled = lists.is_empty() && adopted == all;
    if !is_filled {
        let outcomes = weirs.counters(number, "weir_seeds_total", &[]);
        let what = format!(
            "{target} filled {adopted} of {all} caches from warm siblings {outcomes:?}, and sent {lists:?}"
        );
        setting.checker.violated("SD", &what);
    }
    is_filled
}

/// A cache that came from a sibling is not sent while nothing of its resource was compared. Any
/// page in any form counts here, so that less is checked than Weir promises.
async fn sends_nothing_unverified(setting: &Setting, weirs: &Weirs, number: usize) {
    let target = &setting.targets[number];
    for cache in caches() {
        let mut caller = Caller::new(setting.network.clone(), CLIENT, target, false);
        let sent = caller.seed(&cache.path(), cache.form.accept(), &REQUEST).await;
        let is_compared = ["page", "bytes"].into_iter().any(|check| {
            let labels =
                [("resource", cache.resource.plural), ("check", check), ("outcome", "equal")];
            let compared = weirs.counters(number, "weir_cache_checks_total", &labels);
            compared.iter().any(|(_, count)| *count > 0.0)
        });
        if is_compared {
            continue;
        }
        setting.checker.checked("SD (unverified)");
        if sent.is_ok_and(|sent| sent.status == 200) {
            let what = format!("{target} sends {}, which nothing has compared", cache.path());
            setting.checker.violated("SD", &what);
        }
    }
}

/// Returns the text of a request that reads a whole collection of one of the resources. A page at
/// one resourceVersion compares, one object is a probe, and a watch with a selector learns the form
/// of bookmarks.
fn list(request: &LoggedRequest) -> Option<String> {
    let LoggedRequest { verb, resource, query, path, .. } = request;
    let has = |text: &str| query.contains(text);
    let is_whole = match verb.as_str() {
        "list" => {
            let is_probe = has("limit=1&") || query.ends_with("limit=1");
            !has("resourceVersionMatch=Exact") && !has("continue=") && !is_probe
        }
        "watch" => has("sendInitialEvents=true") && !has("labelSelector"),
        _ => false,
    };
    let is_known = RESOURCES.iter().any(|known| known.plural == resource);
    (is_whole && is_known).then(|| format!("{verb} {path}?{query}"))
}

/// Returns the caches that the clients of a run use. Metadata alone comes from those in JSON.
fn caches() -> impl Iterator<Item = Cache> {
    let forms = [Form::Json, Form::Protobuf];
    let all = RESOURCES.iter().flat_map(move |resource| forms.map(|form| Cache { resource, form }));
    all.filter(|cache| cache.form != Form::Protobuf || cache.resource.has_protobuf())
}

impl Cache {
    fn path(self) -> String {
        Selection::all(self.resource).path("resourceVersion=0")
    }
}

const CLIENT: &str = "judge";
const REQUEST: SeedRequest = SeedRequest { codec: CODEC_VERSION, at: None };
/// The latency of all connections in a row is far below.
const ARRIVED: Duration = Duration::from_secs(1);
/// A page a second, for all caches of a Weir; a difference is confirmed, and the cache is listed.
const FOUND_WITHIN: Duration = Duration::from_secs(30);
/// A round of the comparison takes 30 s, and a page a second for all caches of a Weir.
const WARM_WITHIN: Duration = Duration::from_secs(180);
const ASKED_EVERY: Duration = Duration::from_secs(5);
