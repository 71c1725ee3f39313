//! The caches of all resources: started on first use, and stopped when idle.
//!
//! Whether a resource may have a cache is decided in this order: the configuration, discovery,
//! earlier failed attempts (stored for a while, so that a resource that cannot be cached is not
//! tried again for every request), and the budgets. A cache of the whole cluster answers for each
//! namespace. A namespace has a cache of its own only where the upstream forbids to list the
//! cluster.
//!
//! Invariants: there is at most one running cache for each key. When a cache stops, its reason is
//! stored before it leaves the map, and it leaves the map before the requests that wait for it are
//! woken. So a repeated request gets the reason or a new cache. Every task is counted by the
//! tracker and ends with the cancellation token.
//!
//! Lock order: that of [`cache_map`].

mod cache_map;
mod cache_walk;
mod eviction;
mod features;
mod forward_budget;
mod housekeeping;
mod inner;
mod listing;
mod negative_cache;
mod over_budget;
mod quarantines;
mod reconfigure;
pub(crate) mod source;
mod verification;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use tokio::time::Instant;

use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::Now;
use crate::cache::handle::CacheHandle;
use crate::cache::metrics::{CacheMetrics, CacheTotals};
use crate::cache::refusal::Refusal;
pub use crate::cache::registry::forward_budget::ForwardPermit;
use crate::cache::registry::inner::Inner;
pub use crate::cache::registry::listing::{
    CacheContents, CacheDescription, CacheDetail, CacheDifference, CheckReport, LastFailure,
    Suspended,
};
use crate::cache::registry::source::{Source, UpstreamSource};
use crate::config::CacheConfig;
use crate::config::seams::Seams;
use crate::upstream::Upstream;
use crate::upstream::availability::Availability;
use crate::upstream::discovery::Discovery;
use crate::upstream::error::UpstreamError;

/// The caches of all resources of one upstream. Cheap to clone: all clones share the caches.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

impl Registry {
    /// Creates an empty registry. Caches run as tasks until [`Registry::shutdown`]. Must be called
    /// within a tokio runtime.
    pub fn new(
        config: Arc<CacheConfig>,
        seams: Seams,
        upstream: Upstream,
        discovery: Discovery,
        metrics: CacheMetrics,
    ) -> Self {
        let source = UpstreamSource::new(upstream, discovery);
        Self::with_source(config, seams, Box::new(source), metrics)
    }

    /// Creates an empty registry with any source of resources and lists, such as a test's script.
    pub(crate) fn with_source(
        config: Arc<CacheConfig>,
        seams: Seams,
        source: Box<dyn Source>,
        metrics: CacheMetrics,
    ) -> Self {
        metrics.limits(config.resource_bytes_max, config.total_bytes_max);
        let context = Arc::new(CacheContext::new(config, seams, metrics, source.availability()));
        let inner = Arc::new(Inner::new(source, context));
        inner.spawn_housekeeping();
        inner.spawn_verification();
        Self { inner }
    }

    /// Returns the definition of a resource by [`Discovery::find`]. Starts no cache.
    pub async fn find(
        &self,
        gvr: &GroupVersionResource,
    ) -> Result<Option<Arc<ApiResource>>, UpstreamError> {
        self.inner.source.find(gvr).await
    }

    /// Returns the definition of a resource by [`Discovery::peek`], which sends no request.
    pub fn peek(&self, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
        self.inner.source.peek(gvr)
    }

    /// Returns the number of a resource's objects and their bytes, if a cache has all of them. Does
    /// not count as a use of the cache.
    pub fn size_of(&self, gvr: &GroupVersionResource) -> Option<(u64, u64)> {
        self.inner.caches.size_of(gvr)
    }

    /// Returns the newest resourceVersion that a cache of the whole resource has; `None` while none
    /// is ready. Does not count as a use of it.
    pub fn newest_version(&self, gvr: &GroupVersionResource) -> Option<ResourceVersion> {
        self.inner.caches.newest_version(gvr)
    }

    /// Returns all running caches, in the order of their names. Does not count as a use of them.
    pub fn descriptions(&self) -> Vec<CacheDescription> {
        listing::describe_all(&self.inner)
    }

    /// Returns the caches that answer nothing, whether they run or not.
    pub fn suspended(&self) -> Suspended {
        Suspended::new(&self.inner)
    }

    /// Returns the figures of all caches together.
    pub fn figures(&self) -> CacheTotals {
        self.inner.context.metrics.figures()
    }

