//! WATCH from the cache: its start, and the head of its response (`docs/semantics.md` §1.6.4, §5.1,
//! §5.8). Its time-out counts from that start (`docs/decisions/proofs-of-freshness.md`).

use std::pin::pin;

use futures_util::{FutureExt, stream};
use http::Response;
use tokio::time::Instant;

use crate::api::resource_version::ResourceVersion;
use crate::api::status::Status;
use crate::cache::core::watch_cache::WatchRefusal;
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};
use crate::cache::handle::CacheHandle;
use crate::cache::refusal::Refusal;
use crate::codec::frame;
use crate::codec::rope::Rope;
use crate::server::cached::filtered::Filtered;
use crate::server::cached::read::CachedRead;
use crate::server::cached::respond::{accepts_gzip, describe, name_dropped, set_gzip_headers};
use crate::server::cached::watch_stream::{CacheBookmarks, Schedule, WatchEnd, WatchStream};
use crate::server::delegate::{Freshness, Reason, Start, WatchPlan};
use crate::server::http::body::Body;
use crate::server::http::{headers, response};
use crate::server::metrics::{WaitCause, WatchOutcome};

/// Returns the response, or the reason to forward the request. Nothing has been sent in that case.
pub(crate) async fn serve(
    read: &mut CachedRead<'_>,
    plan: &WatchPlan,
) -> Result<Response<Body>, Reason> {
    let (metrics, start) = (&read.context.metrics, plan.start.as_str());
    let (outcome, response) = match begin(read, plan).await {
        Ok(Begun::Served(response)) => (WatchOutcome::Served, Ok(response)),
        Ok(Begun::Expired(response)) => {
            metrics.watcher_ended("expired");
            (WatchOutcome::Expired, Ok(response))
        }
        Err(reason) => (WatchOutcome::Forwarded, Err(reason)),
    };
    metrics.watch_started(start, outcome);
    response
}

enum Begun {
    /// Its events.
    Served(Response<Body>),
    /// A 410.
    Expired(Response<Body>),
}

async fn begin(read: &mut CachedRead<'_>, plan: &WatchPlan) -> Result<Begun, Reason> {
    let began = Instant::now();
    // Given one name in all namespaces, such an upstream looks up an object without a namespace,
    // and so returns none (seen on 1.31).
    if matches!(plan.start, Start::State(_))
        && read.target.filter.name.is_some()
        && read.filtered.is_none()
        && !read.target.is_single(read.resource)
        && !read.services.registry.upstream_has_snapshots()
    {
        return Err(Reason::Selector);
    }
    if let Err(reason) = read.counts_shard().await {
        return without_cache(read, plan, reason).await;
    }
    let handle = match cache_for(read, plan.start).await {
        Ok(handle) => handle,
        Err(reason) => return without_cache(read, plan, reason).await,
    };
    if let Start::After(after) = plan.start
        && !read.was_seen_at(after)
    {
        return Ok(expired(read, Some(&handle), WatchStart::After(after), after));
    }
    let form = read.target.form;
    // A proof of freshness does not wait for what the upstream supports, nor that for the proof.
    let (marks_end, (start, begun)) = tokio::try_join!(
        owes_end_bookmark(read, plan, &handle),
        open(read, &handle, plan.start, began)
    )?;
    let watcher = match begun {
        Ok(watcher) => watcher.with_view(form.view).held_by(read.held.clone()),
        Err(WatchRefusal::NotReady) => {
            return without_cache(read, plan, Reason::Refused(Refusal::NotReady)).await;
        }
        Err(WatchRefusal::Unreadable) => return Err(Reason::Unreadable),
        Err(WatchRefusal::Expired { began_after: true, .. }) => return Err(Reason::BeforeCache),
        Err(WatchRefusal::Expired { oldest, .. }) => {
            return Ok(expired(read, Some(&handle), start, oldest));
        }
    };
    // Checked again after the watch was opened, so that no rewind can happen in between.
    if let WatchStart::After(after) = start
        && is_lost(read, &handle, after).await?
    {
        return Ok(expired(read, Some(&handle), start, watcher.resource_version()));
    }
    let is_compressed = marks_end && is_compressed(read, &handle).await;
    let watcher = match is_compressed {
        true => watcher.compressed_by(read.services.compressor.segments()),
        false => watcher,
    };
    // A client that starts at a resourceVersion in the future receives no event before it.
    let at = match start {
        WatchStart::After(after) => after,
        WatchStart::InitialEvents | WatchStart::Now => watcher.resource_version(),
    };
    // The upstream counts from the request. Here a proof of freshness may take a noticeable time,
    // and a watch must not end before it began.
    let schedule = Schedule::new(Instant::now(), plan.timeout, plan.bookmarks);
    let view_end = read.filtered.as_deref().map(Filtered::end);
    let stream = WatchStream::new(
        watcher,
        at,
        CacheBookmarks(handle.clone(), form.encoding, form.view),
        schedule,
        marks_end,
        read.context
            .client
            .drain
            .watch(plan.bookmarks)
            .counted_by(read.context.holds.watch.clone()),
        read.context.metrics.clone(),
    )
    .with_ends(
        read.reauthorization
            .take()
            .map(|reauthorization| Box::pin(reauthorization.until_revoked()) as WatchEnd),
        view_end,
    );
    let mut response = ok(read, Some(&handle), Body::Watch(Box::pin(stream)));
    if is_compressed {
        set_gzip_headers(&mut response);
    }
    Ok(Begun::Served(response))
}

