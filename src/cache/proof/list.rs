//! A second list of a small collection, whose state waiting watches begin with. Store and stream of the cache go on untouched.
//!
//! It is no new state for the cache itself: what was created and deleted again since the cache's own resourceVersion shows in no list, and watchers
//! that are already there are owed it. They get it from the stream.

use std::sync::Arc;
use std::time::Duration;

use crate::api::resource_version::ResourceVersion;
use crate::cache::budget::Claim;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::State;
use crate::cache::progress::PROBE_TIMEOUT;
use crate::cache::proof::reaches_within;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::upstream::bounded::with_timeout;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::ListRequest;

/// A state that was listed besides the stream. It shares with the cache's present one what is equal; what is not counts against the budget for as long as
/// requests wait with it. A watcher that takes long over it keeps it, as it would any state of the cache.
#[derive(Debug)]
pub struct ListedState {
    pub(crate) state: Arc<State>,
    /// The number of rewinds after which it was listed.
    pub(crate) generation: u64,
    _claim: Claim,
}

impl ListedState {
    /// That of the list.
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.resource_version()
    }
}

/// Whether a second list of it costs little.
pub(super) fn is_small(cached: &CachedResource) -> bool {
    cached
        .watch_cache
        .state()
        .is_some_and(|state| state.len() <= OBJECTS_MAX && state.store().weight() <= BYTES_MAX)
}

/// What a second list came to.
#[derive(Clone, Debug)]
pub(super) enum ListProof {
    /// It failed, or the collection has become large.
    Failed,
    /// An event has brought the cache there before it was sent.
    Overtaken,
    /// A state.
    Listed(Arc<ListedState>),
}

/// Lists at not older than `needed`, unless an event that is on its way makes it needless.
pub(super) async fn list(cached: Arc<CachedResource>, needed: ResourceVersion) -> ListProof {
    if reaches_within(&mut cached.watch_cache.progress(), needed, PROOF_LIST_DELAY).await {
        return ListProof::Overtaken;
    }
    let generation = cached.generation();
    let Ok(_slot) = cached.context.proof_lists.acquire().await else { return ListProof::Failed };
    if cached.context.budget.is_spent() {
        return ListProof::Failed;
    }
    let page = match with_timeout(PROBE_TIMEOUT, fetch(&cached, needed)).await {
        Ok(page) => page,
        Err(error) => {
            tracing::debug!(%error, "a second list failed");
            return ListProof::Failed;
        }
    };
    let weight: usize = page.objects.iter().map(Object::weight).sum();
    let is_whole = page.continue_token.is_empty() && weight <= BYTES_MAX * GROWTH_FACTOR;
    if !is_whole || page.resource_version < needed {
        return ListProof::Failed;
    }
    cached.context.observe(page.resource_version);
    let Some(present) = cached.watch_cache.state() else { return ListProof::Failed };
    let (state, weight) = present.with_list(page.objects, page.resource_version);
    let claim = cached.context.budget.claim(weight);
    ListProof::Listed(Arc::new(ListedState { state: Arc::new(state), generation, _claim: claim }))
}

async fn fetch(
    cached: &CachedResource,
    needed: ResourceVersion,
) -> Result<ListPage, UpstreamError> {
    let can_request_progress = cached.context.watch_list.is_supported();
    let request = ListRequest {
        limit: u32::try_from(OBJECTS_MAX * GROWTH_FACTOR).ok(),
        resource_version: can_request_progress.then_some(needed),
        resource_version_match: if can_request_progress { "NotOlderThan" } else { "" },
        ..ListRequest::default()
    };
    cached.proofs.upstream.list(request).await
}

/// How long an event that is on its way may take before the upstream is asked for the whole of a small collection.
const PROOF_LIST_DELAY: Duration = Duration::from_millis(5);
/// The most objects that a small collection has. A watch that begins directly costs the upstream as much as this list, which serves many.
const OBJECTS_MAX: usize = 1000;
/// The most that they may weigh, in bytes: a list of it takes the upstream and us some ten milliseconds.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// By how much it may have grown when the list comes.
const GROWTH_FACTOR: usize = 2;
