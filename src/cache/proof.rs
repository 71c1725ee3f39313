//! Proof that a watch which must be fresh may begin: steps 1 to 4 of the design, section 5. Without one it is forwarded (step 5).
//!
//! A probe tells the resourceVersion P that is needed. Then the cheapest proof that can be had soon is taken:
//!
//! * `held`: the cache has reached P.
//! * `event`: what was on its way brings it there.
//! * `list` ([`list`]): a small collection is listed a second time at some L not below P, and the watch begins with that state.
//! * `short-watch` ([`short_watch`]): of a large one a second watch from what is held tells in a bookmark that there is nothing up to P.
//!
//! The second list is a LIST and not a watch-list: both give the state at L, from the upstream's own cache and as fast, but every upstream
//! understands a LIST. Where progress can be asked of the upstream's cache (it has watch-list) it is asked for not older than P, which the
//! probe has just brought that cache to; older upstreams could stay below P for long, and are asked for a consistent one.
//!
//! The pool keeps watches apart from requests, so with several instances of the upstream the short watch may reach another one than the
//! probe did. Its bookmark is a proof all the same: an instance tells how far it is itself. One that lags tells less than P, and the
//! request is forwarded.
//!
//! Invariants: what a proof rests on was asked for after the request arrived, or reached P. At most one list and one short watch of a cache are under
//! way; whoever comes meanwhile shares them, and looks at what they brought. No lock here but a [`SingleFlight`]'s.

mod list;
mod short_watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::progress::{CATCH_UP_TIMEOUT, Probe};
use crate::cache::proof::list::ListProof;
pub use crate::cache::proof::list::ListedState;
pub(crate) use crate::cache::proof::short_watch::is_current;
use crate::cache::reflector;
use crate::cache::refusal::Refusal;
use crate::codec::list::ListPage;
use crate::tasks::single_flight::{RunLost, SharedOutcome, SingleFlight};
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{
    ListRequest, ListWatch, UpstreamEvent, WatchRequest, WatchStream,
};

/// A state with which a watch may begin.
#[derive(Clone, Debug)]
pub enum FreshState {
    /// The cache's present one.
    Held,
    /// One that was listed besides the cache's stream; the cache may not have reached it.
    Listed(Arc<ListedState>),
}

/// What proofs ask of an upstream, for one resource, representation and scope: a lister-watcher behind an object.
pub(crate) trait DynListWatch: Probe {
    /// [`ListWatch::list`].
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, UpstreamError>>;

    /// [`ListWatch::watch`].
    fn watch(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<Box<dyn DynWatchStream>, UpstreamError>>;
}

/// A running watch behind an object.
pub(crate) trait DynWatchStream: Send {
    /// [`WatchStream::next`].
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<UpstreamEvent>>, UpstreamError>>;
}

impl<L: ListWatch> Probe for L {
    fn probe(&self) -> BoxFuture<'_, Result<ResourceVersion, UpstreamError>> {
        reflector::probe(self).boxed()
    }
}

impl<L: ListWatch> DynListWatch for L {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, UpstreamError>> {
        ListWatch::list(self, request).boxed()
    }

