//! Extends the history of a running cache backwards, for watchers that start below its first list
//! (`docs/decisions/older-watches.md`).
//!
//! Such watchers come in crowds: after a restart of Weir, and whenever the first reader of a
//! resource is ahead of the others. Each would cost the upstream a watch of its own, so they wait
//! for one run of this module. It takes the lowest resourceVersion N that a watcher asks for,
//! watches from there until it has every event up to where the history begins, and puts these
//! events before the history. If an object was changed and not created, a list at exactly N shows
//! it as it was. All watchers from N on then start in the cache.
//!
//! The state of the cache and its stream do not change. If the upstream answers 410, it names the
//! oldest resourceVersion that it still has; watchers below that get a 410 from Weir.
//!
//! A watch is complete up to a resourceVersion when it brings an event or bookmark at or above it.
//! In a quiet collection that is the bookmark that the upstream sends two seconds before the end of
//! a watch, so each watch is short, and another one follows if it was too short.
//!
//! Invariants: at most one run of a cache is in progress. Events are put into the history only in
//! the generation in which the run began.
//!
//! No locks but those of [`state::BackfillState`].

pub(crate) mod state;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, timeout_at};

use crate::api::resource_version::ResourceVersion;
use crate::cache::backfill::state::RunResult;
use crate::cache::budget::Claim;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::earlier::EarlierEvents;
use crate::cache::core::watch_cache::Change;
use crate::tasks::single_flight::InFlightGuard;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ListRequest, UpstreamEvent, WatchRequest};

/// Whether a watch can start at a resourceVersion below the first list of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The history reaches it now.
    Reached,
    /// No watch can start there: the answer is 410.
    Expired,
    /// The upstream did not show it.
    Unknown,
}

/// Why an attempt brought no events.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// Holds the oldest resourceVersion that the upstream has, if it named it.
    #[error("the upstream no longer has the events")]
    Expired(Option<ResourceVersion>),
    #[error("{0}")]
    Failed(UpstreamError),
    #[error("the upstream did not bring all events in time")]
    Incomplete,
    #[error("the byte budget of all caches is exhausted")]
    NoRoom,
    #[error("the events do not lead to the cached state")]
    NotJoined,
    #[error("the cached state was replaced meanwhile")]
    Replaced,
}

/// Extends the history of a cache back to `after`. Cancel safe: the run goes on for the others.
pub(crate) async fn reach(cached: &Arc<CachedResource>, after: ResourceVersion) -> Reach {
    loop {
        let Some(state) = cached.watch_cache.state() else { return Reach::Unknown };
        if state.history().resume(after).is_ok() {
            return Reach::Reached;
        }
        let oldest = state.history().joins_at();
        drop(state);
        if oldest.is_none_or(|oldest| after >= oldest) || cached.backfill.is_expired(after) {
            return Reach::Expired;
        }
        cached.backfill.ask(after);
        let (result, guard) = cached.backfill.runs.join(&());
        if let Some(guard) = guard {
            let cancel = cached.lifecycle.cancel.clone();
            let run = run(Arc::clone(cached), guard);
            cached.context.tasks.spawn(cancel.run_until_cancelled_owned(run));
        }
        if result.wait().await != Ok(RunResult::Done) {
            return Reach::Unknown;
        }
    }
}

async fn run(cached: Arc<CachedResource>, guard: InFlightGuard<(), RunResult>) {
    // The others of a crowd arrive within a moment, and one of them may ask for an older one.
    tokio::time::sleep(GATHER_DURATION).await;
    guard.complete(extend(&cached).await);
}

