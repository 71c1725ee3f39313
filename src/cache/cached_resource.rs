//! The cache of one resource, in the parts that its users need.
//!
//! The reflector writes the state, handles read it, and the registry decides how long the cache
//! runs. Each part has its own file, invariants and locks.
//!
//! Lock order: the locks of the parts are never held together.

pub(crate) mod gate;
pub(crate) mod latest_list;
pub(crate) mod learned;
pub(crate) mod lifecycle;
pub(crate) mod reflector_requests;
pub(crate) mod status;
pub(crate) mod usage;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::api::resource::ApiResource;
use crate::api::resource_version::ResourceVersion;
use crate::cache::backfill::state::BackfillState;
use crate::cache::budget::Account;
use crate::cache::cached_resource::gate::Gate;
use crate::cache::cached_resource::latest_list::LatestList;
use crate::cache::cached_resource::learned::LearnedTraits;
use crate::cache::cached_resource::lifecycle::Lifecycle;
use crate::cache::cached_resource::reflector_requests::ReflectorRequests;
use crate::cache::cached_resource::status::ReflectorStatus;
use crate::cache::cached_resource::usage::Usage;
use crate::cache::context::CacheContext;
use crate::cache::core::watch_cache::{CacheReader, Now, WatchCache, WindowLimits};
use crate::cache::count_check::{CountCheck, CountedCache};
use crate::cache::key::CacheKey;
use crate::cache::metrics::CacheSeries;
use crate::cache::proof::state::ProofState;
use crate::cache::reflector::writer::Writer;
use crate::cache::verification::findings::CheckFindings;
use crate::config::ConsistentLists;
use crate::upstream::lister_watcher::ListWatch;

/// The cache of one resource.
pub(crate) struct CachedResource {
    /// The key in the registry.
    pub(crate) key: CacheKey,
    /// The definition of the resource when the cache started.
    pub(crate) resource: Arc<ApiResource>,
    /// The upstream from which the cache is filled.
    pub(crate) upstream: Arc<dyn ListWatch>,
    /// The state and the history, to be read.
    pub(crate) watch_cache: CacheReader,
    /// The writer of both.
    pub(crate) writer: Arc<Writer>,
    /// Decides which state clients may see.
    pub(crate) gate: Gate,
    /// The life of the cache, from its creation to the end of its reflector.
    pub(crate) lifecycle: Lifecycle,
    /// The users of the cache.
    pub(crate) usage: Usage,
    /// The properties of the resource that were learned from upstream responses.
    pub(crate) learned: LearnedTraits,
    pub(crate) requests: ReflectorRequests,
    /// The state of the reflector, for operators.
    pub(crate) status: ReflectorStatus,
    /// The span of the reflector's latest list.
    pub(crate) latest_list: LatestList,
    /// The comparisons of the number of objects with those of probes.
    pub(crate) counts: CountCheck,
    /// The results of the comparisons with the upstream.
    pub(crate) findings: CheckFindings,
    /// The proofs of freshness that are in progress.
    pub(crate) proofs: ProofState,
    /// The extension of the history to older resourceVersions.
    pub(crate) backfill: BackfillState,
    /// The share of the byte budgets.
    pub(crate) account: Account,
    /// The metrics of this cache.
    pub(crate) series: CacheSeries,
    /// The part that all caches of the upstream share.
    pub(crate) context: Arc<CacheContext>,
}

