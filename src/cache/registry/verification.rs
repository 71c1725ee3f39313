//! The task that compares the caches with the upstream, page by page, and what follows from a
//! difference (`docs/decisions/verified-caches.md`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::resource_version::ResourceVersion;
use crate::cache::cached_resource::CachedResource;
use crate::cache::core::page_comparison::{KeyDifference, PageComparison};
use crate::cache::core::state::State;
use crate::cache::core::watch_cache::EndCause;
use crate::cache::handle::CacheHandle;
use crate::cache::key::CacheKey;
use crate::cache::refusal::Refusal;
use crate::cache::registry::cache_walk::CacheWalk;
use crate::cache::registry::inner::Inner;
use crate::cache::verification::check::{Checked, WHOLE_EVERY_MAX, check, pages, whole_every};
use crate::cache::verification::findings::WrongSide;
use crate::cache::verification::pace::{Candidate, CheckEnd, ETCD_PAGE_GAP, PAGE_GAP, Pace};
use crate::cache::verification::walk::RoundPages;
use crate::codec::object::Key;
use crate::config::VerifyMode;
use crate::upstream::version::UpstreamVersion;

/// The data of the task.
struct Verifier {
    pace: Pace<CacheKey>,
    walks: HashMap<CacheKey, CacheWalk>,
    /// The number of changes of the upstream's version.
    version_changes: u64,
    /// No bytes are compared before: API servers of two versions may write the same objects in
    /// other bytes.
    bytes_compared_after: Duration,
    /// The caches that are listed again. A handle keeps them from being idle.
    refilled: HashMap<CacheKey, CacheHandle>,
}

/// A cache that can be compared.
struct Verifiable {
    candidate: Candidate<CacheKey>,
    pages: RoundPages,
    cached: Arc<CachedResource>,
}