    /// Returns the running caches of a resource in one namespace, or (empty) in the whole cluster,
    /// in all detail. Does not count as a use of them.
    pub fn details(&self, gvr: &GroupVersionResource, namespace: &str) -> Vec<CacheDetail> {
        let inner = &self.inner;
        let caches = inner.caches.in_scope(gvr, namespace).into_iter();
        caches.map(|cache| listing::detail(&cache, inner)).collect()
    }

    /// Requests a new list of these caches for an operator, at most one of each in ten seconds. A
    /// cache that does not watch at present lists once it does. Returns their number, and for how
    /// many a list was requested; `None` if there are none.
    pub fn relist(&self, gvr: &GroupVersionResource, namespace: &str) -> Option<(usize, usize)> {
        let caches = self.inner.caches.in_scope(gvr, namespace);
        let requested = caches.iter().filter(|cache| cache.requests.request_relist_by_operator());
        let requested = requested.count();
        (!caches.is_empty()).then_some((caches.len(), requested))
    }

    /// Gives memory back while it is short: trims each history to one of `history_part` parts of
    /// its limit, and, if asked to, stops caches that nobody uses.
    pub fn give_back(&self, history_part: usize, stops_unused: bool) {
        self.inner.give_back(history_part, stops_unused);
    }

    /// Returns a time as the events of the histories have it.
    pub(crate) fn history_time(&self, time: Instant) -> Now {
        self.inner.context.clock.at(time)
    }

    /// Returns the version of the upstream; `None` while it is unknown.
    pub fn upstream_version(&self) -> Option<String> {
        let version = self.inner.source.version();
        version.borrow().as_ref().map(|version| version.git_version.clone())
    }

    /// Returns whether the upstream is away.
    pub fn availability(&self) -> &Availability {
        &self.inner.context.availability
    }

    /// Returns the present configuration of the caches.
    pub fn config(&self) -> Guard<Arc<CacheConfig>> {
        self.inner.context.config()
    }

    /// Replaces the configuration of the caches. The budgets of forwarded requests and of gzip stay
    /// as they were at the start.
    pub fn reconfigure(&self, config: CacheConfig) {
        self.inner.reconfigure(Arc::new(config));
    }

    /// Whether no API server is usable, and caches can answer reads without one.
    pub fn answers_alone(&self) -> bool {
        let since = self.availability().unusable_since();
        let max = self.config().max_staleness.unwrap_or(Duration::MAX);
        since.is_some_and(|since| since.elapsed() <= max) && self.inner.caches.any_ready()
    }

    /// Starts the warm caches, and starts them again if they stop.
    pub fn start_warm(&self) {
        self.inner.spawn_warming();
    }

