//! Proofs of freshness, for watches and lists that must show a fresh state.
//!
//! Informers start with a watch that must reflect every write acknowledged before the request
//! (`docs/decisions/proofs-of-freshness.md`), and so must a list whose resourceVersion is unset
//! ([`consistent_list`]). Such a request is served only with a proof that the state is fresh, and
//! is forwarded without one.
//!
//! A probe returns the needed resourceVersion P. Then the cheapest proof that can arrive soon is
//! used:
//!
//! * `held`: the cache has reached P.
//! * `event`: an event or bookmark that arrives soon brings the cache to P.
//! * `list` ([`list`]): a small collection is listed a second time at some L ≥ P, and the watch
//!   begins with that state.
//! * `short-watch` ([`short_watch`]): for a large collection, the bookmark of a second watch from
//!   the held resourceVersion, at an API server that has reached P, shows that there are no events
//!   up to P.
//!
//! The second list is a LIST and not a watch-list. Both return the state at L from the upstream's
//! watch cache equally fast, but every upstream supports LIST. An upstream with watch-lists can ask
//! etcd for its progress, so its list is requested as not older than P; the probe has just brought
//! its watch cache to P. An older upstream could stay below P for long, so its list is requested as
//! consistent.
//!
//! Nothing that a client was shown is taken back: once a watch may have begun with a listed state,
//! every read of this cache shows that state, until the cache itself has come that far.
//!
//! Invariants: the responses on which a proof rests were requested after the client's request
//! arrived, or they reach P. They count only if the cluster is still the same
//! ([`cluster_identity`](crate::cache::cluster_identity)). At most one list of a cache is in
//! progress, and few short watches. Requests that arrive meanwhile share them and check what they
//! returned.
//!
//! No locks but those of [`state::ProofState`].

pub(crate) mod consistent_list;
pub(crate) mod demand;
mod list;
pub(crate) mod listed_state;
mod short_watch;
pub(crate) mod short_watches;
pub(crate) mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::progress::{CATCH_UP_TIMEOUT, Probed};
use crate::cache::proof::listed_state::ListProof;
pub use crate::cache::proof::listed_state::ListedState;
pub(crate) use crate::cache::proof::short_watch::is_current;
use crate::cache::proof::short_watches::Next;
use crate::cache::refusal::Refusal;
use crate::tasks::single_flight::{RunLost, SharedOutcome, SingleFlight};

/// A state with which a watch may begin.
#[derive(Clone, Debug)]
pub enum FreshState {
    /// The present state of the cache.
    Held,
    /// A state that was listed beside the cache's stream. The cache may not have reached it yet.
    Listed(Arc<ListedState>),
}

/// Finds a state that is not older than `requested`, or than this call for `None`. Waits at most
/// `within`, and counts the step that brought the proof. Cancel safe: shared work goes on.
pub(crate) async fn fresh_state(
    cached: &Arc<CachedResource>,
    requested: Option<ResourceVersion>,
    within: Duration,
) -> Result<FreshState, Refusal> {
    let began = Instant::now();
    let proof = prove(cached, requested, || true);
    let proved = timeout(within, proof).await.unwrap_or(Err(Refusal::NotFresh));
    let step = proved.as_ref().map_or("forwarded", |(_, step)| *step);
    cached.series.proof(step, began.elapsed());
    proved.map(|(state, _)| match state {
        FreshState::Held => newest_state(cached),
        listed @ FreshState::Listed(_) => listed,
    })
}

/// Returns the newest state that this cache may have shown to a client.
pub(crate) fn newest_state(cached: &CachedResource) -> FreshState {
    cached.gate.listed().map_or(FreshState::Held, FreshState::Listed)
}

