//! A second, short watch from what the cache holds. Two seconds before its deadline the upstream sends a bookmark if its own cache is further
//! (semantics.md §5.6), which with `timeoutSeconds=3` is after 1 to 2.3 s.
//!
//! A bookmark at B tells that the watch was sent every event up to B. The events themselves come by the cache's own stream too, and are
//! taken from there alone: so each counts once, in one order. Once that stream has brought the last one before the bookmark, the cache
//! has everything up to B. If there was none, as in a quiet collection, it has so at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// Watches until a bookmark, and takes note of it in the cache. Returns whether one came.
pub(super) async fn short_watch(cached: Arc<CachedResource>) -> bool {
    watch_progress(&cached).await == Some(ProgressOutcome::Bookmark)
}

/// Whether the cache has, at some moment after this call, everything that an instance of the upstream has. Unlike for a proof of freshness no
/// bookmark is needed, which older upstreams may have none to send of: a watch that reached its own time-out shows as much.
pub(crate) async fn is_current(cached: &CachedResource) -> bool {
    watch_progress(cached).await.is_some()
}

/// What a short watch showed of a cache that has all its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressOutcome {
    /// That it is at the upstream's resourceVersion, as far as the bookmark tells that.
    Bookmark,
    /// That nothing is missing.
    End,
}

async fn watch_progress(cached: &CachedResource) -> Option<ProgressOutcome> {
    let generation = cached.generation();
    let _slot = cached.context.proof_watches.acquire().await.ok()?;
    let held = (*cached.watch_cache.progress().borrow())?;
    let opened = Instant::now();
    let deadline = opened + WATCH_TIMEOUT;
    let (last, bookmark) = match timeout_at(deadline, read_until_bookmark(cached, held)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a short watch failed");
            return None;
        }
        Err(_elapsed) => return None,
    };
    let mut progress = cached.watch_cache.progress();
    let reached = progress.wait_for(|held| *held >= Some(last));
    if !timeout_at(deadline, reached).await.is_ok_and(|reached| reached.is_ok()) {
        return None;
    }
    let Some(bookmark) = bookmark else {
        return (opened.elapsed() >= WATCH_DURATION_MIN).then_some(ProgressOutcome::End);
    };
    cached.proofs.proven_by_watch.fetch_max(bookmark.0, Ordering::Relaxed);
    cached.apply_progress(generation, bookmark);
    Some(ProgressOutcome::Bookmark)
}

/// The resourceVersions of the last event, which is `held` if there is none, and of the first bookmark after it, if one comes before the end.
async fn read_until_bookmark(
    cached: &CachedResource,
    held: ResourceVersion,
) -> Result<(ResourceVersion, Option<ResourceVersion>), UpstreamError> {
    let request = WatchRequest {
        resource_version: Some(held),
        send_initial_events: false,
        timeout_seconds: WATCH_TIMEOUT_SECONDS,
        ..WatchRequest::default()
    };
    let mut watch = cached.proofs.upstream.watch(request).await?;
    let mut last = held;
    while let Some(events) = watch.next().await? {
        for event in events {
            match event {
                UpstreamEvent::Upsert(object) | UpstreamEvent::Delete(object) => {
                    last = object.resource_version;
                }
                UpstreamEvent::Bookmark { resource_version, .. } => {
                    return Ok((last, Some(resource_version)));
                }
                UpstreamEvent::Error(error) => return Err(error),
            }
        }
    }
    Ok((last, None))
}

/// The least with a bookmark before the end.
const WATCH_TIMEOUT_SECONDS: u32 = 3;
/// What ended sooner was broken off, perhaps before it could tell anything.
const WATCH_DURATION_MIN: Duration = Duration::from_secs(2);
/// What is open for longer than it asked for is stuck.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);
