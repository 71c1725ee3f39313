//! A read that a cache may answer: the request, its target, and the search for a cache that is
//! ready and fresh enough.

use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::time::Instant;

use crate::api::request_info::{ResourceRequest, Verb};
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::auth::reauthorization::Reauthorization;
use crate::auth::visibility::UserView;
use crate::cache::core::watch_cache::State;
use crate::cache::handle::CacheHandle;
use crate::cache::progress::CATCH_UP_TIMEOUT;
use crate::cache::proof::FreshState;
use crate::cache::refusal::Refusal;
use crate::cache::registry::Registry;
use crate::codec::held_bytes::HeldBytes;
use crate::config::seams::Seams;
use crate::server::appointments::HerdAppointments;
use crate::server::cached::compress::Compressor;
use crate::server::cached::drop_rules::DropRules;
use crate::server::cached::filtered::Filtered;
use crate::server::cached::response_budget::ResponseBudget;
use crate::server::delegate::{CachedDecision, Freshness, Reason, Target};
use crate::server::forward::list_times::ListTimes;
use crate::server::forward::upstream_gate::FAILOVER_WAIT_MAX;
use crate::server::http::headers::StateAge;
use crate::server::lanes::Lane;
use crate::server::live::LiveSettings;
use crate::server::metrics::WaitCause;
use crate::server::overload::Overload;
use crate::server::request::context::RequestContext;
use crate::upstream::availability::Availability;
#[cfg(doc)]
use crate::upstream::shard_support::ShardSupport;

pub(crate) struct CacheServices {
    pub(crate) registry: Registry,
    pub(crate) compressor: Compressor,
    pub(crate) responses: ResponseBudget,
    /// The settings that a reload may change.
    pub(crate) live: Arc<LiveSettings>,
    pub(crate) seams: Seams,
    pub(crate) list_times: Arc<ListTimes>,
    /// Knows what must be refused while Weir is overloaded.
    pub(crate) overload: Arc<Overload>,
    /// When those come again for whom there is no place.
    pub(crate) herd: HerdAppointments,
    pub(crate) drop_rules: DropRules,
}

impl CacheServices {
    /// Asks discovery for the requested resource, unless it is known. This does not use the
    /// registry of caches: a request that is forwarded because of its format must not start a
    /// cache.
    pub(crate) async fn find_resource(
        &self,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reason> {
        if context.resource.is_some() {
            return Ok(());
        }
        let request = context.info.resource.as_ref().ok_or(Reason::NonResource)?;
        let deadline = context.started + FAILOVER_WAIT_MAX;
        let handle = tokio::select! {
            biased;
            handle = self.registry.find(&request.gvr) => handle.ok(),
            () = self.registry.availability().until_unusable(deadline) => None,
        };
        let resource = handle.ok_or(Reason::Refused(Refusal::NotReady))?;
        context.resource = Some(resource.ok_or(NOT_FOUND)?);
        Ok(())
    }

    /// Leaves managed fields out of a read for which an operator's rule says so.
    pub(crate) fn drop_by_rule(&self, target: &mut Target, context: &RequestContext<'_>) {
        let (info, parts) = (&context.info, &context.parts);
        // No rule applies to a GET, and most reads are GETs: these need no configuration.
        if info.verb == Verb::Get {
            return;
        }
        let config = self.registry.config();
        if let Some(request) = &info.resource
            && self.drop_rules.apply(&config, info.verb, &parts.headers, request)
        {
            target.form.view = target.form.view.without_managed_fields();
        }
    }

    /// Notes a request that has changed an object.
    pub(crate) fn note_write(&self, context: &RequestContext<'_>) {
        if let Some(request) = &context.info.resource {
            let (config, agent) = (self.registry.config(), context.agent.as_ref());
            self.drop_rules.note_write(&config, context.info.verb, agent, request);
        }
    }
}

/// Returns what a read whose resource is known asks a cache for.
pub(crate) fn target(context: &RequestContext<'_>) -> Result<Target, Reason> {
    let resource = context.resource.as_ref().ok_or(NOT_FOUND)?;
    let options = context.decision.as_ref().ok().and_then(CachedDecision::options);
    Target::resolve(context.parts, &context.info, options, resource)
}

pub(crate) struct CachedRead<'a> {
    pub(crate) context: &'a RequestContext<'a>,
    pub(crate) services: &'a CacheServices,
    pub(crate) request: &'a ResourceRequest,
    /// The resource as discovery describes it. The target is bound to this description.
    pub(crate) resource: &'a Arc<ApiResource>,
    pub(crate) target: Target,
    /// Counts what the response holds in memory.
    pub(crate) held: &'a HeldBytes,
    /// The lane of the response, if that may be large.
    pub(crate) lane: Option<&'a Lane>,
    /// How a watch is authorized again.
    pub(crate) reauthorization: Option<Box<Reauthorization>>,
    /// The part that the user may see, if the user may not read the whole collection.
    pub(crate) filtered: Option<Box<Filtered>>,
}

