//! The task that compares the caches with the upstream, page by page, and what follows from a
//! difference (`docs/decisions/verified-caches.md`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::page_comparison::{KeyDifference, PageComparison};
use crate::cache::core::watch_cache::EndCause;
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::refusal::Refusal;
use crate::cache::registry::inner::Inner;
use crate::cache::verification::check::{Checked, PagePlan, check, page_objects, pages};
use crate::cache::verification::findings::WrongSide;
use crate::cache::verification::pace::{Candidate, CheckEnd, ETCD_PAGE_GAP, PAGE_GAP, Pace};
use crate::cache::verification::walk::{WHOLE_EVERY, Walk};
use crate::config::VerifyMode;
use crate::upstream::lister_watcher::ExactServer;
use crate::upstream::version::UpstreamVersion;

/// The data of the task.
struct Verifier {
    pace: Pace<CacheKey>,
    walks: HashMap<CacheKey, CacheWalk>,
    /// The caches that are listed again. A handle keeps them from being idle.
    refilled: HashMap<CacheKey, CacheHandle>,
}

/// The walk through one cache.
struct CacheWalk {
    /// Another cache of the key begins another walk.
    cached: Weak<CachedResource>,
    walk: Walk,
    /// Since when bytes differ that had the same resourceVersion.
    unsettled_since: Option<Duration>,
    /// Whether the next page is read from another API server.
    asks_other: bool,
    /// Whether the metadata alone of a page were compared in this round.
    has_metadata_page: bool,
}

impl Inner {
    /// Compares the caches with the upstream until shutdown.
    pub(super) fn spawn_verification(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        let cancel = self.context.cancel.clone();
        self.context.tasks.spawn(cancel.run_until_cancelled_owned(async move {
            let (walks, refilled) = (HashMap::new(), HashMap::new());
            let mut verifier = Verifier { pace: Pace::new(), walks, refilled };
            loop {
                tokio::time::sleep(PAGE_GAP).await;
                registry.verify_next(&mut verifier).await;
            }
        }));
    }

    /// Lets no cache be compared for a while: memory is short.
    pub(super) fn pause_verification(&self) {
        let until = self.context.clock.now().0 + OVERLOAD_PAUSE;
        *self.verification_paused_until.lock() = until;
    }

    /// Compares the page that is due, if there is one.
    async fn verify_next(self: &Arc<Self>, verifier: &mut Verifier) {
        let (mode, round) = {
            let config = self.context.config();
            (config.verify, config.verify_round)
        };
        if mode != VerifyMode::Enforce {
            verifier.refilled.clear();
            self.quarantines.release_all(&self.context);
        }
        if mode == VerifyMode::Off {
            return;
        }
        self.refill(verifier).await;
        let Some(gap) = self.page_gap() else { return };
        let now = self.context.clock.now().0;
        verifier.pace.pause(*self.verification_paused_until.lock());
        let caches = self.verifiable(verifier);
        let candidates: Vec<_> = caches.iter().map(|(candidate, _)| candidate.clone()).collect();
        let Some(key) = verifier.pace.choose(&candidates, round, now, fastrand::f64) else {
            return;
        };
        let Some((candidate, cached)) = caches.iter().find(|(it, _)| it.key == key) else { return };
        let end = self.verify_page(verifier, cached, mode).await;
        let now = self.context.clock.now().0;
        verifier.pace.checked(candidate, end, round, gap, now);
    }

    /// Returns the least time between two pages; `None` if nothing may be compared now.
    fn page_gap(&self) -> Option<Duration> {
        let version = self.source.version();
        let has_snapshots = version.borrow().as_ref().map(UpstreamVersion::has_snapshots);
        let gap = if has_snapshots? { PAGE_GAP } else { ETCD_PAGE_GAP };
        self.context.availability.is_usable().then_some(gap)
    }

    /// Returns the caches that can be compared. Forgets the walks of others.
    fn verifiable(
        &self,
        verifier: &mut Verifier,
    ) -> Vec<(Candidate<CacheKey>, Arc<CachedResource>)> {
        let mut caches = Vec::new();
        for cached in self.caches.all() {
            let is_settled = cached.lifecycle.is_watching() && cached.is_ready();
            let Some(state) = cached.watch_cache.state().filter(|_| is_settled) else { continue };
            let pages = pages(state.len(), state.weight());
            let is_urgent = cached.findings.is_suspected()
                || cached.lifecycle.is_comparison_due()
                || self.quarantines.is_closed(&cached.key);
            caches.push((Candidate { key: cached.key.clone(), pages, is_urgent }, cached));
        }
        verifier.walks.retain(|_, walk| walk.cached.strong_count() > 0);
        caches
    }