impl CachedResource {
    /// Creates a cache without a state. Its reflector is started separately. `was_over_budget` says
    /// whether an earlier cache of the same key exceeded a byte budget.
    pub(crate) fn new(
        key: CacheKey,
        resource: Arc<ApiResource>,
        upstream: Arc<dyn ListWatch>,
        context: Arc<CacheContext>,
        was_over_budget: bool,
    ) -> Self {
        let limits = WindowLimits {
            events_min: HISTORY_EVENTS_MIN,
            events_max: HISTORY_EVENTS_MAX,
            age: HISTORY_AGE,
            bytes_max: context.config().history_bytes_max,
            unread_from: u64::MAX,
            unread_bytes_max: 0,
        };
        let series = context.metrics.series(key.labels());
        // An index of a field that this representation does not show would have all objects under
        // one value.
        let selectable = &resource.selectable;
        let indexed =
            selectable.indexed().filter(|field| selectable.is_readable(*field, key.representation));
        let cache = WatchCache::new(limits).with_index(indexed);
        let writer = Arc::new(Writer::new(cache, context.history.clone()));
        let (tasks, metrics) = (context.tasks.clone(), context.metrics.clone());
        Self {
            watch_cache: writer.reader().clone(),
            gate: Gate::new(key.gvr.clone(), writer.clone(), context.clone()),
            writer,
            lifecycle: Lifecycle::new(context.cancel.child_token(), was_over_budget),
            usage: Usage::new(context.clock),
            learned: LearnedTraits::new(&resource, key.representation),
            requests: ReflectorRequests::default(),
            status: ReflectorStatus::default(),
            latest_list: LatestList::default(),
            counts: CountCheck::default(),
            findings: CheckFindings::default(),
            proofs: ProofState::new(upstream.clone(), tasks, metrics),
            backfill: BackfillState::default(),
            account: context.budget.account(),
            series,
            upstream,
            resource,
            context,
            key,
        }
    }

    /// Notes that the upstream has no change up to `resource_version`, as a proof found in
    /// `generation`. Returns whether that counts ([`Writer::advance`]).
    pub(crate) fn apply_progress(
        &self,
        generation: u64,
        resource_version: ResourceVersion,
    ) -> bool {
        let counts = self.writer.advance(generation, resource_version, self.context.clock.now());
        self.context.history.observe(resource_version);
        if let Some(state) = self.watch_cache.state() {
            self.series.contents(state.len(), state.weight(), state.resource_version().0);
        }
        counts
    }

    /// Whether the cache has a state that any read may use.
    pub(crate) fn is_ready(&self) -> bool {
        self.watch_cache.state().is_some() && !self.gate.is_behind()
    }

    /// Whether every state that reads may use is one from after `moment`.
    pub(crate) fn is_listed_since(&self, moment: Instant) -> bool {
        self.lifecycle.created >= moment && !self.gate.is_behind()
    }

    /// Returns since when the cache may lack events: its watch is closed, or no API server is
    /// usable. `None` if neither is known.
    pub(crate) fn outdated_since(&self) -> Option<Instant> {
        let unusable = self.context.availability.unusable_since();
        match (self.lifecycle.unwatched_since(), unusable) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Returns what [`CountCheck`] compares.
    pub(crate) fn counted(&self) -> CountedCache<'_> {
        let (key, writer, series) = (&self.key, &self.writer, &self.series);
        CountedCache { key, writer, series, findings: &self.findings }
    }

    /// Compares the upstream's cluster with the known one, if a connection was opened since the
    /// last comparison. Returns whether what was received in `generation` counts.
    pub(crate) async fn is_same_cluster(&self, generation: u64) -> bool {
        let CacheContext { cluster, history, metrics, .. } = &*self.context;
        let confirmed = cluster.confirm(&*self.upstream, history, metrics).await;
        if let Err(error) = &confirmed {
            tracing::debug!(%error, "nothing that was received counts");
        }
        confirmed.is_ok() && history.generation() == generation
    }

    /// Returns whether objects and events that were received beside the cache's own stream, in
    /// `generation`, count: the cluster is the same, and the API server itself has sent them.
    pub(crate) async fn is_same_origin(&self, generation: u64) -> bool {
        self.upstream.is_local().await && self.is_same_cluster(generation).await
    }

    /// Waits until the held history is known to be the upstream's present one: the watch is open
    /// and verified, and the connections lead to the known cluster. Only then may a state or an
    /// event of the history be joined with what a forwarded request showed
    /// (`docs/decisions/rewound-history.md`). While no API server is usable, none is forwarded, and
    /// the wait ends too. Returns false if the cluster cannot be confirmed, or if the history was
    /// rewound meanwhile. Cancel safe.
    pub(crate) async fn is_joined(&self) -> bool {
        let joined = async {
            if !self.lifecycle.is_watching() {
                self.requests.resume.notify_one();
                drop(self.lifecycle.watching().wait_for(|watching| *watching).await);
            }
            self.is_same_cluster(self.writer.generation()).await
        };
        tokio::select! {
            biased;
            joined = joined => joined,
            () = self.context.availability.until_unusable(Instant::now()) => true,
        }
    }

