//! One cache while it lives: what its reflector writes, what handles read, and what the registry decides by.
//!
//! What is remembered of a rewound upstream history is one number for all caches: the highest resourceVersion that any of them had seen.
//! It is compared with what clients bring, where too high a bound costs a list and too low a one the truth; and a client may have
//! its resourceVersion from a forwarded list, which is ahead of what the cache of that resource had been told.
//!
//! Invariants: `stopped` is set once, after the registry has remembered why; a cache is idle only while no handle
//! counts as a use. What was learnt of the upstream besides the stream touches the cache only within the history of which it was learnt.
//!
//! Lock order: `stop_reason` alone; `history`, then the cache's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::resource::{ApiResource, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::budget::{Account, Budget};
use crate::cache::core::watch_cache::{Change, Now, WatchCache, WindowLimits};
use crate::cache::handle::ReadyWaiter;
use crate::cache::key::CacheKey;
use crate::cache::progress::Probes;
use crate::cache::proof::{DynListWatch, Proofs};
use crate::cache::refusal::Refusal;
use crate::codec::bookmark::BookmarkTemplate;
use crate::config::CacheConfig;
use crate::telemetry::cache_metrics::{CacheMetrics, CacheSeries};

/// What all caches of one upstream have in common.
pub(crate) struct CacheContext {
    /// What is cached, and how much.
    pub(crate) config: Arc<CacheConfig>,
    /// The metrics.
    pub(crate) metrics: CacheMetrics,
    /// The bytes of all caches.
    pub(crate) budget: Budget,
    /// Whether the upstream has watch-list.
    pub(crate) watch_list: WatchListSupport,
    /// Lists that may be under way upstream at once.
    pub(crate) list_slots: Semaphore,
    /// Lists and watches besides the reflectors' own that may be under way upstream at once.
    pub(crate) proof_lists: Semaphore,
    pub(crate) proof_watches: Semaphore,
    /// Counts up when some cache found the upstream's history rewound; every cache then starts anew (design, section 6).
    pub(crate) rewinds: watch::Sender<u64>,
    /// The highest resourceVersion seen in any history, and what it was when one was last found rewound.
    highest_seen: AtomicU64,
    highest_lost: AtomicU64,
    /// Every task of the caches.
    pub(crate) tasks: TaskTracker,
    /// Cancelled at shutdown.
    pub(crate) cancel: CancellationToken,
    /// Where the core's clock begins.
    started: Instant,
}

impl CacheContext {
    /// The common part of a registry.
    pub(crate) fn new(config: Arc<CacheConfig>, metrics: CacheMetrics) -> Self {
        Self {
            budget: Budget::new(config.resource_bytes_max, config.total_bytes_max),
            config,
            metrics,
            watch_list: WatchListSupport::default(),
            list_slots: Semaphore::new(LISTS_AT_ONCE_MAX),
            proof_lists: Semaphore::new(PROOF_LISTS_MAX),
            proof_watches: Semaphore::new(PROOF_WATCHES_MAX),
            rewinds: watch::Sender::new(0),
            highest_seen: AtomicU64::new(0),
            highest_lost: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
            started: Instant::now(),
        }
    }

    /// The time on the core's clock.
    pub(crate) fn now(&self) -> Now {
        Now(self.started.elapsed())
    }

    /// Takes note that the upstream's history has come so far.
    pub(crate) fn observe(&self, resource_version: ResourceVersion) {
        self.highest_seen.fetch_max(resource_version.0, Ordering::Relaxed);
    }

    /// Takes note that the history was found rewound, and tells all caches.
    pub(crate) fn rewind(&self) {
        self.highest_lost.fetch_max(self.highest_seen.load(Ordering::Relaxed), Ordering::Relaxed);
        self.rewinds.send_modify(|times| *times += 1);
    }