    /// Compares one page of a cache.
    async fn verify_page(
        &self,
        verifier: &mut Verifier,
        cached: &Arc<CachedResource>,
        mode: VerifyMode,
    ) -> CheckEnd {
        let Some(state) = cached.watch_cache.state() else { return CheckEnd::Inconclusive };
        let now = self.context.clock.now().0;
        let walk = verifier.walks.entry(cached.key.clone()).or_insert_with(|| begin_walk(cached));
        if walk.cached.as_ptr() != Arc::as_ptr(cached) {
            *walk = begin_walk(cached);
        }
        let server = if walk.asks_other { ExactServer::OtherIfKnown } else { ExactServer::Own };
        let settling = self.context.config().verify_round / SETTLING_PARTS;
        let is_settled =
            walk.unsettled_since.is_some_and(|since| now.saturating_sub(since) >= settling);
        let plan = PagePlan::new(state, &walk.walk, server);
        let checked = check(cached, &plan, is_settled).await;
        let label = if plan.is_whole { "bytes" } else { "page" };
        cached.series.checked(label, checked.as_str());
        walk.asks_other = !walk.asks_other;
        let compared = match &checked {
            Checked::Equal(compared) => compared,
            Checked::Different(wrong, compared) => {
                report(cached, plan.at(), *wrong, compared);
                if *wrong == WrongSide::Unknown {
                    return CheckEnd::Inconclusive;
                }
                compared
            }
            Checked::Unsettled(_) => {
                walk.unsettled_since.get_or_insert(now);
                return CheckEnd::Inconclusive;
            }
            Checked::Malformed | Checked::Inconclusive => return CheckEnd::Inconclusive,
            Checked::Refused => return CheckEnd::Refused,
        };
        cached.findings.checked();
        cached.series.page_checked();
        walk.unsettled_since = None;
        let is_round = walk.walk.advance(compared.through.clone(), plan.is_whole);
        let is_by_bytes = plan.is_whole && !walk.has_metadata_page;
        walk.has_metadata_page = !is_round && !is_by_bytes;
        let is_wrong = matches!(checked, Checked::Different(WrongSide::Cache, _));
        if is_wrong && (mode == VerifyMode::Enforce || cached.lifecycle.is_seeded()) {
            self.note_wrong_seed(cached);
            verifier.walks.remove(&cached.key);
            verifier.refilled.remove(&cached.key);
            self.quarantine(cached);
        } else if is_round {
            cached.findings.round_done();
            cached.lifecycle.note_round(is_by_bytes);
            verifier.refilled.remove(&cached.key);
            self.quarantines.release(&cached.key, &self.context);
        }
        CheckEnd::Conclusive
    }

    /// Stops a cache that was proved wrong. Its clients list elsewhere until its successor was
    /// checked.
    fn quarantine(&self, cached: &Arc<CachedResource>) {
        let through = cached.shown().unwrap_or_default();
        let report = cached.findings.report();
        self.quarantines.begin(&cached.key, through, report, &self.context);
        // Before the reflector ends: it would end the watches as those of any stopped cache, and
        // their clients would not list.
        cached.watch_cache.invalidate(EndCause::Wrong);
        self.caches.stop_if(cached, Refusal::Quarantined, |_| true);
    }

    /// Lists the quarantined caches again.
    async fn refill(self: &Arc<Self>, verifier: &mut Verifier) {
        let known = |key: &CacheKey| self.source.peek(&key.gvr).is_some();
        for key in self.quarantines.refilling(&self.context, known) {
            if self.caches.contains(&key) && verifier.refilled.contains_key(&key) {
                continue;
            }
            // A refusal of the upstream is not tried each second.
            if self.negative_cache.get(&key).await.is_some() {
                continue;
            }
            let Ok(Some(resource)) = self.source.find(&key.gvr).await else { continue };
            match self.start(key.clone(), resource, None) {
                Ok(handle) => drop(verifier.refilled.insert(key, handle)),
                Err(refusal) => {
                    tracing::debug!(resource = %key.gvr, reason = refusal.as_str(), "a quarantined cache is not listed again yet");
                }
            }
        }
    }
}

/// Begins a walk: after a random key, or at the begin of a collection that one page may hold.
fn begin_walk(cached: &Arc<CachedResource>) -> CacheWalk {
    let state = cached.watch_cache.state();
    let state = state.filter(|state| state.len() > page_objects(state.len()) as usize);
    let after = state.and_then(|state| {
        let number = fastrand::usize(..=state.len());
        let before = number.checked_sub(1)?;
        state.store().iter().nth(before).map(|object| object.key.clone())
    });
    let walk = Walk::new(after, fastrand::u32(..WHOLE_EVERY));
    let cached = Arc::downgrade(cached);
    CacheWalk { cached, walk, unsettled_since: None, asks_other: false, has_metadata_page: false }
}

/// Reports a difference: keys and resourceVersions, never values.
fn report(
    cached: &CachedResource,
    at: ResourceVersion,
    wrong: WrongSide,
    compared: &PageComparison,
) {
    let PageComparison { count, differences, .. } = compared;
    cached.findings.differs(wrong, *count, differences.clone());
    let keys: Vec<_> = differences.iter().map(describe).collect();
    let text = match wrong {
        WrongSide::Cache => "the cache is wrong: etcd contradicts it",
        WrongSide::ApiServer => {
            "an API server's watch cache is wrong: etcd contradicts it and agrees with the cache"
        }
        WrongSide::Unknown => "the cache and the API server differed, which was not confirmed",
    };
    let resource = &cached.key.gvr;
    let namespace = cached.key.namespace();
    if wrong == WrongSide::Unknown {
        tracing::warn!(%resource, namespace, resource_version = %at, count, ?keys, "{text}");
    } else {
        tracing::error!(%resource, namespace, resource_version = %at, count, ?keys, "{text}");
    }
}

/// Writes a difference as `namespace/name: held 5, upstream 7`.
fn describe(difference: &KeyDifference) -> String {
    let version = |version: Option<ResourceVersion>| {
        version.map_or_else(|| "none".to_owned(), |version| version.to_string())
    };
    let KeyDifference { key, held, upstream } = difference;
    format!("{key:?}: held {}, upstream {}", version(*held), version(*upstream))
}

/// For a tenth of a round, a minute, bytes must differ under one resourceVersion: a changed
/// definition, and the release of an API server, are noticed sooner.
const SETTLING_PARTS: u32 = 10;
/// How long nothing is compared after memory was short.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(60);
