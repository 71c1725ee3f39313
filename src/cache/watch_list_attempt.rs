//! Attempts to learn whether an upstream has watch-lists: a watch-list of no objects.
//!
//! The upstream pays for each with a watch, so none is made before somebody needs the answer
//! (`docs/decisions/filling-caches.md`): a client whose watch must end its initial events with a
//! bookmark, or a proof of freshness.
//!
//! Invariant: at most one attempt is in progress, and none follows a failed one within a pause
//! ([`RETRY_AFTER`]).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, timeout};

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::tasks::single_flight::SharedOutcome;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// Joins the attempt in progress, or starts one as a task that ends with the cache. Returns `None`
/// if the last one failed a moment ago.
pub(crate) fn start(cached: &Arc<CachedResource>) -> Option<SharedOutcome<()>> {
    let support = &cached.context.watch_list;
    let may_start = || {
        let failed = *support.failed.lock();
        let is_recent = failed.is_some_and(|failed| failed.elapsed() < RETRY_AFTER);
        if is_recent { Err(()) } else { Ok(()) }
    };
    let (outcome, run) = support.attempts.try_join(&(), may_start).ok()?;
    if let Some((guard, ())) = run {
        let (trying, cancel) = (Arc::clone(cached), cached.lifecycle.cancel.clone());
        let attempt = async move {
            let is_answered = attempt(&trying).await;
            *trying.context.watch_list.failed.lock() = (!is_answered).then(Instant::now);
            guard.complete(());
        };
        cached.context.tasks.spawn(cancel.run_until_cancelled_owned(attempt));
    }
    Some(outcome)
}

/// Waits at most `within` for the end of an attempt, if nothing is known of the upstream. Cancel
/// safe: the attempt goes on.
pub(crate) async fn learn(cached: &Arc<CachedResource>, within: Duration) {
    if cached.context.watch_list.last_answer().is_none() {
        wait(cached, within).await;
    }
}

/// Like [`learn`], if it is not known whether the upstream compresses watch-lists.
pub(crate) async fn learn_compression(cached: &Arc<CachedResource>, within: Duration) {
    if cached.context.watch_list.is_compressed().is_none() {
        wait(cached, within).await;
    }
}

async fn wait(cached: &Arc<CachedResource>, within: Duration) {
    if let Some(attempt) = start(cached) {
        // At the time-out the caller goes on with what is known.
        let _ended = timeout(within, attempt.wait()).await;
    }
}

/// Makes an attempt, and returns whether it brought an answer.
async fn attempt(cached: &CachedResource) -> bool {
    let support = &cached.context.watch_list;
    let request = WatchRequest {
        resource_version: Some(ResourceVersion::default()),
        send_initial_events: true,
        match_nothing: true,
        timeout_seconds: ATTEMPT_SECONDS,
        ..WatchRequest::default()
    };
    let duration = Duration::from_secs(ATTEMPT_SECONDS.into());
    match timeout(duration, read_end(cached, request)).await {
        Ok(Ok(Some(is_compressed))) => {
            support.set_supported(Some(is_compressed));
            return true;
        }
        // An upstream without watch-lists rejects one at once (`docs/semantics.md` §1.5).
        Ok(Err(UpstreamError::Status {
            code: StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY,
            message,
            ..
        })) => {
            tracing::info!(answer = message, "the upstream has no watch-list");
            support.set_unsupported();
            return true;
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "whether the upstream has watch-list is not known yet");
        }
        Ok(Ok(None)) | Err(_) => {}
    }
    false
}

/// Returns whether the upstream compresses a watch-list, or `None` if that does not come to the end
/// of its initial events.
async fn read_end(
    cached: &CachedResource,
    request: WatchRequest,
) -> Result<Option<bool>, UpstreamError> {
    let mut watch = cached.upstream.watch(request).await?;
    while let Some(events) = watch.next().await? {
        for event in events {
            match event {
                UpstreamEvent::Bookmark { initial_events_end, object, .. } => {
                    cached.learned.learn_bookmark(&object);
                    if initial_events_end {
                        return Ok(Some(watch.is_compressed().unwrap_or_default()));
                    }
                }
                UpstreamEvent::Error(error) => return Err(error),
                UpstreamEvent::Upsert(_)
                | UpstreamEvent::Delete(_)
                | UpstreamEvent::Unreadable { .. } => {}
            }
        }
    }
    Ok(None)
}

/// The time-out in seconds of an attempt. The upstream waits at most three seconds for its own
/// cache.
const ATTEMPT_SECONDS: u32 = 5;
/// The pause after an attempt without an answer. Meanwhile the watches that need it are forwarded.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The longest wait of a proof for an attempt: short beside the proof, which is cheaper before an
/// upstream with watch-lists.
pub(crate) const PROOF_WAIT: Duration = Duration::from_millis(250);