impl Inner {
    /// Compares the caches with the upstream until shutdown.
    pub(super) fn spawn_verification(self: &Arc<Self>) {
        let registry = Arc::clone(self);
        let cancel = self.context.cancel.clone();
        self.context.tasks.spawn(cancel.run_until_cancelled_owned(async move {
            let mut verifier = Verifier {
                pace: Pace::new(),
                walks: HashMap::new(),
                version_changes: *registry.source.version_changes().borrow(),
                bytes_compared_after: Duration::ZERO,
                refilled: HashMap::new(),
            };
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
        let (mode, round) = (self.context.config().verify, self.context.seams.verify_round);
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
        let caches = self.verifiable(verifier, round, now);
        let candidates: Vec<_> = caches.iter().map(|due| due.candidate.clone()).collect();
        let Some(key) = verifier.pace.choose(&candidates, round, now, fastrand::f64) else {
            return;
        };
        let Some(chosen) = caches.iter().find(|due| due.candidate.key == key) else { return };
        let end = self.verify_page(verifier, chosen, (mode, round)).await;
        let now = self.context.clock.now().0;
        let is_urgent = self.quarantines.is_closed(&key);
        let candidate = Candidate { is_urgent, ..chosen.candidate.clone() };
        verifier.pace.checked(&candidate, end, round, gap, now);
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
        round: Duration,
        now: Duration,
    ) -> Vec<Verifiable> {
        let mut states = Vec::new();
        for cached in self.caches.to_vec() {
            let is_settled = cached.lifecycle.is_watching() && cached.is_ready();
            let state = cached.watch_cache.state().filter(|_| is_settled);
            states.extend(state.map(|state| (cached, state)));
        }
        verifier.walks.retain(|_, walk| walk.is_held());
        let weight = states.iter().map(|(_, state)| state.store().weight()).sum();
        let whole_every = self.whole_every(verifier, weight, round, now);
        let verifiable = |(cached, state): (Arc<CachedResource>, Arc<State>)| {
            let pages = pages(state.len(), state.store().weight(), whole_every);
            let key = cached.key.clone();
            let is_urgent = self.quarantines.is_closed(&key);
            let candidate = Candidate { key, pages: pages.total, is_urgent };
            Verifiable { candidate, pages, cached }
        };
        states.into_iter().map(verifiable).collect()
    }

    /// Returns in how many rounds all bytes are compared; `None` while none are: the upstream's
    /// version has changed lately, or its API servers have several.
    fn whole_every(
        &self,
        verifier: &mut Verifier,
        weight: usize,
        round: Duration,
        now: Duration,
    ) -> Option<u32> {
        let changes = *self.source.version_changes().borrow();
        let version = self.source.version();
        let version = version.borrow();
        let is_mixed = version.as_ref().is_some_and(|version| version.is_mixed);
        if is_mixed || changes != verifier.version_changes {
            verifier.version_changes = changes;
            verifier.bytes_compared_after = now + round * VERSION_ROUNDS;
        }
        if now < verifier.bytes_compared_after {
            return None;
        }
        // Older API servers read exact pages from etcd, and are asked for few.
        let has_snapshots = version.as_ref().is_some_and(UpstreamVersion::has_snapshots);
        let most = self.context.seams.verify_whole_bytes;
        Some(if has_snapshots { whole_every(weight, most) } else { WHOLE_EVERY_MAX })
    }

    /// Compares one page of a cache.
    async fn verify_page(
        &self,
        verifier: &mut Verifier,
        chosen: &Verifiable,
        (mode, round): (VerifyMode, Duration),
    ) -> CheckEnd {
        let Verifiable { cached, pages, .. } = chosen;
        let now = self.context.clock.now().0;
        let begin = || CacheWalk::begin(cached);
        let walk = verifier.walks.entry(cached.key.clone()).or_insert_with(begin);
        if !walk.is_through(cached) {
            *walk = begin();
        }
        // Before the state is read: the cause is of that state, or of an earlier one.
        if cached.findings.take_suspicion() {
            walk.begin_round();
        }
        let Some(state) = cached.watch_cache.state() else { return CheckEnd::Inconclusive };
        let page = walk.next_page(state, *pages);
        let checked = check(cached, &page, walk.is_settled(round, now)).await;
        let label = if page.is_whole { "bytes" } else { "page" };
        cached.series.checked(label, checked.as_str());
        walk.note_read();
        let compared = match &checked {
            Checked::Equal(compared) => compared,
            Checked::Different(wrong, compared) => {
                report(cached, page.at(), *wrong, compared);
                if *wrong == WrongSide::Unknown {
                    walk.note_failure(&page);
                    return CheckEnd::Inconclusive;
                }
                compared
            }
            Checked::Unsettled(_) => {
                walk.note_unsettled(now);
                walk.note_failure(&page);
                return CheckEnd::Inconclusive;
            }
            Checked::Malformed | Checked::Inconclusive => {
                walk.note_failure(&page);
                return CheckEnd::Inconclusive;
            }
            Checked::Refused => return CheckEnd::Refused,
        };
        cached.findings.checked();
        cached.series.page_checked();
        let is_wrong = matches!(checked, Checked::Different(WrongSide::Cache, _));
        if is_wrong && mode == VerifyMode::Enforce {
            verifier.walks.remove(&cached.key);
            verifier.refilled.remove(&cached.key);
            self.quarantine(cached);
        } else {
            let through = compared.through.clone();
            self.go_on(verifier, cached, *pages, through);
        }
        CheckEnd::Conclusive
    }

    /// Goes on after a page was compared, and ends the round that it completes.
    fn go_on(
        &self,
        verifier: &mut Verifier,
        cached: &Arc<CachedResource>,
        pages: RoundPages,
        through: Option<Key>,
    ) {
        let Some(walk) = verifier.walks.get_mut(&cached.key) else { return };
        if walk.advance(through, pages) && !cached.findings.is_suspected() {
            verifier.refilled.remove(&cached.key);
            self.quarantines.release(&cached.key, &self.context);
        }
    }

    /// Stops a cache that was proved wrong. Its clients list elsewhere until its successor was
    /// checked.
    fn quarantine(&self, cached: &Arc<CachedResource>) {
        let through = cached.gate.resource_version().unwrap_or_default();
        let report = cached.findings.report();
        self.quarantines.begin(&cached.key, through, report, &self.context);
        // Before its state is dropped, which says how far clients have seen.
        let is_closed = self.caches.close_if(cached, |_| true);
        // Before the reflector ends: it would end the watches as those of any stopped cache, and
        // their clients would not list.
        cached.writer.invalidate(EndCause::Wrong);
        if is_closed {
            cached.account.close();
            cached.lifecycle.stop(Refusal::Quarantined);
        }
    }

    /// Lists the quarantined caches again.
    async fn refill(self: &Arc<Self>, verifier: &mut Verifier) {
        let is_served = |key: &CacheKey| self.source.peek(&key.gvr).is_some();
        for key in self.quarantines.refilling(&self.context, is_served) {
            if self.caches.contains(&key) && verifier.refilled.contains_key(&key) {
                continue;
            }
            // A refusal of the upstream is not tried each second.
            if self.negative_cache.get(&key).is_some() {
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

/// Reports a difference.
fn report(
    cached: &CachedResource,
    at: ResourceVersion,
    wrong: WrongSide,
    compared: &PageComparison,
) {
    let PageComparison { count, differences, .. } = compared;
    cached.findings.differs(wrong, *count, differences.clone());
    log(&cached.key, at, wrong, compared);
}

/// Logs how many objects differ, and at debug their keys and resourceVersions, never values. More
/// people read the log than may read the objects, and the name of a Secret may already reveal
/// something: such names are only in `/api/caches`.
fn log(key: &CacheKey, at: ResourceVersion, wrong: WrongSide, compared: &PageComparison) {
    let PageComparison { count, differences, .. } = compared;
    let text = match wrong {
        WrongSide::Cache => "the cache is wrong: etcd contradicts it",
        WrongSide::ApiServer => {
            "an API server's watch cache is wrong: etcd contradicts it and agrees with the cache"
        }
        WrongSide::Unknown => "the cache and the API server differed, which was not confirmed",
    };
    let (resource, namespace) = (&key.gvr, key.namespace());
    if wrong == WrongSide::Unknown {
        tracing::warn!(%resource, namespace, resource_version = %at, count, "{text}");
    } else {
        tracing::error!(%resource, namespace, resource_version = %at, count, "{text}");
    }
    if !resource.is_secrets() && tracing::enabled!(tracing::Level::DEBUG) {
        let keys: Vec<_> = differences.iter().map(describe).collect();
        tracing::debug!(%resource, ?keys, "the objects that differ");
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

/// The number of rounds without a comparison of bytes, after the upstream's version has changed.
const VERSION_ROUNDS: u32 = 3;
/// How long nothing is compared after memory was short.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource::{GroupVersionResource, Representation, Scope};
    use crate::telemetry::recent_lines::RecentLines;

    #[test]
    fn the_names_of_objects_are_logged_at_debug_only_and_of_secrets_never() {
        let logged = |resource: &str, level: tracing::Level| {
            let lines = RecentLines::default();
            let subscriber =
                tracing_subscriber::fmt().with_max_level(level).with_writer(lines.clone()).finish();
            tracing::subscriber::with_default(subscriber, || {
                let difference =
                    KeyDifference { key: Key::new("shop", "planted"), held: None, upstream: None };
                let compared = PageComparison {
                    objects: 1,
                    through: None,
                    count: 1,
                    differences: vec![difference],
                };
                let gvr = GroupVersionResource::new("", "v1", resource);
                let (representation, scope) = (Representation::Json, Scope::Cluster);
                let key = CacheKey { gvr, representation, scope };
                log(&key, ResourceVersion::parse("7").unwrap(), WrongSide::Cache, &compared);
            });
            lines.text()
        };
        for resource in ["pods", "secrets"] {
            let text = logged(resource, tracing::Level::INFO);
            assert!(text.contains("the cache is wrong") && !text.contains("planted"), "{text}");
        }
        assert!(logged("pods", tracing::Level::DEBUG).contains("planted"));
        assert!(!logged("secrets", tracing::Level::DEBUG).contains("planted"));
    }
}
