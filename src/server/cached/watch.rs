//! WATCH from the cache: when it may begin, and the head of its answer (semantics.md §1.6.4, §5.1, §5.8).

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response};
use tokio::time::Instant;

use crate::api::media_type::{Encoding, View};
use crate::api::resource_version::ResourceVersion;
use crate::api::status::Status;
use crate::cache::core::watch_cache::WatchRefusal;
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};
use crate::cache::handle::CacheHandle;
use crate::cache::proof::FreshState;
use crate::cache::refusal::Refusal;
use crate::codec::frame;
use crate::server::cached::read::CachedRead;
use crate::server::cached::watch_stream::{CacheBookmarks, Revoked, Schedule, WatchStream};
use crate::server::delegate::{Freshness, Reason, Start, WatchPlan};
use crate::server::drain::Drain;
use crate::server::http::body::Body;
use crate::server::http::response;

/// Answers, or tells why not; nothing has been sent then.
pub(crate) async fn serve(
    mut read: CachedRead<'_>,
    plan: &WatchPlan,
) -> Result<Response<Body>, Reason> {
    let began = Instant::now();
    // Of one name in all namespaces such an upstream looks up an object without a namespace, and so shows none (seen on 1.31).
    if matches!(plan.start, Start::State(_))
        && read.target.filter.name.is_some()
        && !read.target.is_single(read.resource)
        && !read.services.registry.upstream_has_snapshots()
    {
        return Err(Reason::Selector);
    }
    let first_at = match plan.start {
        Start::After(after) => Some(after),
        Start::State(_) | Start::ConsistentState | Start::Now | Start::ConsistentNow => None,
    };
    let handle = match read.ready_cache(first_at).await {
        Ok(handle) => handle,
        Err(reason) => return lost_meanwhile(&read, plan, reason).await,
    };
    let form = read.target.form;
    let end_bookmark = owes_end_bookmark(plan, &handle, form.view)?;
    let filter = read.target.filter.clone();
    let (start, begun) = match plan.start {
        Start::State(freshness) => {
            let state = match freshness {
                Freshness::Any => FreshState::Held,
                Freshness::NotOlderThan(asked) => {
                    fresh_state(&read, &handle, Some(asked), began).await?
                }
            };
            (WatchStart::InitialEvents, handle.watch_from(filter, &state))
        }
        Start::ConsistentState => {
            let state = fresh_state(&read, &handle, None, began).await?;
            (WatchStart::InitialEvents, handle.watch_from(filter, &state))
        }
        Start::After(after) => {
            let start = WatchStart::After(after);
            (start, handle.cache().watch(filter, start))
        }
        Start::Now => (WatchStart::Now, handle.cache().watch(filter, WatchStart::Now)),
        Start::ConsistentNow => {
            let revision = handle.upstream_resource_version(read.services.freshness_timeout).await;
            begin_after(&handle, filter, revision.map_err(Reason::Refused)?)
        }
    };
    let warnings = handle.warnings();
    let watcher = match begun {
        Ok(watcher) => watcher.with_view(form.view),
        Err(WatchRefusal::NotReady) => {
            return lost_meanwhile(&read, plan, Reason::Refused(Refusal::NotReady)).await;
        }
        Err(WatchRefusal::Expired { began_after: true, .. }) => return Err(Reason::BeforeCache),
        Err(WatchRefusal::Expired { oldest, .. }) => {
            read.context.metrics.watcher_ended("expired");
            return Ok(ok(&read, expired(start, oldest, form.encoding), &warnings));
        }
    };
    // Asked after the watch has begun, so that no rewind falls between.
    if let WatchStart::After(after) = start
        && handle.is_lost(after, read.services.freshness_timeout).await
    {
        read.context.metrics.watcher_ended("expired");
        let body = expired(start, watcher.resource_version(), form.encoding);
        return Ok(ok(&read, body, &warnings));
    }
    // A client that begins in the future is told of nothing before it.
    let at = match start {
        WatchStart::After(after) => after,
        WatchStart::InitialEvents | WatchStart::Now => watcher.resource_version(),
    };
    // The upstream counts from the request; but there a proof of freshness takes no time to speak of, and a watch shall not end before it began.
    let schedule = Schedule::new(Instant::now(), plan.timeout, plan.bookmarks);
    let stream = WatchStream::new(
        watcher,
        at,
        CacheBookmarks(handle, form.view),
        schedule,
        end_bookmark,
        Drain { started: read.context.client.draining.clone(), spread: read.services.drain_spread },
        read.context.metrics.clone(),
    )
    .until(read.reauthorization.take().map(|it| Box::pin(it.until_revoked()) as Revoked));
    Ok(ok(&read, Body::Watch(Box::pin(stream)), &warnings))
}