/// Returns the cache, once it has a state with which a watch can start.
async fn cache_for(read: &CachedRead<'_>, start: Start) -> Result<CacheHandle, Reason> {
    match start {
        Start::After(after) => read.begun_cache(Some(after)).await,
        // These find a proof of freshness of their own.
        Start::ConsistentState | Start::ConsistentNow => read.begun_cache(None).await,
        Start::State(_) | Start::Now => read.ready_cache().await,
    }
}

/// Opens a watch of the cache, with the proof of freshness that its start needs. `began` is when
/// the request arrived. Returns where it starts.
async fn open(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    start: Start,
    began: Instant,
) -> Result<(WatchStart, Result<Watcher, WatchRefusal>), Reason> {
    let filter = read.target.filter.clone();
    Ok(match start {
        Start::State(freshness) => {
            let state = match freshness {
                Freshness::Any if read.filtered.is_some() => {
                    read.fresh_state(handle, None, began).await?
                }
                Freshness::Any => handle.newest_start(),
                Freshness::NotOlderThan(asked) => {
                    read.fresh_state(handle, Some(asked), began).await?
                }
            };
            (WatchStart::InitialEvents, handle.watch_from(filter, &state))
        }
        Start::ConsistentState => {
            let state = read.fresh_state(handle, None, began).await?;
            (WatchStart::InitialEvents, handle.watch_from(filter, &state))
        }
        Start::After(after) => {
            (WatchStart::After(after), begin_at(read, handle, filter, after).await?)
        }
        Start::Now => begin_now(handle, filter),
        Start::ConsistentNow => {
            let revision = handle.upstream_resource_version(read.services.seams.freshness_timeout);
            let revision = pin!(read.while_usable(revision));
            let revision = read.waiting(WaitCause::Freshness, revision).await?;
            begin_after(handle, filter, revision)
        }
    })
}

/// Whether `after` is of a lost history, as far as the upstream shows it in time.
async fn is_lost(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    after: ResourceVersion,
) -> Result<bool, Reason> {
    let is_lost = handle.is_lost(after, read.services.seams.freshness_timeout);
    read.while_usable(is_lost.map(Ok)).await
}

/// Opens a watch of the events after `after`, once the history is known to be the upstream's: the
/// upstream may have named `after`.
async fn begin_at(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    filter: WatchFilter,
    after: ResourceVersion,
) -> Result<Result<Watcher, WatchRefusal>, Reason> {
    let deadline = read.context.started + read.services.seams.warmup_timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    // Asked before the wait, in which the new history may pass `after`.
    if is_lost(read, handle, after).await? {
        let oldest = handle.cache().state().map_or(after, |state| state.resource_version());
        return Ok(Err(WatchRefusal::Expired { oldest, began_after: false }));
    }
    if !read.while_usable(handle.is_joined(left()).map(Ok)).await? {
        return Ok(Err(WatchRefusal::NotReady));
    }
    read.while_usable(handle.watch_after(filter, after, left()).map(Ok)).await
}

fn begin_now(
    handle: &CacheHandle,
    filter: WatchFilter,
) -> (WatchStart, Result<Watcher, WatchRefusal>) {
    let start = handle.start_now();
    (start, handle.cache().watch(filter, start))
}

/// Opens a watch after `revision`, which the upstream has just returned. The watch is silent until
/// the cache has reached it. If the history has passed it already and no watch can start there any
/// more, the watch starts at the cache's own resourceVersion: the client named no resourceVersion,
/// so that a 410 would have no meaning for it.
fn begin_after(
    handle: &CacheHandle,
    filter: WatchFilter,
    revision: ResourceVersion,
) -> (WatchStart, Result<Watcher, WatchRefusal>) {
    let start = WatchStart::After(revision);
    match handle.cache().watch(filter.clone(), start) {
        Err(WatchRefusal::Expired { .. }) => {
            (WatchStart::Now, handle.cache().watch(filter, WatchStart::Now))
        }
        begun => (start, begun),
    }
}

