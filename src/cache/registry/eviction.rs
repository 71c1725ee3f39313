//! Stops caches so that the byte budget and the number of caches hold.
//!
//! Events beyond the histories' limit, which slow watchers have still to read, go first. Then
//! caches without users are stopped, least recently used first. Warm caches are spared as long as
//! possible.

use std::time::Duration;

use crate::cache::cached_resource::CachedResource;
use crate::cache::context::CacheContext;
use crate::cache::refusal::Refusal;
use crate::cache::registry::cache_map::CacheMap;

/// Stops unused caches if one more cache would exceed a limit. Fails if that is not enough.
pub(super) fn make_space(caches: &CacheMap, context: &CacheContext) -> Result<(), Refusal> {
    if caches.len() >= CACHES_MAX && !stop_unused(caches, 1, |_| 1) {
        context.metrics.budget_refusal("caches");
        return Err(Refusal::OverBudget);
    }
    if context.budget.is_exhausted() {
        give_back(caches, context, 1, false);
    }
    if context.budget.is_exhausted() {
        let missing = context.budget.excess() + 1;
        if !stop_unused(caches, missing, |cached| cached.account.state()) {
            context.metrics.budget_refusal("total");
            return Err(Refusal::OverBudget);
        }
    }
    Ok(())
}

/// Brings the total below its limit. If stopping unused caches is not enough, stops used ones too,
/// least recently used first. Their requests are forwarded meanwhile.
pub(super) fn keep_total_budget(caches: &CacheMap, context: &CacheContext) {
    if context.budget.excess() > 0 {
        give_back(caches, context, 1, false);
    }
    let excess = context.budget.excess();
    if excess == 0 || stop_unused(caches, excess, |cached| cached.account.state()) {
        return;
    }
    let mut used = caches.to_vec();
    used.retain(|cached| !cached.lifecycle.cancel.is_cancelled());
    // Each is read once: they change meanwhile, and a sort may panic at an order that does.
    used.sort_by_cached_key(|cached| (cached.is_warm(), cached.usage.last_used_ms()));
    let mut freed = 0;
    for cached in used {
        if freed >= excess {
            break;
        }
        freed += cached.account.state();
        context.metrics.budget_refusal("total");
        cached.account.close();
        cached.lifecycle.stop(Refusal::OverBudget);
    }
}

/// Trims each history to one of `history_part` parts of its limit. If asked to, stops the caches
/// that nobody has used for [`PAUSE_MAX`].
pub(super) fn give_back(
    caches: &CacheMap,
    context: &CacheContext,
    history_part: usize,
    stops_unused: bool,
) {
    let bytes_max = context.config().history_bytes_max / history_part.max(1);
    for cached in caches.to_vec() {
        cached.trim_history(bytes_max);
        if stops_unused && !cached.is_warm() {
            let is_idle = |cached: &CachedResource| cached.usage.is_idle(PAUSE_MAX);
            caches.stop_if(&cached, Refusal::NotReady, is_idle);
        }
    }
}

/// Stops unused caches, least recently used first, until `needed` is freed. `freed_by` returns how
/// much a cache frees. Returns false if stopping all of them does not free enough.
fn stop_unused(
    caches: &CacheMap,
    needed: usize,
    freed_by: impl Fn(&CachedResource) -> usize,
) -> bool {
    let mut unused = caches.to_vec();
    unused.retain(|cached| cached.usage.is_unused() && !cached.is_warm());
    unused.sort_by_cached_key(|cached| cached.usage.last_used_ms());
    let mut freed = 0;
    for cached in unused {
        if freed >= needed {
            break;
        }
        let amount = freed_by(&cached);
        if caches.stop_if(&cached, Refusal::NotReady, |cached| cached.usage.is_unused()) {
            freed += amount;
        }
    }
    freed >= needed
}

/// A cache that was used within this time would soon be filled again, which takes more memory than
/// to keep it.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The largest number of caches. A cluster has some hundreds of resources. The rest is for caches
/// of single namespaces, where Weir's identity may not list the cluster.
const CACHES_MAX: usize = 2_048;
