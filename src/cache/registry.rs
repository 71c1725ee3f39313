//! The caches by group, version, resource, representation and scope: started on first use, stopped when idle.
//!
//! Who may have a cache is decided in this order: the configuration, discovery, what was learnt from earlier attempts (remembered
//! for a while, so that a resource that cannot be cached is not tried at every request), the budgets. A cache of the whole cluster answers for
//! each namespace; only where the upstream forbids that one does a namespace get a cache of its own.
//!
//! Invariants: at most one living cache a key. A cache that stops is remembered with its reason before it leaves the map, and leaves
//! the map before its waiters learn of it, so that whoever asks again is told the reason or gets a new one. Every task belongs to the tracker and ends with
//! the token.
//!
//! Lock order: a shard of `caches`, then nothing that waits. No shard is held across an await.

mod forward_budget;
mod high_water_marks;
mod housekeeping;
mod negative_cache;
pub(crate) mod source;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::reflector::StartOptions;
use crate::cache::refusal::Refusal;
use crate::cache::registry::forward_budget::ForwardBudget;
use crate::cache::registry::high_water_marks::HighWaterMarks;
use crate::cache::registry::negative_cache::NegativeCache;
use crate::cache::registry::source::{Source, UpstreamSource};
use crate::config::CacheConfig;
use crate::telemetry::cache_metrics::CacheMetrics;
use crate::upstream::Upstream;
use crate::upstream::discovery::Discovery;
use crate::upstream::error::UpstreamError;
use crate::upstream::version::UpstreamVersion;

pub use crate::cache::registry::forward_budget::ForwardPermit;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    source: Box<dyn Source>,
    context: Arc<CacheContext>,
    caches: DashMap<CacheKey, Arc<CachedResource>>,
    /// Not below the number of those in `caches` that are of one namespace: counted before one is put there, and after it was taken out.
    namespaced: AtomicUsize,
    negative_cache: NegativeCache,
    high_water_marks: HighWaterMarks,
    forward_budget: ForwardBudget,
    /// The warm resources whose first state, or final refusal, is still awaited.
    warming: DashMap<GroupVersionResource, ()>,
}

impl Registry {
    /// An empty registry. Caches run as tasks until [`Registry::shutdown`]. Must be called within a tokio runtime.
    pub fn new(
        config: Arc<CacheConfig>,
        upstream: Upstream,
        discovery: Discovery,
        metrics: CacheMetrics,
    ) -> Self {
        let source = UpstreamSource::new(upstream, discovery, config.resource_bytes_max);
        Self::with_source(config, Box::new(source), metrics)
    }

    /// One over any source of resources and lists; tests script it.
    pub(crate) fn with_source(
        config: Arc<CacheConfig>,
        source: Box<dyn Source>,
        metrics: CacheMetrics,
    ) -> Self {
        metrics.limits(config.resource_bytes_max, config.total_bytes_max);
        let inner = Arc::new(Inner {
            source,
            caches: DashMap::new(),
            namespaced: AtomicUsize::new(0),
            negative_cache: NegativeCache::new(),
            high_water_marks: HighWaterMarks::default(),
            forward_budget: ForwardBudget::new(config.forward_budget),
            warming: config.warm.iter().map(|gvr| (gvr.clone(), ())).collect(),
            context: Arc::new(CacheContext::new(config, metrics)),
        });
        inner.spawn_housekeeping();
        Self { inner }
    }

    /// What discovery says of a resource ([`Discovery::find`]); starts no cache.
    pub async fn find(
        &self,
        gvr: &GroupVersionResource,
    ) -> Result<Option<Arc<ApiResource>>, UpstreamError> {
        self.inner.source.find(gvr).await
    }