/// Returns the response to a watch without a ready cache. After a rewind of the upstream's history,
/// a watch from a lost resourceVersion must not be forwarded either, since it would be silent
/// (`docs/decisions/rewound-history.md`). While a cache is quarantined, a watch from a
/// resourceVersion that it may have shown must not be forwarded: its client would keep wrong
/// objects (`docs/decisions/verified-caches.md`).
async fn without_cache(
    read: &CachedRead<'_>,
    plan: &WatchPlan,
    reason: Reason,
) -> Result<Begun, Reason> {
    // One by a shard selector may have come from the cache before.
    let is_shard = reason == Reason::Selector;
    let Start::After(after) = plan.start else { return Err(reason) };
    if !is_shard && !matches!(reason, Reason::Refused(_)) {
        return Err(reason);
    }
    let (gvr, namespace) = (&read.resource.gvr, &read.request.namespace);
    if read.services.registry.is_doubtful(gvr, namespace, read.representation(), after) {
        return Ok(expired(read, None, WatchStart::After(after), after));
    }
    if !is_shard && reason != Reason::Refused(Refusal::NotReady) {
        return Err(reason);
    }
    let cold = read.services.registry.get(gvr, namespace, read.representation());
    let Ok(handle) = read.while_usable(cold).await else { return Err(reason) };
    if !is_lost(read, &handle, after).await? {
        return Err(reason);
    }
    Ok(expired(read, Some(&handle), WatchStart::After(after), after))
}

fn ok(read: &CachedRead<'_>, handle: Option<&CacheHandle>, body: Body) -> Response<Body> {
    let content_type = read.target.form.encoding.content_type(true);
    let headers = &read.context.parts.headers;
    let warnings = handle.map(CacheHandle::warnings).unwrap_or_default();
    let mut response = response::ok(headers, content_type, body, &warnings);
    name_dropped(read, &mut response);
    if let Some(handle) = handle {
        describe(read, handle, &mut response);
    }
    response
}

/// Whether a watch-list is compressed (`docs/semantics.md` §5.13).
async fn is_compressed(read: &CachedRead<'_>, handle: &CacheHandle) -> bool {
    // A plain answer is right for every client, and costs less while time or memory is short.
    let may_compress = accepts_gzip(read)
        && headers::upgrade(&read.context.parts.headers).is_none()
        && !read.held.is_full()
        && !read.services.overload.is_saving();
    let timeout = read.services.seams.freshness_timeout;
    may_compress && handle.upstream_compresses_watch_lists(timeout).await
}

/// Whether a bookmark must end the initial events. This must be known before anything is sent,
/// since a client that waits for a bookmark that never comes is stuck. Requests that the upstream
/// refuses, and those for which its features are not known, are forwarded.
async fn owes_end_bookmark(
    read: &CachedRead<'_>,
    plan: &WatchPlan,
    handle: &CacheHandle,
) -> Result<bool, Reason> {
    let may_owe = plan.bookmarks && plan.marks_initial_end;
    if !may_owe && !plan.asks_watch_list {
        return Ok(false);
    }
    let has_watch_list = handle.upstream_has_watch_list(read.services.seams.freshness_timeout);
    match read.while_usable(has_watch_list.map(Ok)).await? {
        None => Err(Reason::Refused(Refusal::NotReady)),
        Some(false) if plan.asks_watch_list => Err(Reason::Options),
        Some(has_watch_list) => Ok(has_watch_list && may_owe),
    }
}

/// Returns a stream of one event: the upstream's response to a resourceVersion that has left the
/// history.
fn expired(
    read: &CachedRead<'_>,
    handle: Option<&CacheHandle>,
    start: WatchStart,
    oldest: ResourceVersion,
) -> Begun {
    let requested = match start {
        WatchStart::After(requested) => requested,
        WatchStart::InitialEvents | WatchStart::Now => ResourceVersion::default(),
    };
    let status = Status::expired(requested, oldest);
    let frame = frame::encode_error(&status, read.target.form.encoding);
    read.context.metrics.delivered(0, frame.len());
    let body = Body::Watch(Box::pin(stream::iter([Rope::from(frame)])));
    Begun::Expired(ok(read, handle, body))
}
