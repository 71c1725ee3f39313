//! The handle by which the server uses one cache.

mod age;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::media_type::View;
use crate::api::resource::{ApiResource, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::api::trace_context::{SpanId, TraceId};
use crate::cache::backfill::{self, Reach};
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::{CacheReader, Now, State, WatchRefusal};
use crate::cache::core::watcher::{WatchFilter, WatchStart, Watcher};
use crate::cache::key::CacheKey;
use crate::cache::progress::Probed;
use crate::cache::proof::consistent_list::{self, NoProof};
use crate::cache::proof::{self, FreshState};
use crate::cache::refusal::Refusal;
use crate::cache::watch_list_attempt;

/// A handle to a cache. A cache with a handle counts as used, and is not stopped as idle. Cheap to
/// clone: each clone counts as another use.
pub struct CacheHandle {
    cached: Arc<CachedResource>,
}

impl CacheHandle {
    /// Counts a use of the cache. Must be called while the registry's shard is locked or while
    /// there is another handle. Otherwise the registry could stop the cache as idle before the
    /// use is counted.
    pub(crate) fn new(cached: Arc<CachedResource>) -> Self {
        cached.usage.begin();
        Self { cached }
    }

    /// Returns the definition of the resource.
    pub fn resource(&self) -> &Arc<ApiResource> {
        &self.cached.resource
    }

    /// Returns the scope of the cache: the cluster or one namespace. The cache of the cluster
    /// answers for any namespace.
    pub fn scope(&self) -> &Scope {
        &self.cached.key.scope
    }

    /// Returns the watch cache.
    pub fn cache(&self) -> &CacheReader {
        &self.cached.watch_cache
    }

    /// Returns the newest state that a client of this cache may have been shown: that of the watch
    /// cache, or a newer one that was listed for a proof of freshness. `None` while there is none.
    pub fn newest_state(&self) -> Option<Arc<State>> {
        self.cached.gate.state()
    }

    /// Returns the start of a watch that begins with [`Self::newest_state`].
    pub fn newest_start(&self) -> FreshState {
        proof::newest_state(&self.cached)
    }

    /// Returns the start of a watch of the events to come: those after [`Self::newest_state`].
    pub fn start_now(&self) -> WatchStart {
        let listed = self.cached.gate.listed();
        listed.map_or(WatchStart::Now, |listed| WatchStart::After(listed.resource_version()))
    }

    /// Waits at most `timeout` until the cache has its first complete state. Fails with the reason
    /// as soon as the cache has stopped, and with `NotReady` at the time-out or if too many
    /// requests wait already. If a cache of the whole cluster is `Forbidden`, a cache of one
    /// namespace may still be allowed; the registry tries that. The state may be older than the
    /// cache ([`Self::wait_until_caught_up`]).
    pub async fn wait_until_ready(&self, timeout: Duration) -> Result<(), Refusal> {
        if self.cache().state().is_some() {
            return Ok(());
        }
        // The earlier cache did not fit either. Only if this one does, requests wait no more.
        if self.cached.lifecycle.was_over_budget {
            return Err(Refusal::OverBudget);
        }
        let _waiter = self.cached.usage.add_ready_waiter().ok_or(Refusal::NotReady)?;
        let mut progress = self.cache().progress();
        let ready = async { progress.wait_for(Option::is_some).await.is_ok() };
        self.wait(timeout, ready, Refusal::NotReady).await
    }

    /// Notes that a watcher wants to start at `after`, if `may_begin` allows the cache to begin
    /// there. Has an effect only until the cache has begun.
    pub(crate) fn ask_start(
        &self,
        after: ResourceVersion,
        may_begin: impl Fn(&CacheKey, ResourceVersion) -> bool,
    ) {
        if may_begin(&self.cached.key, after) {
            self.cached.lifecycle.ask_start(after);
        }
    }

    /// Waits at most `timeout` until the state is not one from before the cache was created. A
    /// cache that began where its first watcher wants to start has such a state, until it has
    /// reached a resourceVersion that the upstream returned after that. Only watches from a
    /// resourceVersion may use it, and those that find a proof of freshness of their own.
    pub async fn wait_until_caught_up(&self, timeout: Duration) -> Result<(), Refusal> {
        let gate = &self.cached.gate;
        if !gate.is_behind() {
            return Ok(());
        }
        let _waiter = self.cached.usage.add_ready_waiter().ok_or(Refusal::NotReady)?;
        self.wait(timeout, gate.opened(), Refusal::NotReady).await
    }

    /// Returns the span of the list by which the reflector filled the cache, unless that list had
    /// ended before `moment`. `None` if it is not traced.
    pub(crate) fn list_span_since(&self, moment: Instant) -> Option<(TraceId, SpanId)> {
        self.cached.latest_list.span_since(moment)
    }

    /// Whether the cache has a state that any read may use.
    pub fn is_ready(&self) -> bool {
        self.cached.is_ready()
    }

    /// Waits at most `timeout` until the held history is known to be the upstream's present one,
    /// and returns whether it is. Only then may a state or an event of it follow what the upstream
    /// has shown to a client (`docs/decisions/rewound-history.md`). While no API server is usable,
    /// the held history counts as the present one.
    pub async fn is_joined(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, self.cached.is_joined()).await.unwrap_or(false)
    }

    /// Waits at most `timeout` until [`Self::newest_state`] has every change up to
    /// `resource_version` (`docs/semantics.md` §2.1). Fails with `NotFresh` at the time-out.
    pub async fn wait_until_fresh(
        &self,
        resource_version: ResourceVersion,
        timeout: Duration,
    ) -> Result<(), Refusal> {
        let reached = |held: &Option<ResourceVersion>| *held >= Some(resource_version);
        let mut progress = self.cache().progress();
        if reached(&self.cached.gate.resource_version()) {
            return Ok(());
        }
        let fresh = async { progress.wait_for(reached).await.is_ok() };
        self.wait(timeout, fresh, Refusal::NotFresh).await
    }

    /// Sends a probe (`docs/decisions/proofs-of-freshness.md`), and returns its resourceVersion.
    /// This is not below that of any write acknowledged before this call, and the cache may not
    /// have reached it yet. Concurrent calls share probes. Fails with `NotFresh` at the time-out.
    pub async fn upstream_resource_version(
        &self,
        timeout: Duration,
    ) -> Result<ResourceVersion, Refusal> {
        let probed = tokio::time::timeout(timeout, proof::probe(&self.cached)).await;
        probed.unwrap_or(Err(Refusal::NotFresh))
    }

    /// Returns the response to a probe for a client whose list is the same request. Fails as
    /// [`Self::upstream_resource_version`] does.
    pub(crate) async fn first_page(&self, timeout: Duration) -> Result<Arc<Probed>, Refusal> {
        let page = tokio::time::timeout(timeout, proof::first_page(&self.cached)).await;
        page.unwrap_or(Err(Refusal::NotFresh))
    }

    /// Returns a state with which a watch may begin (`docs/decisions/proofs-of-freshness.md`). The
    /// state is not older than `requested`. If that is `None`, it is not older than `since`, the
    /// arrival of the request. Call this once the cache is ready. Fails with `NotFresh` if no proof
    /// was found within `timeout`.
    pub async fn fresh_state(
        &self,
        requested: Option<ResourceVersion>,
        since: Instant,
        timeout: Duration,
    ) -> Result<FreshState, Refusal> {
        let cached = &self.cached;
        // If the cache was started after the request arrived, its first list is the proof.
        if requested.is_none() && cached.is_listed_since(since) {
            cached.series.proof("held", Duration::ZERO);
            return Ok(self.newest_start());
        }
        tokio::select! {
            biased;
            fresh = proof::fresh_state(cached, requested, timeout) => fresh,
            Some(end) = cached.lifecycle.ended() => Err(end),
        }
    }

    /// Returns a state that is not older than `since`, the arrival of a consistent list
    /// (`docs/decisions/proofs-of-freshness.md`). Call this if the cache is ready. `forwarding` is
    /// how long the same list took when it was forwarded; without a proof it is to be forwarded
    /// again.
    pub(crate) async fn consistent_state(
        &self,
        since: Instant,
        forwarding: Option<Duration>,
        timeout: Duration,
    ) -> Result<Arc<State>, NoProof> {
        let cached = &self.cached;
        let fresh = if cached.is_listed_since(since) {
            FreshState::Held
        } else {
            tokio::select! {
                biased;
                fresh = consistent_list::consistent_state(cached, forwarding, timeout) => fresh?,
                Some(_end) = cached.lifecycle.ended() => return Err(NoProof::NotTried),
            }
        };
        self.state_of(&fresh).ok_or(NoProof::Late)
    }

    /// Returns the state of a proof; `None` if the upstream's history was rewound after it, or if
    /// the cache has none any more.
    pub(crate) fn state_of(&self, fresh: &FreshState) -> Option<Arc<State>> {
        match fresh {
            FreshState::Held => self.newest_state(),
            FreshState::Listed(listed) => {
                let is_ready = |cache: &CacheReader| cache.state().is_some();
                let is_valid = self.cached.writer.read_in(listed.generation, is_ready)?;
                is_valid.then(|| Arc::clone(&listed.state))
            }
        }
    }

    /// Returns a receiver whose value is true while the cache's watch of the upstream is open and
    /// its events are applied as they arrive. The value stays true while the connection is dead and
    /// this was not detected yet; [`Self::is_current`] detects it.
    pub fn watching(&self) -> watch::Receiver<bool> {
        self.cached.lifecycle.watching()
    }

    /// Returns whether, at some moment after this call, the cache had every event that an instance
    /// of the upstream had. Opens a second watch of three seconds from the held resourceVersion for
    /// this. Returns false if the watch did not show it within `timeout`. Cancel safe.
    pub async fn is_current(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, proof::is_current(&self.cached)).await.unwrap_or(false)
    }

    /// Starts a watch whose initial state is `state`. Fails with `NotReady` if `state` was
    /// listed by a proof and the upstream's history was rewound after that list.
    pub fn watch_from(
        &self,
        filter: WatchFilter,
        state: &FreshState,
    ) -> Result<Watcher, WatchRefusal> {
        match state {
            FreshState::Held => self.cache().watch(filter, WatchStart::InitialEvents),
            FreshState::Listed(listed) => self
                .cached
                .writer
                .read_in(listed.generation, |cache| cache.watch_from(filter, &listed.state))
                .unwrap_or(Err(WatchRefusal::NotReady)),
        }
    }

    /// Starts a watch after `after`. If that is below the cache's first list, extends the history
    /// back to it first, and waits at most `timeout` for that (`docs/decisions/older-watches.md`).
    /// Fails with `Expired` and `began_after` only if the upstream did not show whether it still
    /// has the events.
    pub async fn watch_after(
        &self,
        filter: WatchFilter,
        after: ResourceVersion,
        timeout: Duration,
    ) -> Result<Watcher, WatchRefusal> {
        let start = WatchStart::After(after);
        let oldest = match self.cache().watch(filter.clone(), start) {
            Err(WatchRefusal::Expired { began_after: true, oldest }) => oldest,
            begun => return begun,
        };
        let Some(_waiter) = self.cached.usage.add_ready_waiter() else {
            return Err(WatchRefusal::Expired { oldest, began_after: true });
        };
        let reach = backfill::reach(&self.cached, after);
        match tokio::time::timeout(timeout, reach).await {
            Ok(Reach::Reached) => self.cache().watch(filter, start),
            Ok(Reach::Expired) => {
                let oldest = self.cached.backfill.named_above(after).unwrap_or(oldest);
                Err(WatchRefusal::Expired { oldest, began_after: false })
            }
            Ok(Reach::Unknown) | Err(_) => Err(WatchRefusal::Expired { oldest, began_after: true }),
        }
    }

    /// Returns whether `after`, the resourceVersion from which a client wants to watch, is known to
    /// belong to a history that the upstream has lost (`docs/decisions/rewound-history.md`), or to
    /// a state that was proved wrong. The caller refuses the watch with status 410 (Expired). A
    /// resourceVersion up to the highest lost one counts as lost if the cache's first list is above
    /// it or still to come. Sends a probe only after a rewind, and if `after` is not reached.
    pub async fn is_lost(&self, after: ResourceVersion, timeout: Duration) -> bool {
        let lost = self.cached.context.history.highest_lost();
        match self.cache().state() {
            Some(state) if state.history().may_be_lost(after) => return true,
            Some(state) if state.resource_version() >= after => return false,
            None if lost >= Some(after) => return true,
            _ if lost.is_none() => return false,
            _ => {}
        }
        let probed = self.cached.proofs.probes.probed(self.cached.probe_gap());
        match tokio::time::timeout(timeout, probed).await {
            Ok(Ok(probed)) => probed.page.resource_version < after,
            // On failure assume that the resourceVersion is lost: an unnecessary relist is better
            // than a watch that never delivers.
            _ => lost >= Some(after),
        }
    }

    /// Observes the delivery of an event that was received at `received`, to a watch of this age.
    /// An event from before the watch is not late.
    pub fn note_delivered(&self, received: Now, age: Duration) {
        let context = &self.cached.context;
        let delay = context.clock.now().0.saturating_sub(received.0);
        if delay <= age {
            context.metrics.written(delay);
            self.cached.series.delayed(delay);
        }
    }

    /// Returns the `Warning` headers that the upstream sends with this resource. Responses from the
    /// cache carry them too (`docs/semantics.md` §8.8).
    pub fn warnings(&self) -> Guard<Arc<Vec<HeaderValue>>> {
        self.cached.learned.warnings()
    }

    /// Returns a BOOKMARK frame in `view`. Its bytes may differ from the upstream's until one of
    /// the upstream's was seen (`docs/semantics.md` §0.3).
    pub fn bookmark(&self, at: ResourceVersion, ends_initial: bool, view: View) -> Option<Bytes> {
        self.cached.learned.bookmark(at, ends_initial, view)
    }

    /// Returns whether the upstream supports watch-lists; `None` if it did not show that within
    /// `timeout`. One that does accepts `sendInitialEvents`, and sends the initial-events-end
    /// bookmark without a request for bookmarks (`docs/semantics.md` §1.4). If the upstream has no
    /// watch-lists, Weir's clients must get neither.
    pub async fn upstream_has_watch_list(&self, timeout: Duration) -> Option<bool> {
        watch_list_attempt::learn(&self.cached, timeout).await;
        self.cached.context.watch_list.last_answer()
    }

    /// Returns whether the upstream compresses watch-lists for clients that accept gzip, as far as
    /// it has shown that within `timeout`.
    pub async fn upstream_compresses_watch_lists(&self, timeout: Duration) -> bool {
        watch_list_attempt::learn_compression(&self.cached, timeout).await;
        self.cached.context.watch_list.is_compressed() == Some(true)
    }

    /// Returns the cache that this handle keeps in use.
    pub(crate) fn cached_resource(&self) -> &Arc<CachedResource> {
        &self.cached
    }

    /// Whether the cache holds a single namespace.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.cached.key.is_namespaced()
    }

    /// Waits for `done`, for the end of the cache or for `timeout`, whichever is first. Fails with
    /// the reason of the end, or with `late` at the time-out.
    async fn wait(
        &self,
        timeout: Duration,
        done: impl Future<Output = bool>,
        late: Refusal,
    ) -> Result<(), Refusal> {
        tokio::select! {
            biased;
            true = done => Ok(()),
            end = self.cached.lifecycle.ended() => Err(end.unwrap_or(late)),
            () = tokio::time::sleep(timeout) => Err(late),
        }
    }
}

impl fmt::Debug for CacheHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheHandle").field(&self.cached.key).finish()
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