    /// How far a history had come that was lost; `None` if none was.
    pub(crate) fn highest_lost(&self) -> Option<ResourceVersion> {
        let lost = ResourceVersion(self.highest_lost.load(Ordering::Relaxed));
        (*self.rewinds.borrow() > 0).then_some(lost)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// See the module.
pub(crate) struct CachedResource {
    /// What it is kept under.
    pub(crate) key: CacheKey,
    /// What discovery said when it began.
    pub(crate) resource: Arc<ApiResource>,
    /// The watch cache.
    pub(crate) watch_cache: Arc<WatchCache>,
    /// The resource's bookmark, once learnt.
    pub(crate) bookmark_template: ArcSwapOption<BookmarkTemplate>,
    /// The `Warning` headers that the upstream sends with the resource.
    pub(crate) warnings: ArcSwap<Vec<HeaderValue>>,
    /// The probes of this cache.
    pub(crate) probes: Arc<Probes>,
    /// The other proofs of its freshness.
    pub(crate) proofs: Proofs,
    /// What it claims of the budget.
    pub(crate) account: Account,
    /// Its metrics.
    pub(crate) series: CacheSeries,
    /// Asks the reflector to check for a rewound history.
    pub(crate) verify_requested: Notify,
    /// Asks the reflector to list anew, since the same objects may be written in other bytes now.
    pub(crate) relist_requested: Notify,
    /// Whether the upstream's watch is open and its events are applied as they come.
    pub(crate) watching: watch::Sender<bool>,
    /// Why it ended, once it has.
    pub(crate) stopped: watch::Sender<Option<Refusal>>,
    /// What it has in common with the others.
    pub(crate) context: Arc<CacheContext>,
    /// Ends the reflector.
    pub(crate) cancel: CancellationToken,
    /// Those who wait for the first state.
    pub(crate) waiters: AtomicUsize,
    /// The number of rewinds after which what it holds was listed.
    generation: Mutex<u64>,
    /// When it came to be.
    created: Instant,
    /// Whether its first list may be older than `created`.
    seeded_at_exact: AtomicBool,
    stop_reason: Mutex<Option<Refusal>>,
    retiring: AtomicBool,
    ready: AtomicBool,
    users: AtomicUsize,
    last_used_ms: AtomicU64,
}

impl CachedResource {
    /// A cache without state or reflector yet.
    pub(crate) fn new(
        key: CacheKey,
        resource: Arc<ApiResource>,
        upstream: Arc<dyn DynListWatch>,
        context: Arc<CacheContext>,
    ) -> Self {
        let limits = WindowLimits {
            events_min: HISTORY_EVENTS_MIN,
            events_max: HISTORY_EVENTS_MAX,
            age: HISTORY_AGE,
            bytes_max: context.config.history_bytes_max,
        };
        let representation = key.representation.as_str();
        let gvr = &key.gvr;
        let series = context.metrics.series([
            &gvr.group,
            &gvr.version,
            &gvr.resource,
            key.namespace(),
            representation,
        ]);
        let (tasks, metrics) = (context.tasks.clone(), context.metrics.clone());
        // Objects without the field's values would all stand under one.
        let selectable = &resource.selectable;
        let indexed =
            selectable.indexed().filter(|field| selectable.is_readable(*field, key.representation));
        Self {
            watch_cache: Arc::new(WatchCache::new(limits).with_index(indexed)),
            resource,
            bookmark_template: ArcSwapOption::empty(),
            warnings: ArcSwap::default(),
            probes: Arc::new(Probes::new(upstream.clone(), tasks, metrics)),
            proofs: Proofs::new(upstream),
            account: context.budget.account(),
            series,
            verify_requested: Notify::new(),
            relist_requested: Notify::new(),
            watching: watch::Sender::new(false),
            stopped: watch::Sender::new(None),
            cancel: context.cancel.child_token(),
            waiters: AtomicUsize::new(0),
            generation: Mutex::new(0),
            created: Instant::now(),
            seeded_at_exact: AtomicBool::new(false),
            stop_reason: Mutex::new(None),
            retiring: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            last_used_ms: AtomicU64::new(context.millis()),
            context,
            key,
        }
    }

    /// Begins on the history after so many rewinds; what it held of another is dropped.
    pub(crate) fn enter_generation(&self, generation: u64) {
        let mut present = self.generation.lock();
        *present = generation;
        if let Some(lost) = self.context.highest_lost() {
            self.watch_cache.rewind(lost);
        }
    }

    /// The number of rewinds after which what it holds was listed.
    pub(crate) fn generation(&self) -> u64 {
        *self.generation.lock()
    }

    /// Does something to the cache if what it holds is still of the history after so many rewinds, and that is not in doubt.
    pub(crate) fn in_generation<T>(
        &self,
        generation: u64,
        act: impl FnOnce(&WatchCache) -> T,
    ) -> Option<T> {
        let present = self.generation.lock();
        let is_present = *present == generation && *self.context.rewinds.borrow() == generation;
        is_present.then(|| act(&self.watch_cache))
    }

    /// Takes note that the upstream was shown to have nothing for the cache up to this resourceVersion.
    pub(crate) fn apply_progress(&self, generation: u64, resource_version: ResourceVersion) {
        let now = self.context.now();
        self.in_generation(generation, |cache| {
            cache.apply(vec![Change::Progress(resource_version)], now)
        });
        self.context.observe(resource_version);
        if let Some(state) = self.watch_cache.state() {
            self.series.contents(state.len(), state.weight(), state.resource_version().0);
        }
    }

    /// Takes note whether the upstream's watch is open.
    pub(crate) fn set_watching(&self, watching: bool) {
        self.watching.send_if_modified(|was| std::mem::replace(was, watching) != watching);
    }

    /// Its first list is of a resourceVersion that a client asked for.
    pub(crate) fn set_seeded_at_exact(&self) {
        self.seeded_at_exact.store(true, Ordering::Relaxed);
    }

    /// Whether whatever it holds was listed after this moment, consistently.
    pub(crate) fn is_listed_since(&self, moment: Instant) -> bool {
        self.created >= moment && !self.seeded_at_exact.load(Ordering::Relaxed)
    }

    /// Asks the reflector to end; the first reason counts.
    pub(crate) fn stop(&self, reason: Refusal) {
        self.stop_reason.lock().get_or_insert(reason);
        self.cancel.cancel();
    }

    /// Asks the reflector to end with the watch that it has, since the upstream is about to end that: nobody new comes here, and who watches gets
    /// what the upstream still tells.
    pub(crate) fn retire(&self, reason: Refusal) {
        self.stop_reason.lock().get_or_insert(reason);
        self.retiring.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to end so.
    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring.load(Ordering::Relaxed)
    }

    /// Why it was asked to end; shutdown cancels without a reason.
    pub(crate) fn stop_reason(&self) -> Refusal {
        self.stop_reason.lock().unwrap_or(Refusal::Stopping)
    }

    /// Counts a use.
    pub(crate) fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
        self.last_used_ms.store(self.context.millis(), Ordering::Relaxed);
    }

    /// Ends a use.
    pub(crate) fn end_use(&self) {
        self.last_used_ms.store(self.context.millis(), Ordering::Relaxed);
        self.users.fetch_sub(1, Ordering::Release);
    }

    /// Whether nobody uses it.
    pub(crate) fn is_unused(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    /// When it was last taken or given back, in milliseconds of the common clock.
    pub(crate) fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// Whether nobody has used it for so long.
    pub(crate) fn is_idle(&self, timeout: Duration) -> bool {
        let idle_ms = self.context.millis().saturating_sub(self.last_used_ms());
        self.is_unused() && u128::from(idle_ms) >= timeout.as_millis()
    }

    /// Whether the configuration keeps it warm.
    pub(crate) fn is_warm(&self) -> bool {
        self.key.scope == Scope::Cluster && self.context.config.warm.contains(&self.key.gvr)
    }

    /// A place among those who wait for the first state; `None` when there are too many.
    pub(crate) fn register_waiter(&self) -> Option<ReadyWaiter<'_>> {
        let waiter = ReadyWaiter { cached: self };
        let before = self.waiters.fetch_add(1, Ordering::Relaxed);
        (before < READY_WAITERS_MAX).then_some(waiter)
    }

    /// Takes note that the first state came; true the first time.
    pub(crate) fn mark_ready(&self) -> bool {
        !self.ready.swap(true, Ordering::Relaxed)
    }
}

/// Whether an upstream has watch-list: unknown until one was tried (design, section 9).
#[derive(Debug, Default)]
pub(crate) struct WatchListSupport(AtomicU8);

impl WatchListSupport {
    /// Whether to try: it works, or nobody knows.
    pub(crate) fn is_worth_trying(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UNSUPPORTED
    }