    /// Finds the cache that can answer for a resource, in one namespace or (empty) in all. Starts
    /// it on first use. Does not wait for it to become ready.
    ///
    /// Only the upstream's response shows whether Weir's identity may list a resource. The returned
    /// cache may therefore be refused a moment later: [`CacheHandle::wait_until_ready`] then
    /// returns `Forbidden`, and a second `get` for one namespace returns a cache of that namespace.
    /// [`Registry::ready`] does all of this.
    pub async fn get(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Result<CacheHandle, Refusal> {
        self.inner.get(gvr, namespace, representation, None).await
    }

    /// Returns the cache that can answer for a resource, in one namespace or (empty) in all, if it
    /// runs.
    pub fn running(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Option<CacheHandle> {
        self.inner.usable(gvr, namespace, representation)
    }

    /// Whether a client that watches from `after` may have seen a wrong state: the cache that would
    /// answer was proved wrong at that resourceVersion or a later one, and answers nothing now.
    pub(crate) fn is_doubtful(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        after: ResourceVersion,
    ) -> bool {
        let quarantines = &self.inner.quarantines;
        let through = quarantines
            .closed(gvr, namespace, representation)
            .and_then(|key| quarantines.doubtful_through(&key));
        through.is_some_and(|through| after < through)
    }

    /// Returns a cache that any read may use. Finds or starts it, and waits until it has its first
    /// complete state, and until that is not one from before the cache was created. If the cache of
    /// the cluster is forbidden, tries that of the namespace.
    pub async fn ready(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        timeout: Duration,
    ) -> Result<CacheHandle, Refusal> {
        let deadline = Instant::now() + timeout;
        let handle = self.ready_at(gvr, namespace, representation, None, timeout).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        handle.wait_until_caught_up(left).await.map(|()| handle)
    }

    /// Like [`Registry::ready`], for a watch from `first_at`, or for a read that finds its own
    /// proof of freshness: the state may be one from before the cache was created. A cache that
    /// starts now lists at exactly `first_at`, if the upstream still can, or at a lower
    /// resourceVersion that another watcher asks for at the same time, so that the watches find it
    /// in the history (`docs/decisions/older-watches.md`). A cache that already runs is returned as
    /// it is.
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
        let handle_result = tokio::time::timeout_at(deadline, find).await;
        let handle = handle_result.map_err(|_elapsed| Refusal::NotReady)??;
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

    /// Acquires a permit to forward a list or watch of this resource. The caller holds it until the
    /// forwarded response ends. Returns `None` if the budget of the resource is exhausted; the
    /// response is then 429 (`docs/decisions/herds.md`). All resources that discovery does
    /// not know now share one budget: a definition may have been deleted while the request waited.
    /// There is a budget of its own for requests that are forwarded because of `OverBudget`.
    pub fn forward_permit(
        &self,
        gvr: &GroupVersionResource,
        is_over_budget: bool,
    ) -> Option<ForwardPermit> {
        let is_served = self.peek(gvr).is_some();
        let inner = &self.inner;
        let budget =
            if is_over_budget { &inner.over_budget_forwards } else { &inner.forward_budget };
        budget.try_acquire(gvr, is_served, &inner.context.metrics)
    }

    /// Returns the number of requests that wait for a cache of a resource which holds `namespace`.
    pub(crate) fn waiting(&self, gvr: &GroupVersionResource, namespace: &str) -> usize {
        self.inner.caches.waiting(gvr, namespace)
    }

    /// Completes when a cache can take over a watch that is forwarded. Looks only every few
    /// seconds, at a random time: the watches are to end one after another. Starts no cache unless
    /// `retries` is set. Then the cache is tried again once a stored refusal of it is over, since
    /// no other client may ask for it. Cancel safe.
    pub fn takeover(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        retries: bool,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (inner, gvr) = (Arc::clone(&self.inner), gvr.clone());
        let namespace = namespace.to_owned();
        async move {
            loop {
                pause().await;
                if retries {
                    drop(inner.get(&gvr, &namespace, representation, None).await);
                }
                let cache = inner.usable(&gvr, &namespace, representation);
                if cache.is_some_and(|cache| cache.is_ready()) {
                    return;
                }
            }
        }
    }

    /// Waits until discovery knows a resource, so that a request for it waits for its cache. Like
    /// [`takeover`](Self::takeover) it does not complete at once: a watch that ends without an
    /// event within a second makes client-go list again.
    pub fn discovered(
        &self,
        gvr: &GroupVersionResource,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (inner, gvr) = (Arc::clone(&self.inner), gvr.clone());
        async move {
            loop {
                pause().await;
                if inner.source.peek(&gvr).is_some() {
                    return;
                }
            }
        }
    }

    /// Returns the warm resources whose caches have neither become ready nor been refused since the
    /// start, for `/readyz`. A cache that stops later does not count, because its requests are
    /// forwarded.
    pub fn unready(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.inner.warming.iter().map(|gvr| gvr.key().to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the warm resources, each with the reason for which it has no filled cache, if its
    /// last one ended or was refused.
    pub fn warm(&self) -> Vec<(GroupVersionResource, Option<Refusal>)> {
        let refusal =
            |gvr: &GroupVersionResource| self.inner.warm_refusals.get(gvr).map(|refusal| *refusal);
        self.config().warm.iter().map(|gvr| (gvr.clone(), refusal(gvr))).collect()
    }

    /// Stops every reflector. Caches keep their last state until they are dropped.
    pub async fn shutdown(&self) {
        self.inner.context.cancel.cancel();
        self.inner.context.tasks.close();
        self.inner.context.tasks.wait().await;
    }
}

/// Waits until the next look whether a forwarded watch may end.
async fn pause() {
    tokio::time::sleep(TAKEOVER_INTERVAL.mul_f64(1.0 + fastrand::f64())).await;
}

/// The shortest time between two looks whether a cache can take over a forwarded watch; the longest
/// is twice as long. A watch that ends within a second makes client-go list again
/// (`docs/semantics.md` §5.7).
const TAKEOVER_INTERVAL: Duration = Duration::from_secs(2);

crate::api::opaque!(Registry);

#[cfg(test)]
mod tests;