/// Tries the resourceVersions that are asked for until one succeeds or none is left.
async fn extend(cached: &Arc<CachedResource>) -> RunResult {
    let mut refused = false;
    loop {
        let Some(through) = joins_at(cached) else { return RunResult::Done };
        let Some(from) = cached.backfill.next(through, refused) else { return RunResult::Done };
        let began = Instant::now();
        match attempt(cached, from, through).await {
            Ok(events) => {
                // The oldest events may have found no place.
                let reached = joins_at(cached).unwrap_or(through);
                if reached > from {
                    cached.backfill.expire_below(reached);
                }
                cached.backfill.forget_asked();
                cached.context.metrics.backfill("extended");
                let duration = began.elapsed();
                tracing::info!(resource = %cached.key.gvr, %from, %through, events, ?duration, "the history reaches further back");
                return RunResult::Done;
            }
            Err(AttemptError::Expired(oldest)) => {
                refused = oldest.is_none();
                cached.backfill.refuse(from, oldest);
                cached.context.metrics.backfill("expired");
                tracing::debug!(%from, ?oldest, "the upstream no longer has the events for older watches");
            }
            Err(AttemptError::NotJoined) => {
                cached.backfill.refuse(from, None);
                cached.context.metrics.backfill("contradicted");
                tracing::info!(resource = %cached.key.gvr, %from, "the events for older watches contradict the cached state");
            }
            // The watchers look at the new state.
            Err(AttemptError::Replaced) => return RunResult::Done,
            Err(error) => {
                cached.backfill.forget_asked();
                cached.context.metrics.backfill("failed");
                tracing::debug!(%from, %error, "the events for older watches did not arrive");
                return RunResult::Failed;
            }
        }
    }
}

/// Fetches the events after `from` up to `through`, and puts them before the history. Returns their
/// number.
async fn attempt(
    cached: &Arc<CachedResource>,
    from: ResourceVersion,
    through: ResourceVersion,
) -> Result<usize, AttemptError> {
    let generation = cached.writer.generation();
    let config = cached.context.config().clone();
    let weight = cached.watch_cache.state().map_or(0, |state| state.weight());
    // The cache must still have room to grow.
    let room = config.resource_bytes_max.saturating_sub(weight) / 2;
    let bytes_max = config.history_bytes_max.min(room);
    let mut earlier = EarlierEvents::new(from, EVENTS_MAX, bytes_max);
    let mut claim = cached.context.budget.claim(0);
    collect(cached, (&mut earlier, &mut claim), through).await?;
    if earlier.needs_list() {
        list_exactly(cached, (&mut earlier, &mut claim), from).await?;
    }
    let is_replaced =
        || cached.context.history.generation() != generation || joins_at(cached) != Some(through);
    if !cached.is_same_origin(generation).await {
        let error = AttemptError::Incomplete;
        return Err(if is_replaced() { AttemptError::Replaced } else { error });
    }
    let (count, now) = (earlier.count(), cached.context.clock.now());
    let (events, weight_max) = ((earlier, through), weight.saturating_add(room));
    if cached.writer.prepend(generation, events, weight_max, now).is_err() {
        let error = AttemptError::NotJoined;
        return Err(if is_replaced() { AttemptError::Replaced } else { error });
    }
    cached.note_weight();
    Ok(count)
}

/// Watches until every event up to `through` has arrived.
async fn collect(
    cached: &CachedResource,
    (earlier, claim): (&mut EarlierEvents, &mut Claim),
    through: ResourceVersion,
) -> Result<(), AttemptError> {
    let slot = cached.context.proof_watches.acquire().await;
    let Ok(_slot) = slot else { return Err(AttemptError::Incomplete) };
    let deadline = Instant::now() + COLLECT_TIMEOUT;
    loop {
        let opened = Instant::now();
        let watching = watch_once(cached, (&mut *earlier, &mut *claim), through);
        match timeout_at(deadline, watching).await {
            Ok(Ok(true)) => return Ok(()),
            // The upstream, or a proxy before it, must not be called in a tight loop.
            Ok(Ok(false)) if opened.elapsed() >= WATCH_DURATION_MIN => {}
            Ok(Ok(false)) => tokio::time::sleep_until(opened + WATCH_DURATION_MIN).await,
            Ok(Err(error)) => return Err(error),
            Err(_elapsed) => return Err(AttemptError::Incomplete),
        }
    }
}

