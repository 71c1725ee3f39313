//! The caches that exceed a byte budget, for the alarm and for the next attempts.
//!
//! A resource that does not fit is a lasting condition, which an operator must hear of: a metric
//! stays at 1, and each attempt logs a line. Requests do not wait for a further attempt, since it
//! is likely to fail too (`docs/decisions/herds.md`).
//!
//! Lock order: a shard of `caches`, with no other lock.

use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::cache::context::CacheContext;
use crate::cache::key::CacheKey;
use crate::telemetry::events::EventKind;

/// The caches that exceed a byte budget.
#[derive(Default)]
pub(super) struct OverBudget {
    caches: DashMap<CacheKey, Excess>,
}

struct Excess {
    /// The number of times in a row that a cache of the key was stopped.
    attempts: u32,
    /// The last time at which a cache was stopped, or not started.
    last: Instant,
}

impl OverBudget {
    /// Notes that a cache was stopped because it exceeded a budget. Returns how often in a row this
    /// has happened.
    pub(super) fn note_stopped(&self, key: &CacheKey, context: &CacheContext) -> u32 {
        let attempts = self.note(key, context, 1);
        let text = "The cache exceeds its byte budget; the resource is forwarded until it fits.";
        context.metrics.events().notable_begin(EventKind::Budget, key, text, |left_out| {
            tracing::warn!(
                resource = %key.gvr,
                namespace = key.namespace(),
                representation = key.representation.as_str(),
                resource_bytes_max = context.config().resource_bytes_max,
                total_bytes_max = context.config().total_bytes_max,
                attempts,
                left_out,
                "the cache exceeds its byte budget; the resource is forwarded until it fits (raise cache.resourceBytesMax or cache.totalBytesMax, or exclude it)"
            );
        });
        attempts
    }

    /// Notes that a cache was not started because the budgets are exhausted.
    pub(super) fn note_refused(&self, key: &CacheKey, context: &CacheContext) {
        self.note(key, context, 0);
    }

    /// Whether the last cache of a key exceeded a budget.
    pub(super) fn contains(&self, key: &CacheKey) -> bool {
        self.caches.contains_key(key)
    }

    /// Returns the keys of all of them.
    pub(super) fn keys(&self) -> Vec<CacheKey> {
        self.caches.iter().map(|entry| entry.key().clone()).collect()
    }

    /// Notes that a cache fits.
    pub(super) fn clear(&self, key: &CacheKey, context: &CacheContext) {
        if self.caches.remove(key).is_some() {
            let text = "The cache fits its byte budget again.";
            context.metrics.events().notable_end(EventKind::Budget, key, text, |left_out| {
                tracing::info!(resource = %key.gvr, namespace = key.namespace(), left_out, "the cache fits its byte budget again");
            });
            context.metrics.over_budget(key.labels(), false);
        }
    }

    /// Forgets the caches that nobody has asked for since long, and those of which `is_known` is
    /// false.
    pub(super) fn retain(&self, context: &CacheContext, is_known: impl Fn(&CacheKey) -> bool) {
        self.caches.retain(|key, excess| {
            let is_kept = excess.last.elapsed() < UNUSED_AFTER && is_known(key);
            if !is_kept {
                context.metrics.over_budget(key.labels(), false);
            }
            is_kept
        });
    }

    fn note(&self, key: &CacheKey, context: &CacheContext, attempts: u32) -> u32 {
        if self.caches.len() >= CACHES_MAX && !self.caches.contains_key(key) {
            return attempts;
        }
        let new = || Excess { attempts: 0, last: Instant::now() };
        let mut excess = self.caches.entry(key.clone()).or_insert_with(new);
        excess.attempts = excess.attempts.saturating_add(attempts);
        excess.last = Instant::now();
        context.metrics.over_budget(key.labels(), true);
        excess.attempts
    }
}

/// The largest number of caches. Clients choose the namespaces in requests, so the number must be
/// bounded.
const CACHES_MAX: usize = 1_000;
/// More than twice the longest time between two attempts.
const UNUSED_AFTER: Duration = Duration::from_secs(20 * 60);
