//! A second, short watch from the held resourceVersion.
//!
//! The upstream sends a bookmark two seconds before the deadline of a watch if its own cache has
//! moved on (`docs/semantics.md` §5.6). With `timeoutSeconds=3` this is after 1 to 2.3 s.
//!
//! A bookmark at B means that the watch has received every event up to B. The cache's own stream
//! brings the same events, and they are applied from that stream only, so that each event is
//! applied once and in order. When the stream has brought the last event before the bookmark, the
//! cache is complete up to B. Without such an event, as in a quiet collection, it is complete up to
//! B at once.
//!
//! A bookmark shows how far the watch cache of its own API server is. Where there are several API
//! servers, the probe may have moved another one. So a request on the same connection makes the
//! server of the watch catch up first ([`WatchRequest::after_reaching`]). An API server without
//! watch-lists cannot be made to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::watch_list_attempt::{PROOF_WAIT, learn};
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// Watches at an API server that has reached `needed`, until a bookmark, and applies it to the
/// cache. Returns whether a bookmark arrived.
pub(super) async fn short_watch(cached: Arc<CachedResource>, needed: ResourceVersion) -> bool {
    learn(&cached, PROOF_WAIT).await;
    let can_catch_up = cached.context.watch_list.is_supported();
    let needed = can_catch_up.then_some(needed);
    watch_progress(&cached, needed).await == Some(ProgressOutcome::Bookmark)
}

/// Whether the cache has, at some moment after this call, everything that an instance of the
/// upstream has. Unlike a proof of freshness this needs no bookmark, which an older upstream may
/// never send: a watch that ends at its own time-out shows it as well.
pub(crate) async fn is_current(cached: &CachedResource) -> bool {
    watch_progress(cached, None).await.is_some()
}

/// The outcome of a short watch whose events the cache has all applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressOutcome {
    /// The cache is complete up to the resourceVersion of a bookmark.
    Bookmark,
    /// The cache misses no event. The watch ended without a bookmark, or the reflector lists.
    End,
}

async fn watch_progress(
    cached: &CachedResource,
    needed: Option<ResourceVersion>,
) -> Option<ProgressOutcome> {
    let generation = cached.writer.generation();
    let _slot = cached.context.proof_watches.acquire().await.ok()?;
    let held = (*cached.watch_cache.progress().borrow())?;
    let opened = Instant::now();
    let deadline = opened + WATCH_TIMEOUT;
    let read = read_until_bookmark(cached, held, needed);
    let (last, bookmark) = match timeout_at(deadline, read).await {
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
    if !cached.is_same_cluster(generation).await {
        return None;
    }
    let Some(bookmark) = bookmark else {
        return (opened.elapsed() >= WATCH_DURATION_MIN).then_some(ProgressOutcome::End);
    };
    cached.proofs.proven_by_watch.fetch_max(bookmark.0, Ordering::Relaxed);
    let counts = cached.apply_progress(generation, bookmark);
    Some(if counts { ProgressOutcome::Bookmark } else { ProgressOutcome::End })
}

/// Returns the resourceVersion of the last event, which is `held` if there is none, and that of the
/// first bookmark, if one arrives before the end.
async fn read_until_bookmark(
    cached: &CachedResource,
    held: ResourceVersion,
    needed: Option<ResourceVersion>,
) -> Result<(ResourceVersion, Option<ResourceVersion>), UpstreamError> {
    let request = WatchRequest {
        resource_version: Some(held),
        send_initial_events: false,
        timeout_seconds: WATCH_TIMEOUT_SECONDS,
        after_reaching: needed,
        ..WatchRequest::default()
    };
    let mut watch = cached.upstream.watch(request).await?;
    let mut last = held;
    while let Some(events) = watch.next().await? {
        for event in events {
            match event {
                UpstreamEvent::Upsert(object) | UpstreamEvent::Delete(object) => {
                    last = object.resource_version;
                }
                UpstreamEvent::Unreadable { object, .. } => last = object.resource_version,
                UpstreamEvent::Bookmark { resource_version, .. } => {
                    return Ok((last, Some(resource_version)));
                }
                UpstreamEvent::Error(error) => return Err(error),
            }
        }
    }
    Ok((last, None))
}

/// The smallest `timeoutSeconds` with which the upstream sends a bookmark before the end.
const WATCH_TIMEOUT_SECONDS: u32 = 3;
/// A watch that ends earlier was broken off, perhaps before the upstream could send anything.
const WATCH_DURATION_MIN: Duration = Duration::from_secs(2);
/// A watch that stays open for longer than it requested is stuck.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);
