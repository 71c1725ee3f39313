//! The shared part of the registry: it decides which cache may run, and starts and removes caches.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::FutureExt;
use parking_lot::Mutex;

use crate::api::resource::{ApiResource, GroupVersionResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::reflector::{self, StartOptions};
use crate::cache::refusal::Refusal;
use crate::cache::registry::cache_map::CacheMap;
use crate::cache::registry::eviction::{give_back, make_space};
use crate::cache::registry::forward_budget::ForwardBudget;
use crate::cache::registry::negative_cache::NegativeCache;
use crate::cache::registry::over_budget::OverBudget;
use crate::cache::registry::quarantines::Quarantines;
use crate::cache::registry::source::Source;
use crate::telemetry::events::EventKind;

/// The shared part of the registry.
pub(super) struct Inner {
    pub(super) source: Box<dyn Source>,
    pub(super) context: Arc<CacheContext>,
    pub(super) caches: CacheMap,
    /// Limits what is forwarded while a cache is cold or failing.
    pub(super) forward_budget: ForwardBudget,
    /// Limits what is forwarded while a cache exceeds a byte budget.
    pub(super) over_budget_forwards: ForwardBudget,
    /// The caches that exceed a byte budget.
    pub(super) over_budget: OverBudget,
    /// The warm resources that are not ready yet and have not been refused finally.
    pub(super) warming: DashMap<GroupVersionResource, ()>,
    /// The reasons why warm resources have had no cache since they last had one.
    pub(super) warm_refusals: DashMap<GroupVersionResource, Refusal>,
    pub(super) negative_cache: NegativeCache,
    /// The caches that were proved wrong.
    pub(super) quarantines: Quarantines,
    /// Nothing is compared with the upstream before this time of the caches' clock.
    pub(super) verification_paused_until: Mutex<Duration>,
}

impl Inner {
    /// Creates a registry without caches.
    pub(super) fn new(source: Box<dyn Source>, context: Arc<CacheContext>) -> Self {
        let config = context.config().clone();
        Self {
            source,
            caches: CacheMap::default(),
            forward_budget: ForwardBudget::new("forward", config.forward_budget),
            over_budget_forwards: ForwardBudget::new(
                "over-budget",
                context.seams.over_budget_forwards,
            ),
            over_budget: OverBudget::default(),
            warming: config.warm.iter().map(|gvr| (gvr.clone(), ())).collect(),
            warm_refusals: DashMap::new(),
            negative_cache: NegativeCache::new(),
            quarantines: Quarantines::default(),
            verification_paused_until: Mutex::default(),
            context,
        }
    }

    /// Gives memory back ([`give_back`]).
    pub(super) fn give_back(&self, history_part: usize, stops_unused: bool) {
        self.pause_verification();
        give_back(&self.caches, &self.context, history_part, stops_unused);
    }

    /// Finds a cache, or starts one.
    pub(super) async fn get(
        self: &Arc<Self>,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
        first_at: Option<ResourceVersion>,
    ) -> Result<CacheHandle, Refusal> {
        if self.context.cancel.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        if self.quarantines.closed(gvr, namespace, representation).is_some() {
            return Err(Refusal::Quarantined);
        }
        if let Some(handle) = self.caches.lookup(gvr, namespace, representation) {
            if let Some(first_at) = first_at
                && handle.cache().state().is_none()
            {
                handle.ask_start(first_at, |key, at| self.may_begin_at(key, at));
            }
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
        match (self.negative_cache.get(&cluster), namespace_key) {
            (Some(Refusal::Forbidden), Some(namespace_key)) if resource.namespaced => {
                match self.negative_cache.get(&namespace_key) {
                    Some(refusal) => Err(refusal),
                    None => self.start(namespace_key, resource, first_at),
                }
            }
            (Some(refusal), _) => Err(refusal),
            (None, _) => self.start(cluster, resource, first_at),
        }
    }

    /// Returns the cache that can answer, if it runs and is not quarantined; none at the end.
    pub(super) fn usable(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Option<CacheHandle> {
        let is_open = !self.context.cancel.is_cancelled()
            && self.quarantines.closed(gvr, namespace, representation).is_none();
        is_open.then(|| self.caches.lookup(gvr, namespace, representation)).flatten()
    }

    pub(super) fn is_excluded(&self, gvr: &GroupVersionResource) -> bool {
        !self.context.config().admits(gvr)
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

    /// Returns the cache for `key`. Starts it if there is none and the budgets allow it.
    pub(super) fn start(
        self: &Arc<Self>,
        key: CacheKey,
        resource: Arc<ApiResource>,
        first_at: Option<ResourceVersion>,
    ) -> Result<CacheHandle, Refusal> {
        if !self.caches.contains(&key)
            && let Err(refusal) = make_space(&self.caches, &self.context)
        {
            self.over_budget.note_refused(&key, &self.context);
            return Err(refusal);
        }
        let mut options = StartOptions::default();
        let (handle, inserted) = self.caches.get_or_insert(key, |key| {
            let list_at = first_at.filter(|at| self.may_begin_at(&key, *at));
            let was_over_budget = self.over_budget.contains(&key);
            options = StartOptions {
                list_at,
                is_patient: !key.is_namespaced() && !self.negative_cache.was_refused(&key),
                is_redefined: self.source.is_redefined(&key.gvr),
            };
            let budget = &self.context.budget;
            let upstream = self.source.connect(&resource, key.representation, &key.scope, budget);
            let context = Arc::clone(&self.context);
            let cached =
                Arc::new(CachedResource::new(key, resource, upstream, context, was_over_budget));
            if list_at.is_some() {
                cached.gate.begin_in_the_past();
            }
            if let Some(through) = self.quarantines.doubtful_through(&cached.key) {
                cached.writer.distrust(through);
                let report = self.quarantines.report(&cached.key);
                cached.findings.inherit(report.unwrap_or_default());
            }
            cached
        });
        if let Some(cached) = inserted {
            let reflector = reflector::run(cached.clone(), options).boxed();
            let registry = Arc::clone(self);
            self.context.tasks.spawn(async move {
                // A defect that the objects of one resource expose must not affect other resources.
                let run = AssertUnwindSafe(reflector).catch_unwind().await;
                let refusal = run.unwrap_or_else(|_panic| {
                    tracing::error!(resource = %cached.key.gvr, "the reflector panicked; the resource is not cached");
                    Refusal::Unreadable
                });
                registry.on_reflector_end(&cached, refusal);
            });
        }
        Ok(handle)
    }

    /// Whether a new cache may begin with the state at `at`. Not if that may belong to a lost
    /// history: the watcher would resume at a point that never existed.
    fn may_begin_at(&self, key: &CacheKey, at: ResourceVersion) -> bool {
        let history = &self.context.history;
        let (generation, lost) = (history.generation(), history.highest_lost());
        let doubtful = self.quarantines.doubtful_through(key);
        Some(at) > lost.max(doubtful) && self.context.floors.allows(&key.gvr, at, generation)
    }

    /// Removes a cache whose reflector has ended. The order matters: the module documentation of
    /// [`registry`](crate::cache::registry) has the invariants.
    fn on_reflector_end(&self, cached: &Arc<CachedResource>, refusal: Refusal) {
        let log = |left_out: Option<u64>| {
            tracing::info!(
                resource = %cached.key.gvr,
                namespace = cached.key.namespace(),
                reason = refusal.as_str(),
                left_out,
                "cache stopped"
            );
        };
        if matches!(refusal, Refusal::Stopping | Refusal::NotReady) {
            log(None);
        } else {
            let text = format!("The cache stopped: {}.", refusal.as_str());
            self.context.metrics.events().notable(EventKind::CacheStopped, &cached.key, text, log);
        }
        // A retired cache ended because discovery changed. Discovery decides about the resource,
        // and a successor may already run.
        if !cached.lifecycle.is_retiring() {
            // Lists may be readable where watches are not, so a state alone proves nothing.
            let is_readable = refusal != Refusal::Unreadable
                || cached.lifecycle.created.elapsed() > READABLE_AFTER;
            if cached.lifecycle.is_ready() && is_readable {
                self.negative_cache.forget(&cached.key);
            }
            let attempts = match refusal {
                Refusal::OverBudget => self.over_budget.note_stopped(&cached.key, &self.context),
                _ => 1,
            };
            self.negative_cache.insert(&cached.key, refusal, attempts);
        }
        self.finish_warming(cached, Some(refusal));
        // Before a successor can start.
        cached.gate.raise_floor(cached.gate.resource_version());
        self.caches.hold_others(cached);
        cached.series.retire();
        self.context.metrics.stopped(refusal.as_str());
        self.caches.remove_if(cached, |_| true);
        cached.lifecycle.mark_ended(refusal);
        cached.account.close();
        // At shutdown the server ends its watches itself, spread over time.
        if refusal != Refusal::Stopping {
            cached.writer.invalidate(EndCause::Stopped);
        }
    }

    /// Notes that a warm resource is ready, or that it was refused.
    pub(super) fn finish_warming(&self, cached: &CachedResource, refusal: Option<Refusal>) {
        if cached.is_warm() {
            let gvr = &cached.key.gvr;
            self.warming.remove(gvr);
            match refusal {
                Some(refusal) => {
                    self.warm_refusals.insert(gvr.clone(), refusal);
                }
                None => {
                    self.warm_refusals.remove(gvr);
                }
            }
        }
    }
}

/// Checks whether a resource may have a cache at all.
pub(super) fn check(resource: &ApiResource) -> Result<(), Refusal> {
    if resource.aggregated {
        Err(Refusal::Aggregated)
    } else if !resource.list_watchable {
        Err(Refusal::NotWatchable)
    } else {
        Ok(())
    }
}

/// A cache of this age had events that could be parsed, or its watch was open without any.
const READABLE_AFTER: Duration = Duration::from_secs(600);