/// Watches once, from the last event that was collected. Returns whether every event up to
/// `through` has arrived.
async fn watch_once(
    cached: &CachedResource,
    (earlier, claim): (&mut EarlierEvents, &mut Claim),
    through: ResourceVersion,
) -> Result<bool, AttemptError> {
    let request = WatchRequest {
        resource_version: Some(earlier.last()),
        send_initial_events: false,
        timeout_seconds: WATCH_TIMEOUT_SECONDS,
        ..WatchRequest::default()
    };
    let mut watch = cached.upstream.watch(request).await?;
    while let Some(events) = watch.next().await? {
        for event in events {
            let change = match event {
                UpstreamEvent::Upsert(object) => Change::Upsert(object),
                UpstreamEvent::Delete(object) => Change::Delete(object),
                UpstreamEvent::Unreadable { object, is_deletion } => {
                    Change::Unreadable { object, is_deletion }
                }
                UpstreamEvent::Bookmark { resource_version, .. } => {
                    Change::Progress(resource_version)
                }
                UpstreamEvent::Error(error) => return Err(error.into()),
            };
            let at = change.resource_version();
            if at <= through {
                earlier.push(change);
            }
            if at >= through {
                return Ok(true);
            }
        }
        note_weight(cached, earlier, claim)?;
    }
    Ok(false)
}

/// Claims the collected objects from the byte budget. Fails if that is exhausted.
fn note_weight(
    cached: &CachedResource,
    earlier: &EarlierEvents,
    claim: &mut Claim,
) -> Result<(), AttemptError> {
    claim.set(earlier.weight());
    if cached.context.budget.is_exhausted() { Err(AttemptError::NoRoom) } else { Ok(()) }
}

/// Lists the state at exactly `from`, for the objects before their first changes.
async fn list_exactly(
    cached: &CachedResource,
    (earlier, claim): (&mut EarlierEvents, &mut Claim),
    from: ResourceVersion,
) -> Result<(), AttemptError> {
    let slot = cached.context.proof_lists.acquire().await;
    let Ok(_slot) = slot else { return Err(AttemptError::Incomplete) };
    let limit = Some(cached.context.seams.page_size);
    let mut request = ListRequest {
        limit,
        resource_version: Some(from),
        resource_version_match: "Exact",
        ..ListRequest::default()
    };
    for _ in 0..PAGES_MAX {
        let page = with_timeout(PAGE_TIMEOUT, cached.upstream.list(request)).await?;
        if page.resource_version != from {
            return Err(AttemptError::Expired(None));
        }
        page.objects.into_iter().for_each(|object| earlier.take_listed(object));
        note_weight(cached, earlier, claim)?;
        if page.continue_token.is_empty() || !earlier.needs_list() {
            return Ok(());
        }
        let continue_token = page.continue_token;
        request = ListRequest { limit, continue_token, ..ListRequest::default() };
    }
    Err(AttemptError::Incomplete)
}

/// Returns the resourceVersion where the history of a cache begins, if events can be put before it.
fn joins_at(cached: &CachedResource) -> Option<ResourceVersion> {
    cached.watch_cache.state()?.history().joins_at()
}

impl From<UpstreamError> for AttemptError {
    fn from(error: UpstreamError) -> Self {
        match &error {
            UpstreamError::Status { code, message, .. } if *code == StatusCode::GONE => {
                Self::Expired(oldest_in(message))
            }
            _ => Self::Failed(error),
        }
    }
}

/// Returns the oldest resourceVersion that the upstream has, from `too old resource version: 30
/// (450)` (`docs/semantics.md` §5.8).
fn oldest_in(message: &str) -> Option<ResourceVersion> {
    let (_, rest) = message.split_once("too old resource version: ")?;
    let (_, rest) = rest.split_once(" (")?;
    let (oldest, _) = rest.split_once(')')?;
    ResourceVersion::parse(oldest)
}

/// How long a run waits for the others of a crowd.
pub(crate) const GATHER_DURATION: Duration = Duration::from_millis(100);
/// The largest number of events, which is that of a history (`docs/semantics.md` §5.9).
const EVENTS_MAX: usize = 102_400;
/// How long the events may take to arrive. The requests that wait have a time-out of about as much.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The smallest `timeoutSeconds` with which the upstream sends a bookmark before the end.
const WATCH_TIMEOUT_SECONDS: u32 = 3;
/// The shortest time between the starts of two watches.
const WATCH_DURATION_MIN: Duration = Duration::from_secs(1);
/// The longest wait for a page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of pages of a list: five million objects at the default page size.
const PAGES_MAX: usize = 10_000;

#[cfg(test)]
mod tests;
