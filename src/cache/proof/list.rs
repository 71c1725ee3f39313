//! A second list of a small collection. Waiting watches begin with its state.
//!
//! The watch cache and its stream do not change. The listed state cannot replace the cache's own
//! state: an object that was created and deleted again since the cache's resourceVersion is in no
//! list, but the present watchers must get both events. They get them from the stream.

use std::sync::Arc;
use std::time::Duration;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::progress::PROBE_TIMEOUT;
use crate::cache::proof::listed_state::{ListProof, ListedState};
use crate::cache::watch_list_attempt::{PROOF_WAIT, learn};
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::ListRequest;

/// Whether the collection is small enough for a second list.
pub(super) fn is_small(cached: &CachedResource) -> bool {
    cached
        .watch_cache
        .state()
        .is_some_and(|state| state.len() <= OBJECTS_MAX && state.store().weight() <= BYTES_MAX)
}

/// Lists at not older than `needed`, unless an event brings the cache there first.
pub(super) async fn list(cached: Arc<CachedResource>, needed: ResourceVersion) -> ListProof {
    if cached.reaches_within(needed, PROOF_LIST_DELAY).await {
        return ListProof::Overtaken;
    }
    let generation = cached.writer.generation();
    let Ok(_slot) = cached.context.proof_lists.acquire().await else { return ListProof::Failed };
    if cached.context.budget.is_exhausted() {
        return ListProof::Failed;
    }
    let page = match with_timeout(PROBE_TIMEOUT, fetch(&cached, needed)).await {
        Ok(page) => page,
        Err(error) => {
            tracing::debug!(%error, "the list for a proof of freshness failed");
            return ListProof::Failed;
        }
    };
    let weight: usize = page.objects.iter().map(Object::weight).sum();
    let is_whole = page.continue_token.is_empty() && weight <= BYTES_MAX * GROWTH_FACTOR;
    if !is_whole || page.resource_version < needed {
        return ListProof::Failed;
    }
    if !cached.is_same_origin(generation).await {
        return ListProof::Failed;
    }
    cached.context.history.observe(page.resource_version);
    let Some(present) = cached.watch_cache.state() else { return ListProof::Failed };
    let at = page.resource_version;
    let (state, weight) = present.with_list(page.into_objects(), at);
    let claim = cached.context.budget.claim(weight);
    let listed = ListedState { state: Arc::new(state), generation, _claim: claim };
    let listed = Arc::new(listed);
    cached.gate.show(&listed);
    ListProof::Listed(listed)
}

async fn fetch(
    cached: &Arc<CachedResource>,
    needed: ResourceVersion,
) -> Result<ListPage, UpstreamError> {
    // Otherwise the list is consistent, which takes the upstream longer.
    learn(cached, PROOF_WAIT).await;
    let can_request_progress = cached.context.watch_list.is_supported();
    let request = ListRequest {
        limit: u32::try_from(OBJECTS_MAX * GROWTH_FACTOR).ok(),
        resource_version: can_request_progress.then_some(needed),
        resource_version_match: if can_request_progress { "NotOlderThan" } else { "" },
        ..ListRequest::default()
    };
    cached.upstream.list(request).await
}

/// How long to wait for an event before the upstream is asked for a whole collection.
const PROOF_LIST_DELAY: Duration = Duration::from_millis(5);
/// The number of objects up to which a collection is small. A watch that begins at the upstream
/// costs the upstream as much as this list, which serves many watches.
const OBJECTS_MAX: usize = 1000;
/// The weight in bytes up to which a collection is small. Such a list takes the upstream and Weir
/// some ten milliseconds.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// The factor by which a collection may have grown when the list arrives.
const GROWTH_FACTOR: usize = 2;