/// A fresh state, and the step that proved it fresh.
type ProofResult = Result<(FreshState, &'static str), Refusal>;

/// Proves the state fresh. Only while `may_list` does the proof ask the upstream for more than a
/// probe: for a list or a short watch, which cost about as much as the request itself.
async fn prove(
    cached: &Arc<CachedResource>,
    requested: Option<ResourceVersion>,
    may_list: impl Fn() -> bool,
) -> ProofResult {
    if requested.is_some() && cached.gate.resource_version() >= requested {
        return Ok((FreshState::Held, "held"));
    }
    let upstream = probe(cached).await?;
    let needed = requested.unwrap_or(upstream);
    if needed > upstream {
        // The upstream has not reached it either, and decides how to answer.
        return Err(Refusal::NotFresh);
    }
    // The probe may have reached a history that has passed the held one after a rewind.
    if !cached.is_joined().await {
        return Err(Refusal::NotFresh);
    }
    if cached.gate.resource_version() >= Some(needed) {
        return Ok((FreshState::Held, "held"));
    }
    while !may_list() {
        if cached.reaches_within(needed, CATCH_UP_TIMEOUT).await {
            return Ok((FreshState::Held, "event"));
        }
    }
    if list::is_small(cached) {
        by_list(cached, needed).await
    } else {
        by_watch(cached, needed).await
    }
}

/// Returns the upstream's resourceVersion at some moment after this call.
pub(crate) async fn probe(cached: &CachedResource) -> Result<ResourceVersion, Refusal> {
    let probed = probed(cached, cached.probe_gap()).await?;
    Ok(probed.page.resource_version)
}

/// Returns the response to a probe that was sent after this call, and at least `gap` after the one
/// before it.
async fn probed(cached: &CachedResource, gap: Duration) -> Result<Arc<Probed>, Refusal> {
    let (held, generation) = (cached.gate.resource_version(), cached.writer.generation());
    let probed = cached.proofs.probes.probed(gap).await.map_err(|_failed| Refusal::NotFresh)?;
    let upstream = probed.page.resource_version;
    cached.counts.observe(&cached.counted(), generation, &probed.page);
    cached.context.history.observe(upstream);
    // A consistent list is at least as new as everything that the cache held before the list was
    // sent. An older one is a sign of a rewound history, which the reflector must confirm.
    if held > Some(upstream) {
        cached.requests.verify.notify_one();
        return Err(Refusal::NotFresh);
    }
    if !cached.lifecycle.is_watching() {
        cached.requests.resume.notify_one();
    }
    Ok(probed)
}

/// Returns a probe's response for a client, if the API server itself has sent it, and that of the
/// known cluster. All that wait for the same probe share it, and what is asked about it.
pub(crate) async fn first_page(cached: &CachedResource) -> Result<Arc<Probed>, Refusal> {
    let generation = cached.writer.generation();
    let probed = probed(cached, HERD_PROBE_GAP).await?;
    cached.learned.set_warnings(cached.upstream.warnings());
    let is_local = *probed.is_local.get_or_init(|| cached.upstream.is_local()).await;
    let counts = is_local && cached.is_same_cluster(generation).await;
    counts.then_some(probed).ok_or(Refusal::NotFresh)
}

/// Waits for a second list, or for an event that makes it unneeded.
async fn by_list(cached: &Arc<CachedResource>, needed: ResourceVersion) -> ProofResult {
    let mut progress = cached.watch_cache.progress();
    loop {
        let list = || list::list(Arc::clone(cached), needed);
        let listing = join(cached, &cached.proofs.lists, list);
        let listed = tokio::select! {
            biased;
            Ok(_) = progress.wait_for(|held| *held >= Some(needed)) => {
                return Ok((FreshState::Held, "event"));
            }
            listed = listing.wait() => listed,
        };
        match listed {
            Ok(ListProof::Listed(listed)) if listed.resource_version() >= needed => {
                return Ok((FreshState::Listed(listed), "list"));
            }
            // An earlier request started it for a lower resourceVersion. The next list is new
            // enough.
            Ok(ListProof::Listed(_) | ListProof::Overtaken) => {}
            Ok(ListProof::Failed) | Err(RunLost) => return Err(Refusal::NotFresh),
        }
    }
}

/// Waits for an event, then for a short watch.
async fn by_watch(cached: &Arc<CachedResource>, needed: ResourceVersion) -> ProofResult {
    if cached.reaches_within(needed, CATCH_UP_TIMEOUT).await {
        return Ok((FreshState::Held, "event"));
    }
    let mut progress = cached.watch_cache.progress();
    loop {
        let watching = short_watch_for(cached, needed);
        let has_bookmark = tokio::select! {
            biased;
            Ok(_) = progress.wait_for(|held| *held >= Some(needed)) => {
                let proven = cached.proofs.proven_by_watch.load(Ordering::Relaxed) >= needed.0;
                return Ok((FreshState::Held, if proven { "short-watch" } else { "event" }));
            }
            has_bookmark = watching => has_bookmark,
        };
        // An API server that cannot be made to catch up may send a bookmark from before the probe.
        // The next watch reaches `needed`, if there is time for one.
        if !has_bookmark && *progress.borrow() < Some(needed) {
            return Err(Refusal::NotFresh);
        }
    }
}

/// Brings a cache that is behind to what it needs, and opens it, for as long as its reflector runs.
pub(crate) async fn catch_up(cached: Arc<CachedResource>) {
    while let Some(needed) = cached.gate.needed().await {
        // After a short watch that failed, the cache's own watch may bring an event.
        let has_come = by_watch(&cached, needed).await.is_ok()
            || cached.reaches_within(needed, CATCH_UP_RETRY).await;
        if has_come {
            cached.gate.settle(false);
        }
    }
}

/// Waits for the outcome of a short watch that can show `needed`, and returns whether its bookmark
/// arrived. Starts the watch if there is none.
async fn short_watch_for(cached: &Arc<CachedResource>, needed: ResourceVersion) -> bool {
    loop {
        let generation = cached.writer.generation();
        let mut outcome = match cached.proofs.short_watches.plan(needed, generation) {
            Next::Join(outcome) => outcome,
            Next::Start(at, sender, outcome) => {
                let (watched, cancel) = (Arc::clone(cached), cached.lifecycle.cancel.clone());
                let work = async move {
                    sender.send_replace(Some(short_watch::short_watch(watched, at).await));
                };
                cached.context.tasks.spawn(cancel.run_until_cancelled_owned(work));
                outcome
            }
            Next::Wait(until) => {
                sleep_until(until).await;
                continue;
            }
        };
        let outcome = outcome.wait_for(Option::is_some).await;
        return outcome.is_ok_and(|outcome| *outcome == Some(true));
    }
}

/// Joins the work in flight, or starts it as a task that is cancelled with the cache.
fn join<T, F>(
    cached: &CachedResource,
    flights: &SingleFlight<(), T>,
    start: impl FnOnce() -> F,
) -> SharedOutcome<T>
where
    T: Send + Sync + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (outcome, guard) = flights.join(&());
    if let Some(guard) = guard {
        let (work, cancel) = (start(), cached.lifecycle.cancel.clone());
        let work = async move { guard.complete(work.await) };
        cached.context.tasks.spawn(cancel.run_until_cancelled_owned(work));
    }
    outcome
}

/// The least time between two probes whose responses clients get.
const HERD_PROBE_GAP: Duration = Duration::from_secs(1);
/// The pause after a failed attempt to catch up with the upstream.
const CATCH_UP_RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
