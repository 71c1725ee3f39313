//! The quarantined caches of a registry.
//!
//! While no cache is quarantined, which is the usual case, a request costs the load of a number.
//!
//! Lock order: a shard of `entries`, with no other lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::api::resource::{GroupVersionResource, Representation, Scope};
use crate::api::resource_version::ResourceVersion;
use crate::cache::context::CacheContext;
use crate::cache::key::CacheKey;
use crate::cache::verification::findings::CheckReport;
use crate::cache::verification::quarantine::{Phase, Quarantine};
use crate::telemetry::events::EventKind;

/// The quarantined caches, and those that were within a day.
#[derive(Default)]
pub(super) struct Quarantines {
    entries: DashMap<CacheKey, Entry>,
    /// The number of entries.
    count: AtomicUsize,
}

struct Entry {
    quarantine: Quarantine,
    /// The report of the wrong cache, which its successors take over.
    report: CheckReport,
}

impl Quarantines {
    /// Notes that a cache was proved wrong, and was at `through`.
    pub(super) fn begin(
        &self,
        key: &CacheKey,
        through: ResourceVersion,
        report: CheckReport,
        context: &CacheContext,
    ) {
        let now = context.clock.now().0;
        let earlier = self.entries.get(key).map(|entry| entry.quarantine.clone());
        if earlier.is_none() {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        let mut quarantine = Quarantine::begin(earlier, through, now);
        let text = match quarantine.phase(now) {
            Phase::Barred(_) => {
                "The cache was proved wrong again; the resource is forwarded for six hours."
            }
            Phase::Refilling | Phase::Released => {
                "The cache was proved wrong; its resource is forwarded until a new one is checked."
            }
        };
        self.entries.insert(key.clone(), Entry { quarantine, report });
        context.metrics.quarantined(key.labels(), true);
        context.metrics.events().notable_begin(EventKind::Quarantine, key, text, |left_out| {
            tracing::warn!(resource = %key.gvr, namespace = key.namespace(), left_out, "{text}");
        });
    }

    /// Lets a cache answer that was checked whole.
    pub(super) fn release(&self, key: &CacheKey, context: &CacheContext) {
        self.end(key, context, "The new cache was checked whole, and answers.");
    }

    fn end(&self, key: &CacheKey, context: &CacheContext, text: &'static str) {
        let Some(mut entry) = self.entries.get_mut(key) else { return };
        if entry.quarantine.is_closed() {
            entry.quarantine.release();
            drop(entry);
            context.metrics.quarantined(key.labels(), false);
            context.metrics.events().notable_end(EventKind::Quarantine, key, text, |left_out| {
                tracing::info!(resource = %key.gvr, namespace = key.namespace(), left_out, "{text}");
            });
        }
    }

    /// Returns the resourceVersion up to which clients of a cache may have seen a wrong state;
    /// `None` if none was proved wrong within a day.
    pub(super) fn doubtful_through(&self, key: &CacheKey) -> Option<ResourceVersion> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.entries.get(key).map(|entry| entry.quarantine.through)
    }

    /// Returns what was found in the last wrong cache of a key.
    pub(super) fn report(&self, key: &CacheKey) -> Option<CheckReport> {
        self.entries.get(key).map(|entry| entry.report.clone())
    }

    /// Returns the key of the quarantined cache that would answer a request, if there is one.
    pub(super) fn closed(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
        representation: Representation,
    ) -> Option<CacheKey> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let key = |scope| CacheKey { gvr: gvr.clone(), representation, scope };
        let namespaced = (!namespace.is_empty()).then(|| Scope::Namespace(namespace.into()));
        [Some(Scope::Cluster), namespaced]
            .into_iter()
            .flatten()
            .map(key)
            .find(|key| self.is_closed(key))
    }

    /// Whether a cache answers nothing.
    pub(super) fn is_closed(&self, key: &CacheKey) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && self.entries.get(key).is_some_and(|entry| entry.quarantine.is_closed())
    }

    /// Returns the keys of the caches that answer nothing.
    pub(super) fn keys(&self) -> Vec<CacheKey> {
        let entries = self.entries.iter().filter(|entry| entry.quarantine.is_closed());
        entries.map(|entry| entry.key().clone()).collect()
    }

    /// Returns the keys of the caches that are to be listed again, or were. Forgets what is over,
    /// and those of which `is_known` is false.
    pub(super) fn refilling(
        &self,
        context: &CacheContext,
        is_known: impl Fn(&CacheKey) -> bool,
    ) -> Vec<CacheKey> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let now: Duration = context.clock.now().0;
        self.entries.retain(|key, entry| {
            let is_kept = !entry.quarantine.is_over(now) && is_known(key);
            if !is_kept {
                context.metrics.quarantined(key.labels(), false);
            }
            is_kept
        });
        self.count.store(self.entries.len(), Ordering::Release);
        let mut entries = self.entries.iter_mut();
        let refilling = entries.by_ref().filter_map(|mut entry| {
            let is_refilling = entry.value_mut().quarantine.phase(now) == Phase::Refilling;
            is_refilling.then(|| entry.key().clone())
        });
        refilling.collect()
    }

    /// Lets all caches answer: `cache.verify` is not `enforce`, or not any more.
    pub(super) fn release_all(&self, context: &CacheContext) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let keys: Vec<_> = self.entries.iter().map(|entry| entry.key().clone()).collect();
        let text = "The new cache answers at once: cache.verify is not enforce.";
        keys.iter().for_each(|key| self.end(key, context, text));
    }
}