impl<'a> CachedRead<'a> {
    /// Returns the read of a request whose resource is known. Its response waits in no lane, and a
    /// watch is not authorized again.
    pub(crate) fn new(
        context: &'a RequestContext<'a>,
        services: &'a CacheServices,
        target: Target,
        held: &'a HeldBytes,
    ) -> Result<Self, Reason> {
        Ok(Self {
            context,
            services,
            request: context.info.resource.as_ref().ok_or(Reason::NonResource)?,
            resource: context.resource.as_ref().ok_or(NOT_FOUND)?,
            target,
            held,
            lane: None,
            reauthorization: None,
            filtered: None,
        })
    }
}

impl CachedRead<'_> {
    /// Restricts the read to what its user may see, who may see something: this starts the cache.
    pub(crate) async fn filter(&mut self, view: UserView) -> Result<(), Reason> {
        self.ready_cache().await?;
        let filtered = Filtered::new(view, &self.services.registry, &self.resource.gvr)?;
        self.target.filter.visible = filtered.objects();
        self.filtered = Some(Box::new(filtered));
        Ok(())
    }

    /// Whether a client that has read the state at `at` saw then what it would see now.
    pub(super) fn was_seen_at(&self, at: ResourceVersion) -> bool {
        self.filtered.as_ref().is_none_or(|filtered| filtered.was_seen_at(at))
    }

    /// Returns the representation of the objects that the response is made from.
    pub(super) fn representation(&self) -> Representation {
        self.resource.representation(self.target.form)
    }

    /// Returns the cache of the collection, started if need be, ready or not.
    pub(super) fn cache(&self) -> impl Future<Output = Result<CacheHandle, Reason>> {
        self.cache_of(self.target.filter.namespace.as_deref().unwrap_or_default())
    }

    /// Returns the cache of the collection, ready or not, if it runs.
    pub(super) fn running_cache(&self) -> Result<Option<CacheHandle>, Reason> {
        let namespace = self.target.filter.namespace.as_deref().unwrap_or_default();
        let registry = &self.services.registry;
        let running = registry.running(&self.resource.gvr, namespace, self.representation());
        running.map(|handle| self.check(handle)).transpose()
    }

    /// Returns the cache of the collection once it has a state that any read may use.
    pub(super) async fn ready_cache(&self) -> Result<CacheHandle, Reason> {
        let (gvr, namespace) = (&self.resource.gvr, &self.request.namespace);
        let (representation, timeout) = (self.representation(), self.services.seams.warmup_timeout);
        let ready = self.services.registry.ready(gvr, namespace, representation, timeout);
        let ready = pin!(self.while_usable(ready));
        self.check(self.waiting(WaitCause::Warmup, ready).await?)
    }

    /// Returns the cache of the collection once it has a state, which may be an old one
    /// ([`Registry::ready_at`]). A watch that does not begin with the state begins after
    /// `first_at`.
    pub(super) async fn begun_cache(
        &self,
        first_at: Option<ResourceVersion>,
    ) -> Result<CacheHandle, Reason> {
        let (gvr, namespace) = (&self.resource.gvr, &self.request.namespace);
        let (representation, timeout) = (self.representation(), self.services.seams.warmup_timeout);
        let registry = &self.services.registry;
        let ready = registry.ready_at(gvr, namespace, representation, first_at, timeout);
        let ready = pin!(self.while_usable(ready));
        self.check(self.waiting(WaitCause::Warmup, ready).await?)
    }

    /// Returns the cache, and its state, that can go back to `at`. Returns `None` if no cache
    /// reaches that resourceVersion soon, or if the upstream may have another history: the upstream
    /// may have named `at` in the page before this one.
    ///
    /// A cold cache is started but not waited for, since it will begin after that resourceVersion.
    /// A cache that lags gets only a moment, since the upstream has the state already and answers
    /// faster.
    pub(super) async fn cache_holding(
        &self,
        at: ResourceVersion,
    ) -> Result<Option<(CacheHandle, Arc<State>)>, Reason> {
        let handle = self.cache_of(&self.request.namespace).await?;
        if !handle.is_ready() {
            return Ok(None);
        }
        let timeout = CATCH_UP_TIMEOUT.min(self.services.seams.freshness_timeout);
        {
            let fresh = pin!(handle.wait_until_fresh(at, timeout));
            if self.waiting(WaitCause::Freshness, fresh).await.is_err() {
                return Ok(None);
            }
        }
        if !handle.is_joined(FAILOVER_WAIT_MAX).await {
            return Ok(None);
        }
        let holds =
            |state: &Arc<State>| (state.exact_from()..=state.resource_version()).contains(&at);
        let state = handle.cache().state().filter(holds);
        let state = state.or_else(|| handle.newest_state().filter(holds));
        Ok(state.map(|state| (handle, state)))
    }

    /// Waits briefly until a cache is as fresh as requested: the upstream answers sooner than an
    /// event that is not on its way yet.
    pub(super) async fn wait_until_fresh(
        &self,
        handle: &CacheHandle,
        freshness: Freshness,
    ) -> Result<(), Reason> {
        let Freshness::NotOlderThan(requested) = freshness else { return Ok(()) };
        let timeout = self.services.seams.freshness_timeout.min(CATCH_UP_TIMEOUT);
        let mut fresh = Box::pin(handle.wait_until_fresh(requested, timeout));
        self.waiting(WaitCause::Freshness, fresh.as_mut()).await.map_err(Reason::Refused)
    }

    /// Returns a state that is not older than `asked`, or, if that is `None`, than `since`, the
    /// arrival of the request.
    pub(super) async fn fresh_state(
        &self,
        handle: &CacheHandle,
        asked: Option<ResourceVersion>,
        since: Instant,
    ) -> Result<FreshState, Reason> {
        let timeout = self.services.seams.freshness_timeout;
        let fresh = pin!(self.while_usable(handle.fresh_state(asked, since, timeout)));
        self.waiting(WaitCause::Freshness, fresh).await
    }

    /// Waits, and observes for how long.
    pub(super) async fn waiting<F: Future>(
        &self,
        cause: WaitCause,
        done: Pin<&mut F>,
    ) -> F::Output {
        let (output, has_waited) = self.context.metrics.wait(cause, done).await;
        self.context.ended_wait(cause.as_str(), has_waited);
        if has_waited {
            self.link_list();
        }
        output
    }

    /// Links the trace to the reflector's list for which the request waited, also if no
    /// cache answers it.
    fn link_list(&self) {
        if let Some(trace) = &self.context.trace
            && let Ok(Some(handle)) = self.running_cache()
        {
            trace.link_list(|since| handle.list_span_since(since));
        }
    }

    /// Returns [`ShardSupport::counts_remaining`], or the reason to forward a read by a shard
    /// selector that the upstream may not know.
    pub(super) async fn counts_shard(&self) -> Result<bool, Reason> {
        if self.target.filter.shard.is_none() {
            return Ok(false);
        }
        let support = self.services.registry.shard_support().await;
        support.map(|support| support.counts_remaining).ok_or(Reason::Selector)
    }

    /// Waits for something that may need the upstream, but not longer than a forwarded request
    /// waits for an API server.
    pub(super) async fn while_usable<T>(
        &self,
        wait: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Reason> {
        let deadline = self.context.started + FAILOVER_WAIT_MAX;
        let refused = tokio::select! {
            biased;
            done = wait => done,
            () = self.availability().until_unusable(deadline) => Err(Refusal::NotReady),
        };
        refused.map_err(Reason::Refused)
    }

    /// Notes the cache for a client that asks why its request was answered so.
    pub(super) fn explain(&self, handle: &CacheHandle) {
        if let Some(explanation) = &self.context.explanation {
            explanation.note_cache(handle, handle.is_namespaced(), self.representation().as_str());
        }
    }

    /// Returns the age of a cache to be shown in the response, while the upstream is away or the
    /// cache cannot follow it.
    pub(super) fn shown_age(&self, handle: &CacheHandle) -> Option<StateAge> {
        if self.availability().is_away() {
            return handle.age().map(|age| StateAge { age, is_away: true });
        }
        handle.failing_for().map(|age| StateAge { age, is_away: false })
    }

    fn availability(&self) -> &Availability {
        self.services.registry.availability()
    }

    /// Ensures that nothing is shown of a resource that an aggregated API server serves now,
    /// although the state was read before that was noticed.
    pub(super) fn ensure_open(handle: &CacheHandle) -> Result<(), Reason> {
        match handle.cache().is_closed() {
            true => Err(Reason::Refused(Refusal::Aggregated)),
            false => Ok(()),
        }
    }

    async fn cache_of(&self, namespace: &str) -> Result<CacheHandle, Reason> {
        let (registry, gvr) = (&self.services.registry, &self.resource.gvr);
        let handle = match registry.running(gvr, namespace, self.representation()) {
            Some(handle) => handle,
            None => {
                let started = registry.get(gvr, namespace, self.representation());
                Box::pin(self.while_usable(started)).await?
            }
        };
        self.check(handle)
    }

    /// Ensures that a cache is not too old (`cache.maxStaleness`), and has the same definition of
    /// the resource as the request's target. While
    /// a changed definition spreads they differ for a moment, and a field selector of one would
    /// read other fields of the other's objects.
    fn check(&self, handle: CacheHandle) -> Result<CacheHandle, Reason> {
        // Both are the same `Arc` of discovery until the definition changes. The fields are
        // compared only where the pointers differ.
        let max_staleness = self.services.registry.config().max_staleness;
        if max_staleness.is_some_and(|max| handle.age().is_some_and(|age| age > max)) {
            return Err(Reason::Refused(Refusal::NotFresh));
        }
        let same = handle.resource() == self.resource;
        if same { Ok(handle) } else { Err(Reason::Refused(Refusal::NotReady)) }
    }
}

const NOT_FOUND: Reason = Reason::Refused(Refusal::Unknown);