    /// The same without asking the upstream ([`Discovery::peek`]).
    pub fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
        self.inner.source.peek(gvr)
    }

    /// Whether the upstream reads pages from its watch cache ([`UpstreamVersion::has_snapshots`]); not as long as its version is not known.
    pub fn upstream_has_snapshots(&self) -> bool {
        let version = self.inner.source.version();
        version.borrow().as_ref().is_some_and(UpstreamVersion::has_snapshots)
    }

    /// Starts the caches that are kept warm, and starts them again if they stop.
    pub fn start_warm(&self) {
        self.inner.spawn_warming();
    }

    /// Finds the cache that can answer for a resource, in one namespace or (empty) in all, and starts it on first use. Does not wait
    /// for it to be ready.
    ///
    /// Whether Weir's identity may list a resource is only known once the upstream was asked. The cache that comes back may therefore be
    /// refused a moment later: [`CacheHandle::wait_until_ready`] then says `Forbidden`, and a second `get` for one namespace
    /// gives a cache of that namespace. [`Registry::ready`] does all of this.
    pub async fn get(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Result<CacheHandle, Refusal> {
        self.inner.get(gvr, namespace, representation, None).await
    }

    /// A cache that has its first complete state: finds or starts it, waits for it, and where the cluster-wide cache turns out to be
    /// forbidden, tries that of the namespace. What the server calls.
    pub async fn ready(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        timeout: Duration,
    ) -> Result<CacheHandle, Refusal> {
        self.ready_at(gvr, namespace, representation, None, timeout).await
    }

    /// Like [`Registry::ready`], for a watch that begins after a resourceVersion: should the cache begin now, it begins there if the upstream
    /// still can list at it, so that the watch finds it in the history (design, section 7). A cache that lives already is taken as it is.
    pub async fn ready_at(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        first_at: Option<ResourceVersion>,
        timeout: Duration,
    ) -> Result<CacheHandle, Refusal> {
        let deadline = Instant::now() + timeout;
        let find = self.inner.get(gvr, namespace, representation, first_at);
        let found = tokio::time::timeout_at(deadline, find).await;
        let handle = found.map_err(|_elapsed| Refusal::NotReady)??;
        let left = deadline.saturating_duration_since(Instant::now());
        match handle.wait_until_ready(left).await {
            Ok(()) => Ok(handle),
            Err(Refusal::Forbidden)
                if !namespace.is_empty() && *handle.scope() == Scope::Cluster =>
            {
                let handle = self.inner.get(gvr, namespace, representation, first_at).await?;
                let left = deadline.saturating_duration_since(Instant::now());
                handle.wait_until_ready(left).await.map(|()| handle)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// A place in the budget of forwarded lists and watches of this resource; held as long as the forwarded answer lasts.
    /// `None` when it is spent: the answer is then 429 (design, section 7). `known` tells whether
    /// discovery knows the resource; all unknown resources share one budget.
    pub fn forward_permit(&self, gvr: &GroupVersionResource, known: bool) -> Option<ForwardPermit> {
        self.inner.forward_budget.try_acquire(gvr, known, &self.inner.context.metrics)
    }

    /// The warm caches that have neither become ready nor been refused since the start: for `/readyz`. One that is lost later does not
    /// count, since its requests are forwarded.
    pub fn unready(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.inner.warming.iter().map(|gvr| gvr.key().to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Stops every reflector; caches keep their last state until dropped.
    pub async fn shutdown(&self) {
        self.inner.context.cancel.cancel();
        self.inner.context.tasks.close();
        self.inner.context.tasks.wait().await;
    }
}

impl Inner {
    async fn get(
        self: &Arc<Self>,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        first_at: Option<ResourceVersion>,
    ) -> Result<CacheHandle, Refusal> {
        if self.context.cancel.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        if let Some(handle) = self.lookup(gvr, namespace, representation) {
            return Ok(handle);
        }
        if self.is_excluded(gvr) {
            return Err(Refusal::Excluded);
        }
        let resource = self.discover(gvr).await?;
        let key = |scope| CacheKey { gvr: gvr.clone(), representation, scope };
        let cluster = key(Scope::Cluster);
        let namespace_key =
            (!namespace.is_empty()).then(|| key(Scope::Namespace(namespace.into())));
        match (self.negative_cache.get(&cluster).await, namespace_key) {
            (Some(Refusal::Forbidden), Some(namespace_key)) if resource.namespaced => {
                match self.negative_cache.get(&namespace_key).await {
                    Some(refusal) => Err(refusal),
                    None => self.start(namespace_key, resource, first_at),
                }
            }
            (Some(refusal), _) => Err(refusal),
            (None, _) => self.start(cluster, resource, first_at),
        }
    }

    /// A cache that lives: of the cluster if it can be, of the namespace if that one is further, lest a client that saw the one go
    /// back in time by the other. Both are of one resource, so that their resourceVersions compare. One look-up as long as no namespace has
    /// a cache of its own, which is nearly everywhere.
    fn lookup(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Option<CacheHandle> {
        // Only the one that is taken is used: the other may come to be idle.
        let find =
            |key: &CacheKey| self.caches.get(key).map(|cached| CacheHandle::new(cached.clone()));
        let key = |scope| CacheKey { gvr: gvr.clone(), representation, scope };
        let cluster = key(Scope::Cluster);
        if namespace.is_empty() || self.namespaced.load(Ordering::Acquire) == 0 {
            return find(&cluster);
        }
        let namespace_key = key(Scope::Namespace(namespace.into()));
        let reached =
            |key: &CacheKey| Some(self.caches.get(key)?.watch_cache.state()?.resource_version());
        let namespaced =
            if reached(&namespace_key) > reached(&cluster) { find(&namespace_key) } else { None };
        namespaced.or_else(|| find(&cluster)).or_else(|| find(&namespace_key))
    }

    fn is_excluded(&self, gvr: &GroupVersionResource) -> bool {
        let config = &self.context.config;
        config.exclude.iter().any(|pattern| pattern.matches(gvr))
            || !(config.include.is_empty() || config.include.iter().any(|p| p.matches(gvr)))
    }

    async fn discover(&self, gvr: &GroupVersionResource) -> Result<Arc<ApiResource>, Refusal> {
        match self.source.find(gvr).await {
            Ok(Some(resource)) => check(&resource).map(|()| resource),
            Ok(None) => Err(Refusal::Unknown),
            Err(error) => {
                tracing::debug!(%gvr, %error, "nothing is discovered yet");
                Err(Refusal::NotReady)
            }
        }
    }

    /// Takes the cache of a key, or begins it if the budgets allow.
    fn start(
        self: &Arc<Self>,
        key: CacheKey,
        resource: Arc<ApiResource>,
        first_at: Option<ResourceVersion>,
    ) -> Result<CacheHandle, Refusal> {
        if !self.caches.contains_key(&key) {
            self.make_space()?;
        }
        let vacant = match self.caches.entry(key.clone()) {
            Entry::Occupied(present) => return Ok(CacheHandle::new(present.get().clone())),
            Entry::Vacant(vacant) => vacant,
        };
        let generation = self.context.history.generation();
        // What may be of a lost history is no place to begin: the watcher that brought it would go on where it never was.
        let lost = self.context.history.highest_lost();
        let list_at = first_at
            .filter(|at| Some(*at) > lost && self.high_water_marks.allows(&key, *at, generation));
        let options =
            StartOptions { list_at, high_water_mark: self.high_water_marks.get(&key, generation) };
        let upstream = self.source.connect(&resource, key.representation, &key.scope);
        let context = Arc::clone(&self.context);
        let cached = Arc::new(CachedResource::new(
            key,
            resource,
            upstream.clone().dyn_list_watch(),
            context,
        ));
        if list_at.is_some() {
            cached.lifecycle.set_seeded_at_exact();
        }
        let handle = CacheHandle::new(cached.clone());
        self.namespaced.fetch_add(count_namespaced(&cached), Ordering::AcqRel);
        vacant.insert(cached.clone());
        let work = upstream.reflect(cached.clone(), options);
        let registry = Arc::clone(self);
        self.context.tasks.spawn(async move {
            // A defect met in one resource's objects must not take the others along (design, section 1.7).
            let refusal = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_panic| {
                tracing::error!(resource = %cached.key.gvr, "the reflector panicked; the resource is not cached");
                Refusal::Unreadable
            });
            registry.on_reflector_end(&cached, refusal).await;
        });
        Ok(handle)
    }

    /// Forgets a cache whose reflector ended; see the module for the order of things.
    async fn on_reflector_end(&self, cached: &Arc<CachedResource>, refusal: Refusal) {
        tracing::info!(
            resource = %cached.key.gvr,
            namespace = cached.key.namespace(),
            reason = refusal.as_str(),
            "cache stopped"
        );
        // What became of the resource of one that was leaving is discovery's to say, and a successor may live already.
        if !cached.lifecycle.is_retiring() {
            self.negative_cache.insert(&cached.key, refusal).await;
        }
        self.finish_warming(cached);
        self.raise_high_water_mark(cached);
        cached.series.retire();
        self.context.metrics.stopped(refusal.as_str());
        self.remove_if(cached, |_| true);
        cached.lifecycle.mark_ended(refusal);
        cached.account.close();
        // At shutdown the server ends its watches itself, spread out.
        if refusal != Refusal::Stopping {
            cached.watch_cache.invalidate(EndCause::Stopped);
        }
    }

    /// Takes a cache out of the map, if it is still there and the condition holds, of which the shard's lock is held: nobody can take it up in
    /// between.
    fn remove_if(
        &self,
        cached: &Arc<CachedResource>,
        condition: impl Fn(&CachedResource) -> bool,
    ) -> bool {
        let goes = |_: &CacheKey, present: &Arc<CachedResource>| {
            Arc::ptr_eq(present, cached) && condition(present)
        };
        let removed = self.caches.remove_if(&cached.key, goes).is_some();
        if removed {
            self.namespaced.fetch_sub(count_namespaced(cached), Ordering::AcqRel);
        }
        removed
    }

    /// Remembers how far a cache came, before a successor can begin.
    fn raise_high_water_mark(&self, cached: &CachedResource) {
        if let Some(state) = cached.watch_cache.state() {
            self.high_water_marks.raise(
                &cached.key,
                state.resource_version(),
                cached.generation.current(),
            );
        }
    }

    /// Takes note that a warm resource is ready, or will not be.
    fn finish_warming(&self, cached: &CachedResource) {
        if cached.is_warm() {
            self.warming.remove(&cached.key.gvr);
        }
    }
}

/// One for a cache of one namespace, none for one of the cluster.
fn count_namespaced(cached: &CachedResource) -> usize {
    usize::from(cached.key.is_namespaced())
}

/// Whether a resource may have a cache at all.
fn check(resource: &ApiResource) -> Result<(), Refusal> {
    if resource.aggregated {
        Err(Refusal::Aggregated)
    } else if !resource.list_watchable {
        Err(Refusal::NotWatchable)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
