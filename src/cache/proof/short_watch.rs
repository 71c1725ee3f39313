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
use crate::cache::live::LiveCache;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// Watches until a bookmark, and takes note of it in the cache. Returns whether one came.
pub(super) async fn short_watch(live: Arc<LiveCache>) -> bool {
    let history = live.history();
    let Ok(_slot) = live.shared.proof_watches.acquire().await else { return false };
    let Some(held) = *live.cache.progress().borrow() else { return false };
    let deadline = Instant::now() + PATIENCE;
    let (last, bookmark) = match timeout_at(deadline, bookmark(&live, held)).await {
        Ok(Ok(Some(told))) => told,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a short watch failed");
            return false;
        }
        Ok(Ok(None)) | Err(_) => return false,
    };
    let mut progress = live.cache.progress();
    let reached = progress.wait_for(|held| *held >= Some(last));
    if !timeout_at(deadline, reached).await.is_ok_and(|reached| reached.is_ok()) {
        return false;
    }
    live.proofs.told.fetch_max(bookmark.0, Ordering::Relaxed);
    live.progressed(history, bookmark);
    true
}

/// The resourceVersions of the first bookmark and of the last event before it, which is `held` if there is none.
async fn bookmark(
    live: &LiveCache,
    held: ResourceVersion,
) -> Result<Option<(ResourceVersion, ResourceVersion)>, UpstreamError> {
    let request = WatchRequest {
        resource_version: Some(held),
        send_initial_events: false,
        timeout_seconds: SECONDS,
        ..WatchRequest::default()
    };
    let mut watch = live.proofs.upstream.watch(request).await?;
    let mut last = held;
    while let Some(events) = watch.next().await? {
        for event in events {
            match event {
                UpstreamEvent::Upsert(object) | UpstreamEvent::Delete(object) => {
                    last = object.resource_version;
                }
                UpstreamEvent::Bookmark { resource_version, .. } => {
                    return Ok(Some((last, resource_version)));
                }
                UpstreamEvent::Error(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

/// The least with a bookmark before the end.
const SECONDS: u32 = 3;
/// What is open for longer than it asked for is stuck.
const PATIENCE: Duration = Duration::from_secs(5);