    /// Drops the oldest events of the history until it has at most `bytes_max`.
    pub(crate) fn trim_history(&self, bytes_max: usize) {
        self.writer.trim_history(bytes_max);
        self.note_weight();
    }

    /// Updates the budget and the metrics after the history has become heavier or lighter.
    pub(crate) fn note_weight(&self) {
        let Some(state) = self.watch_cache.state() else { return };
        self.account.set_state(state.weight());
        self.series.contents(state.len(), state.weight(), state.resource_version().0);
    }

    /// Notes that a list filled the cache. The cause is one of a list's.
    pub(crate) fn note_filled(&self, cause: &'static str, duration: Duration) {
        self.series.listed();
        self.context.metrics.filled(cause, duration);
    }

    /// Lets the history keep what watchers have still to read, and sets the metrics that are
    /// measured from time to time: watchers, and the history.
    pub(crate) fn keep_unread(&self, now: Now) {
        self.series.show_delay(now.0);
        let state = self.watch_cache.state();
        let weights = state.as_ref().map(|state| (state.weight(), state.history().weight()));
        let bytes_max =
            weights.map_or(0, |(all, history)| self.account.room_for_history(all, history));
        let behind = self.watch_cache.keep_unread(bytes_max);
        if weights.is_some_and(|(_, history)| history > self.context.config().history_bytes_max) {
            self.writer.drop_read();
            self.note_weight();
        }
        self.series.watchers(self.watch_cache.watchers(), behind);
        let Some(state) = state else { return self.series.history(0, 0, None) };
        let history = state.history();
        let oldest = history.oldest_received().map(|oldest| now.0.saturating_sub(oldest.0));
        self.series.history(history.len(), history.weight(), oldest);
    }

    /// Waits at most `within` until the cache is complete up to `resource_version`, and returns
    /// whether it is. Cancel safe.
    pub(crate) async fn reaches_within(
        &self,
        resource_version: ResourceVersion,
        within: Duration,
    ) -> bool {
        let mut progress = self.watch_cache.progress();
        let reached = progress.wait_for(|held| *held >= Some(resource_version));
        timeout(within, reached).await.is_ok_and(|reached| reached.is_ok())
    }

    /// Returns the least time between two probes. Each makes etcd count all keys of the resource
    /// (`docs/decisions/proofs-of-freshness.md`).
    pub(crate) fn probe_gap(&self) -> Duration {
        if self.context.config().consistent_lists == ConsistentLists::Forward {
            return Duration::ZERO;
        }
        let objects = self.watch_cache.state().map_or(0, |state| state.len());
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        PROBE_GAP_MIN.max(PROBE_GAP_PER_OBJECT.saturating_mul(objects))
    }

    /// Whether the configuration keeps the cache running without users.
    pub(crate) fn is_warm(&self) -> bool {
        self.context.is_warm(&self.key)
    }
}

/// At most 50 probes a second.
const PROBE_GAP_MIN: Duration = Duration::from_millis(20);
/// etcd counts a key in some 0.11 microseconds (etcd-io/etcd#11036). A fiftieth of its time may go
/// into the probes of one resource.
const PROBE_GAP_PER_OBJECT: Duration = Duration::from_nanos(5_500);
/// The smallest history of kube-apiserver, in events (`docs/semantics.md` §5.9).
const HISTORY_EVENTS_MIN: usize = 100;
/// The largest history of kube-apiserver, in events (`docs/semantics.md` §5.9).
const HISTORY_EVENTS_MAX: usize = 102_400;
/// The age that kube-apiserver's history tries to reach (`docs/semantics.md` §5.9).
const HISTORY_AGE: Duration = Duration::from_secs(75);
