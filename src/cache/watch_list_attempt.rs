//! How Weir learns what a list does not show: whether an upstream has watch-lists, and how it
//! writes a bookmark of a resource. An *attempt* is a watch-list of no objects.
//!
//! The upstream pays for each attempt with a watch, so none is made before somebody needs the
//! answer (`docs/decisions/filling-caches.md`): a client whose watch must end its initial events
//! with a bookmark, a bookmark that is due, the batch of a relist, or a proof of freshness. Until
//! then a watch-list that fills a cache, or the first bookmark of the reflector's own watch, may
//! bring the same answer.
//!
//! Invariant: at most one attempt of a cache is in progress, and none follows a failed one within a
//! pause ([`attempts`](crate::cache::cached_resource::attempts)).
//!
//! No locks.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::timeout;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::tasks::single_flight::SharedOutcome;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{UpstreamEvent, WatchRequest};

/// Whether an answer is missing that only an attempt brings soon: whether the upstream has
/// watch-lists, or the form of a bookmark.
pub(crate) fn is_needed(cached: &CachedResource) -> bool {
    cached.context.watch_list.last_answer().is_none() || lacks_bookmark(cached)
}

/// Whether the form of a bookmark is not known and an attempt may show it. Without watch-lists only
/// the reflector's own watch does.
pub(crate) fn lacks_bookmark(cached: &CachedResource) -> bool {
    let may_have_watch_lists = cached.context.watch_list.last_answer() != Some(false);
    may_have_watch_lists && !cached.learned.has_bookmark()
}

/// Joins the attempt in progress, or starts one as a task that ends with the cache. Returns `None`
/// if the last one failed a moment ago.
pub(crate) fn start(cached: &Arc<CachedResource>) -> Option<SharedOutcome<()>> {
    let (outcome, run) = cached.attempts.join()?;
    if let Some(guard) = run {
        let (learning, cancel) = (Arc::clone(cached), cached.lifecycle.cancel().clone());
        let attempt = async move {
            learning.attempts.note_end(learn(&learning).await);
            guard.complete(());
        };
        cached.context.tasks.spawn(cancel.run_until_cancelled_owned(attempt));
    }
    Some(outcome)
}

/// Waits at most `within` for the end of an attempt, if one is needed. Cancel safe: it goes on.
pub(crate) async fn learn_if_needed(cached: &Arc<CachedResource>, within: Duration) {
    if is_needed(cached)
        && let Some(attempt) = start(cached)
    {
        // At the time-out the caller goes on with what is known.
        let _ended = timeout(within, attempt.wait()).await;
    }
}

/// Waits for an attempt, if nothing is known of the upstream, for a proof that is cheaper before an
/// upstream with watch-lists. The wait is short beside the proof. Cancel safe: the attempt goes on.
pub(crate) async fn learn_support(cached: &Arc<CachedResource>) {
    if cached.context.watch_list.last_answer().is_none() {
        learn_if_needed(cached, PROOF_WAIT).await;
    }
}

/// Makes an attempt, and returns whether it brought an answer.
async fn learn(cached: &CachedResource) -> bool {
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
        Ok(Ok(true)) => {
            support.set_supported();
            return cached.learned.has_bookmark();
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
        Ok(Ok(false)) | Err(_) => {}
    }
    false
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
                UpstreamEvent::Upsert(_)
                | UpstreamEvent::Delete(_)
                | UpstreamEvent::Unreadable { .. } => {}
            }
        }
    }
    Ok(false)
}

/// The time-out in seconds of a watch-list of no objects. The upstream waits at most three seconds
/// for its own cache.
const ATTEMPT_SECONDS: u32 = 5;
/// The longest wait of a proof for an attempt.
const PROOF_WAIT: Duration = Duration::from_millis(250);
