//! An attempt to learn whether an upstream has watch-lists, beside the lists of a reflector.

use std::time::Duration;

use http::StatusCode;
use tokio::time::timeout;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// Learns whether the upstream has watch-lists, and the form of a bookmark, by a watch-list of no
/// objects from `at` or later.
///
/// A list shows neither, and a cache that serves watches needs both (`docs/semantics.md` §1.4). If
/// the response takes too long, a later list or watch shows them.
pub(crate) async fn learn(cached: &CachedResource, at: ResourceVersion) {
    let support = &cached.context.watch_list;
    let request = WatchRequest {
        resource_version: Some(at),
        send_initial_events: true,
        match_nothing: true,
        timeout_seconds: LEARNING_WATCH_SECONDS,
        ..WatchRequest::default()
    };
    let duration = Duration::from_secs(LEARNING_WATCH_SECONDS.into());
    match timeout(duration, read_end(cached, request)).await {
        Ok(Ok(true)) => support.set_supported(),
        // An upstream without watch-lists rejects one at once (`docs/semantics.md` §1.5).
        Ok(Err(UpstreamError::Status {
            code: StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY,
            message,
            ..
        })) => {
            tracing::info!(answer = message, "the upstream has no watch-list");
            support.set_unsupported();
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "whether the upstream has watch-list is not known yet");
        }
        Ok(Ok(false)) | Err(_) => {}
    }
}

/// Returns whether a watch-list comes to the end of its initial events.
async fn read_end(cached: &CachedResource, request: WatchRequest) -> Result<bool, UpstreamError> {
    let mut watch = cached.proofs.upstream.watch(request).await?;
    while let Some(events) = watch.next().await? {
        for event in events {
            match event {
                UpstreamEvent::Bookmark { initial_events_end, object, .. } => {
                    cached.learned.learn_bookmark(&object);
                    if initial_events_end {
                        return Ok(true);
                    }
                }
                UpstreamEvent::Error(error) => return Err(error),
                UpstreamEvent::Upsert(_) | UpstreamEvent::Delete(_) => {}
            }
        }
    }
    Ok(false)
}

/// The time-out in seconds of a watch-list of no objects. The upstream waits at most three seconds
/// for its own cache.
const LEARNING_WATCH_SECONDS: u32 = 5;
