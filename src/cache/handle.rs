//! One cache as the server uses it.

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

/// A cache in use; while one of these lives the cache is not idle. Cheap to clone: each clone is a use of its own.
pub struct CacheHandle {
    cached: Arc<CachedResource>,
}

impl CacheHandle {
    /// Counts a use of the cache. Called with the registry's shard held, or while another handle lives, so that a cache cannot be found idle in between.
    pub(crate) fn new(cached: Arc<CachedResource>) -> Self {
        cached.usage.begin();
        Self { cached }
    }

    /// What discovery says of the resource.
    pub fn resource(&self) -> &Arc<ApiResource> {
        &self.cached().resource
    }

    /// What of the resource the cache holds. A cluster's cache answers for any namespace in it.
    pub fn scope(&self) -> &Scope {
        &self.cached().key.scope
    }

    /// The watch cache.
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cached().watch_cache
    }

    /// Waits until the cache has its first complete state. Fails as soon as it is known that it will not have one:
    /// with `Forbidden` for a cluster-wide cache, one namespace may still be allowed ([`Registry::ready`] tries).
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

    /// Waits until the cache has been shown to have everything up to a resourceVersion (semantics.md §2.1).
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

    /// A resourceVersion not below that of anything that was written before this call: step 1 of the design, section 5. Concurrent calls
    /// share probes. The cache may not be there yet.
    pub async fn upstream_resource_version(
        &self,
        timeout: Duration,
    ) -> Result<ResourceVersion, Refusal> {
        let probed = tokio::time::timeout(timeout, proof::probe(self.cached())).await;
        probed.unwrap_or(Err(Refusal::NotFresh))
    }

    /// Finds a state for a watch to begin with that is not older than `asked`, or for `None` than `since`, when the request had arrived: steps 1
    /// to 4 of the design, section 5. To be called once the cache is ready. `NotFresh` if no proof was found in time.
    pub async fn fresh_state(
        &self,
        requested: Option<ResourceVersion>,
        since: Instant,
        timeout: Duration,
    ) -> Result<FreshState, Refusal> {
        let cached = self.cached();
        // One that began for this request needs no other proof than its first list.
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

    /// Whether the upstream's watch is open and its events are applied as they come, to be awaited. A connection that is dead without knowing
    /// counts as open for as long as nobody knows; [`Self::is_current`] tells.
    pub fn watching(&self) -> watch::Receiver<bool> {
        self.cached().lifecycle.watching()
    }

    /// Asks the upstream, by a watch of three seconds from what is held, whether the cache has, at some moment after this call, everything that an
    /// instance of the upstream has. False if that was not shown in time. Cancel safe.
    pub async fn is_current(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, proof::is_current(self.cached())).await.unwrap_or(false)
    }

    /// Begins a watch with a state.
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

    /// Whether a resourceVersion from which a client wants to watch is known to be of a history that the upstream has lost. Such a watch
    /// would be silent until the new history has passed it, and then go on where its client never was, so it is answered as too
    /// old. Asks the upstream, but only after a rewind was found and only for what the cache has not reached.
    ///
    /// What cannot be told: once the new history has passed it, a resourceVersion of the lost one looks like any other.
    pub async fn is_lost(&self, after: ResourceVersion, timeout: Duration) -> bool {
        let Some(lost) = self.cached().context.history.highest_lost() else { return false };
        if *self.cache().progress().borrow() >= Some(after) {
            return false;
        }
        match tokio::time::timeout(timeout, self.cached().proofs.probes.resource_version()).await {
            Ok(Ok(revision)) => revision < after,
            // A list that was not needed is better than silence.
            _ => after <= lost,
        }
    }

    /// A BOOKMARK frame in a view, once the resource's bookmark has been learnt.
    pub fn bookmark(
        &self,
        resource_version: ResourceVersion,
        initial_events_end: bool,
        view: View,
    ) -> Option<Bytes> {
        self.cached().learned.bookmark(resource_version, initial_events_end, view)
    }

    /// The `Warning` headers that the upstream sends with this resource; answers from the cache carry them too
    /// (semantics.md §8.8).
    pub fn warnings(&self) -> Arc<Vec<HeaderValue>> {
        self.cached().learned.warnings()
    }

    /// Whether the upstream has watch-list, and so takes `sendInitialEvents` and sends the unasked initial-events-end bookmark
    /// (semantics.md §1.4); clients of an upstream that lacks it must be sent neither. `None` while it is not known.
    pub fn upstream_has_watch_list(&self) -> Option<bool> {
        let support = &self.cached().context.watch_list;
        support.is_known().then(|| support.is_supported())
    }

    fn cached(&self) -> &Arc<CachedResource> {
        &self.cached
    }

    /// Waits for `done`, for the cache's end or for the time-out, whichever comes first.
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