    /// Whether one has reached the end of its initial events.
    pub(crate) fn is_supported(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SUPPORTED
    }

    /// Whether one was tried.
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Remembers that one worked.
    pub(crate) fn set_supported(&self) {
        self.0.store(SUPPORTED, Ordering::Relaxed);
    }

    /// Remembers that the upstream refused one as invalid.
    pub(crate) fn set_unsupported(&self) {
        self.0.store(UNSUPPORTED, Ordering::Relaxed);
    }

    /// Remembers that the upstream answers one like an ordinary watch, unless one has worked.
    pub(crate) fn presume_unsupported(&self) {
        let _unchanged = self
            .0
            .compare_exchange(UNKNOWN, UNSUPPORTED, Ordering::Relaxed, Ordering::Relaxed)
            .is_err();
    }
}

const UNKNOWN: u8 = 0;
const SUPPORTED: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// Lists under way upstream at once. A list of a large resource takes a share of the upstream's CPU and of our memory; many warm
/// resources at a start, or all of them after a rewound history, must not come at once.
const LISTS_AT_ONCE_MAX: usize = 8;
/// Second lists under way upstream at once, of all caches. Each is of a small collection, and takes some ten milliseconds.
const PROOF_LISTS_MAX: usize = 8;
/// Short watches under way upstream at once, of all caches: the streams of one HTTP/2 connection (design, section 8).
const PROOF_WATCHES_MAX: usize = 64;
/// Requests that wait for one cache's first state; beyond it they are forwarded within the forward budget.
const READY_WAITERS_MAX: usize = 16_384;
/// The upstream's own smallest history (semantics.md §5.9).
const HISTORY_EVENTS_MIN: usize = 100;
/// The upstream's own largest history (semantics.md §5.9).
const HISTORY_EVENTS_MAX: usize = 102_400;
/// The age that the upstream's history tries to reach (semantics.md §5.9).
const HISTORY_AGE: Duration = Duration::from_secs(75);
