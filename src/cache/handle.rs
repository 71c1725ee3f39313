//! The interface of one cache to the server.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::media_type::View;
use crate::api::resource::{ApiResource, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::{WatchCache, WatchRefusal};
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};
use crate::cache::proof::{self, FreshState};
use crate::cache::refusal::Refusal;

/// A cache in use. The cache is not idle while it has a handle. Cheap to clone: each clone counts
/// as a use of its own.
pub struct CacheHandle {
    cached: Arc<CachedResource>,
}

impl CacheHandle {
    /// Counts a use of the cache. Must be called while the registry's shard is locked or while
    /// there is another handle, so that the cache is not found idle meanwhile.
    pub(crate) fn new(cached: Arc<CachedResource>) -> Self {
        cached.usage.begin();
        Self { cached }
    }

    /// Returns the definition of the resource.
    pub fn resource(&self) -> &Arc<ApiResource> {
        &self.cached().resource
    }

    /// Returns the scope of the cache: the cluster or one namespace. The cache of the cluster
    /// answers for any namespace.
    pub fn scope(&self) -> &Scope {
        &self.cached().key.scope
    }

    /// Returns the watch cache.
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cached().watch_cache
    }

    /// Waits at most `timeout` until the cache has its first complete state. Fails as soon as the
    /// cache has stopped. After `Forbidden` for a cache of the cluster, a cache of one namespace
    /// may still be allowed; [`Registry::ready`] tries that.
    ///
    /// [`Registry::ready`]: crate::cache::registry::Registry::ready
    pub async fn wait_until_ready(&self, timeout: Duration) -> Result<(), Refusal> {
        if self.cache().state().is_some() {
            return Ok(());
        }
        let _waiter = self.cached().usage.add_ready_waiter().ok_or(Refusal::NotReady)?;
        let mut progress = self.cache().progress();
        let ready = async { progress.wait_for(Option::is_some).await.is_ok() };
        self.wait(timeout, ready, Refusal::NotReady).await
    }

    /// Waits at most `timeout` until the cache is complete up to `resource_version`
    /// (`docs/semantics.md` §2.1).
    pub async fn wait_until_fresh(
        &self,
        resource_version: ResourceVersion,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let reached = |held: &Option<ResourceVersion>| *held >= Some(resource_version);
        let mut progress = self.cache().progress();
        if reached(&progress.borrow()) {
            return Ok(());
        }
        let fresh = async { progress.wait_for(reached).await.is_ok() };
        self.wait(timeout, fresh, Refusal::NotFresh).await
    }

    /// Returns a resourceVersion that is at least that of every write acknowledged before this
    /// call, by a probe (`docs/decisions/consistent-starts.md`). Concurrent calls share probes. The
    /// cache may not have reached the resourceVersion yet.
    pub async fn upstream_resource_version(
        &self,
        timeout: Duration,
    ) -> Result<ResourceVersion, Refusal> {
        let probed = tokio::time::timeout(timeout, proof::probe(self.cached())).await;
        probed.unwrap_or(Err(Refusal::NotFresh))
    }

    /// Finds a state with which a watch may begin (`docs/decisions/consistent-starts.md`). It is
    /// not older than `requested`, or for `None` than `since`, the arrival of the request. Call
    /// this once the cache is ready. Fails with `NotFresh` if no proof was found within `timeout`.
    pub async fn fresh_state(
        &self,
        requested: Option<ResourceVersion>,
        since: Instant,
        timeout: Duration,
    ) -> Result<FreshState, Refusal> {
        let cached = self.cached();
        // The first list of a cache that was started for this request is the proof.
        if requested.is_none() && cached.lifecycle.is_listed_since(since) {
            cached.series.proof("held", Duration::ZERO);
            return Ok(FreshState::Held);
        }
        tokio::select! {
            biased;
            fresh = proof::fresh_state(cached, requested, timeout) => fresh,
            Some(end) = cached.lifecycle.ended() => Err(end),
        }
    }

    /// Returns a receiver of whether the upstream's watch is open and its events are applied as
    /// they arrive. A dead connection counts as open until that is detected; [`Self::is_current`]
    /// detects it.
    pub fn watching(&self) -> watch::Receiver<bool> {
        self.cached().lifecycle.watching()
    }

    /// Checks by a watch of three seconds from the held resourceVersion whether the cache has, at
    /// some moment after this call, everything that an instance of the upstream has. Returns false
    /// if that was not shown within `timeout`. Cancel safe.
    pub async fn is_current(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, proof::is_current(self.cached())).await.unwrap_or(false)
    }

    /// Starts a watch with a fresh state.
    pub fn watch_from(
        &self,
        filter: WatchFilter,
        state: &FreshState,
    ) -> Result<Watcher, WatchRefusal> {
        match state {
            FreshState::Held => self.cache().watch(filter, WatchStart::InitialEvents),
            FreshState::Listed(listed) => self
                .cached()
                .generation
                .run_in(listed.generation, |cache| cache.watch_from(filter, &listed.state))
                .unwrap_or(Err(WatchRefusal::NotReady)),
        }
    }

    /// Whether the resourceVersion `after`, from which a client wants to watch, is known to belong
    /// to a lost history of the upstream (`docs/decisions/rewound-history.md`). Such a watch would
    /// be silent until the new history has passed `after`, and then continue at a point that its
    /// client has never seen, so it is answered as too old. Sends a probe only if a rewind was
    /// detected and the cache has not reached `after`.
    ///
    /// Limit: once the new history has passed it, a resourceVersion of the lost history cannot be
    /// detected any more.
    pub async fn is_lost(&self, after: ResourceVersion, timeout: Duration) -> bool {
        let Some(lost) = self.cached().context.history.highest_lost() else { return false };
        if *self.cache().progress().borrow() >= Some(after) {
            return false;
        }
        match tokio::time::timeout(timeout, self.cached().proofs.probes.resource_version()).await {
            Ok(Ok(revision)) => revision < after,
            // On failure assume that the resourceVersion is lost: an unnecessary relist is better
            // than a watch that never delivers.
            _ => after <= lost,
        }
    }

    /// Returns a BOOKMARK frame in `view`, once the form of a bookmark of this resource is known.
    pub fn bookmark(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Option<Bytes> {
        self.cached().learned.bookmark(resource_version, initial_events_end, view)
    }

    /// Returns the `Warning` headers that the upstream sends with this resource. Responses from the
    /// cache carry them too (`docs/semantics.md` §8.8).
    pub fn warnings(&self) -> Arc<Vec<HeaderValue>> {
        self.cached().learned.warnings()
    }

    /// Whether the upstream supports watch-lists: it then accepts `sendInitialEvents` and sends the
    /// initial-events-end bookmark unrequested (`docs/semantics.md` §1.4). Clients of an
    /// upstream without watch-lists must get neither. `None` while it is unknown.
    pub fn upstream_has_watch_list(&self) -> Option<bool> {
        let support = &self.cached().context.watch_list;
        support.is_known().then(|| support.is_supported())
    }

    fn cached(&self) -> &Arc<CachedResource> {
        &self.cached
    }

    /// Waits for `done`, for the end of the cache or for `timeout`, whichever is first. Returns
    /// `late` at the time-out.
    async fn wait(
        &self,
        timeout: Duration,
        done: impl Future<Output = bool>,
        late: Refusal,
    ) -> Result<(), Refusal> {
        tokio::select! {
            biased;
            true = done => Ok(()),
            end = self.cached().lifecycle.ended() => Err(end.unwrap_or(late)),
            () = tokio::time::sleep(timeout) => Err(late),
        }
    }
}

impl fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheHandle").field(&self.cached().key).finish()
    }
}

impl Clone for CacheHandle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.cached))
    }
}

impl Drop for CacheHandle {
    fn drop(&mut self) {
        self.cached.usage.end();
    }
}