    fn watch(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<Box<dyn DynWatchStream>, UpstreamError>> {
        let watch = ListWatch::watch(self, request);
        async { Ok(Box::new(watch.await?) as Box<dyn DynWatchStream>) }.boxed()
    }
}

impl<W: WatchStream> DynWatchStream for W {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<UpstreamEvent>>, UpstreamError>> {
        WatchStream::next(self).boxed()
    }
}

/// The proofs of one cache.
pub(crate) struct Proofs {
    upstream: Arc<dyn DynListWatch>,
    lists: SingleFlight<(), ListProof>,
    /// Whether a short watch told how far the upstream is.
    watches: SingleFlight<(), bool>,
    /// How far short watches have brought the cache.
    proven_by_watch: AtomicU64,
}

impl Proofs {
    /// None yet, from this upstream.
    pub(crate) fn new(upstream: Arc<dyn DynListWatch>) -> Self {
        let (lists, watches) = (SingleFlight::default(), SingleFlight::default());
        Self { upstream, lists, watches, proven_by_watch: AtomicU64::new(0) }
    }
}

/// Finds a state that is not older than `asked`, or for `None` than this call, and counts how. Cancel safe: what others share goes on.
pub(crate) async fn fresh_state(
    cached: &Arc<CachedResource>,
    requested: Option<ResourceVersion>,
    within: Duration,
) -> Result<FreshState, Refusal> {
    let began = Instant::now();
    let proved = timeout(within, prove(cached, requested)).await.unwrap_or(Err(Refusal::NotFresh));
    let step = proved.as_ref().map_or("forwarded", |(_, step)| *step);
    cached.series.proof(step, began.elapsed());
    proved.map(|(state, _)| state)
}

type ProofResult = Result<(FreshState, &'static str), Refusal>;

async fn prove(cached: &Arc<CachedResource>, requested: Option<ResourceVersion>) -> ProofResult {
    let held = *cached.watch_cache.progress().borrow();
    if requested.is_some() && held >= requested {
        return Ok((FreshState::Held, "held"));
    }
    let revision = probe(cached).await?;
    let needed = requested.unwrap_or(revision);
    if needed > revision {
        // Of the future: what becomes of it the upstream says.
        return Err(Refusal::NotFresh);
    }
    if *cached.watch_cache.progress().borrow() >= Some(needed) {
        return Ok((FreshState::Held, "held"));
    }
    if list::is_small(cached) {
        by_list(cached, needed).await
    } else {
        by_watch(cached, needed).await
    }
}

/// The upstream's resourceVersion as of some moment after this call.
pub(crate) async fn probe(cached: &CachedResource) -> Result<ResourceVersion, Refusal> {
    let held = *cached.watch_cache.progress().borrow();
    let revision = cached.probes.resource_version().await.map_err(|_failed| Refusal::NotFresh)?;
    cached.context.observe(revision);
    // A consistent list is at least as new as anything that was here before it was sent. One that is older tells of a rewound history
    // (design, section 6), which the reflector must confirm.
    if held > Some(revision) {
        cached.verify_requested.notify_one();
        return Err(Refusal::NotFresh);
    }
    Ok(revision)
}

/// Step 3, beside step 2.
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
            // It was asked for by somebody who came before; the next is new enough.
            Ok(ListProof::Listed(_) | ListProof::Overtaken) => {}
            Ok(ListProof::Failed) | Err(RunLost) => return Err(Refusal::NotFresh),
        }
    }
}

/// Step 2, then step 4.
async fn by_watch(cached: &Arc<CachedResource>, needed: ResourceVersion) -> ProofResult {
    let mut progress = cached.watch_cache.progress();
    if reaches_within(&mut progress, needed, CATCH_UP_TIMEOUT).await {
        return Ok((FreshState::Held, "event"));
    }
    loop {
        let watch = || short_watch::short_watch(Arc::clone(cached));
        let watching = join(cached, &cached.proofs.watches, watch);
        let proven = tokio::select! {
            biased;
            Ok(_) = progress.wait_for(|held| *held >= Some(needed)) => {
                let proven = cached.proofs.proven_by_watch.load(Ordering::Relaxed) >= needed.0;
                return Ok((FreshState::Held, if proven { "short-watch" } else { "event" }));
            }
            outcome = watching.wait() => outcome == Ok(true),
        };
        // A bookmark from before the probe does not reach; the next one does, if the time lasts.
        if !proven && *progress.borrow() < Some(needed) {
            return Err(Refusal::NotFresh);
        }
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
        let (work, cancel) = (start(), cached.cancel.clone());
        let work = async move { guard.complete(work.await) };
        cached.context.tasks.spawn(cancel.run_until_cancelled_owned(work));
    }
    outcome
}

/// Whether the cache comes to be there so soon.
async fn reaches_within(
    progress: &mut watch::Receiver<Option<ResourceVersion>>,
    needed: ResourceVersion,
    within: Duration,
) -> bool {
    let reached = progress.wait_for(|held| *held >= Some(needed));
    timeout(within, reached).await.is_ok_and(|reached| reached.is_ok())
}

#[cfg(test)]
mod tests;