/// A state to begin with that is not older than `asked`, or for `None` than `since`, when the request had arrived.
async fn fresh_state(
    read: &CachedRead<'_>,
    handle: &CacheHandle,
    asked: Option<ResourceVersion>,
    since: Instant,
) -> Result<FreshState, Reason> {
    handle.fresh_state(asked, since, read.services.freshness_timeout).await.map_err(Reason::Refused)
}

/// Begins after a revision that the upstream has just told. Until the cache is there the watch is silent; and where the history has
/// passed it meanwhile and no watch may begin there any more, it begins with what the cache has: its client named no
/// resourceVersion that it could be told is too old.
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

/// The answer for want of a cache: after a rewind of the upstream's history not even the upstream may be asked to watch from what it
/// has lost, since it would be silent.
async fn lost_meanwhile(
    read: &CachedRead<'_>,
    plan: &WatchPlan,
    reason: Reason,
) -> Result<Response<Body>, Reason> {
    let (Start::After(after), Reason::Refused(Refusal::NotReady)) = (plan.start, reason) else {
        return Err(reason);
    };
    let (gvr, namespace) = (&read.request.gvr, &read.request.namespace);
    let cold = read.services.registry.get(gvr, namespace, read.representation()).await;
    let Ok(handle) = cold else { return Err(reason) };
    if !handle.is_lost(after, read.services.freshness_timeout).await {
        return Err(reason);
    }
    read.context.metrics.watcher_ended("expired");
    let start = WatchStart::After(after);
    let body = expired(start, after, read.target.form.encoding);
    Ok(ok(read, body, &handle.warnings()))
}

/// A 200 with a stream in the form that the client negotiated.
fn ok(read: &CachedRead<'_>, body: Body, warnings: &[HeaderValue]) -> Response<Body> {
    response::ok(
        &read.context.parts.headers,
        read.target.form.encoding.content_type(true),
        body,
        warnings,
    )
}

/// Whether a bookmark must end the initial events. Known before anything is sent: a client that waits for one
/// which never comes is stuck. What the upstream would refuse, it refuses itself; and where its ways are not known yet, it is asked.
fn owes_end_bookmark(plan: &WatchPlan, handle: &CacheHandle, view: View) -> Result<bool, Reason> {
    let may_owe = plan.bookmarks && plan.marks_initial_end;
    match handle.upstream_has_watch_list() {
        None if plan.asks_watch_list || may_owe => return Err(Reason::Refused(Refusal::NotReady)),
        Some(false) if plan.asks_watch_list => return Err(Reason::Options),
        Some(true) if may_owe => {}
        _ => return Ok(false),
    }
    match handle.bookmark(ResourceVersion(0), true, view) {
        Some(_) => Ok(true),
        None => Err(Reason::NoBookmark),
    }
}

/// A stream of one event: the upstream's answer to a resourceVersion that has left the history.
fn expired(start: WatchStart, oldest: ResourceVersion, encoding: Encoding) -> Body {
    let requested = match start {
        WatchStart::After(requested) => requested,
        WatchStart::InitialEvents | WatchStart::Now => ResourceVersion::default(),
    };
    let status = Status::expired(requested, oldest);
    let frame: Bytes = frame::encode_error(&status, encoding);
    Body::Watch(Box::pin(stream::iter([frame])))
}
