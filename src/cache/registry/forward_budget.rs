//! Limits the lists and watches of a resource that are forwarded because it has no cache.
//!
//! Without the limit, all clients of a cold or failing cache would list from the upstream at the
//! same time (`docs/decisions/herds.md`). There are two such budgets. The one for caches that
//! are cold or fail is small, since these states are short. The one for caches that exceed a byte
//! budget is larger, since that may last (`docs/decisions/herds.md`).
//!
//! Invariant: the map only holds resources that discovery knows. All other resources share one
//! budget, so that invented names cannot fill the map.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::resource::GroupVersionResource;
use crate::cache::metrics::CacheMetrics;
use crate::telemetry::metrics::GaugeGuard;

/// A permit of a forward budget. Dropping it releases the permit.
#[derive(Debug)]
pub struct ForwardPermit {
    _permit: OwnedSemaphorePermit,
    _held: GaugeGuard,
}

/// The forward budgets of all resources.
pub(crate) struct ForwardBudget {
    /// The label value of the metric.
    name: &'static str,
    permits: usize,
    by_resource: DashMap<GroupVersionResource, Arc<Semaphore>>,
    for_unknown_resources: Arc<Semaphore>,
}

impl ForwardBudget {
    /// Creates budgets of `permits` for each resource.
    pub(crate) fn new(name: &'static str, permits: usize) -> Self {
        let permits = permits.min(Semaphore::MAX_PERMITS);
        Self {
            name,
            permits,
            by_resource: DashMap::new(),
            for_unknown_resources: Arc::new(Semaphore::new(permits)),
        }
    }

    /// Acquires a permit. Returns `None` if the budget of the resource is exhausted.
    pub(crate) fn try_acquire(
        &self,
        gvr: &GroupVersionResource,
        is_served: bool,
        metrics: &CacheMetrics,
    ) -> Option<ForwardPermit> {
        let semaphore = if is_served {
            let shard = self.by_resource.get(gvr).map(|semaphore| Arc::clone(&semaphore));
            shard.unwrap_or_else(|| Arc::clone(&self.semaphore(gvr)))
        } else {
            Arc::clone(&self.for_unknown_resources)
        };
        if let Ok(permit) = semaphore.try_acquire_owned() {
            return Some(ForwardPermit { _permit: permit, _held: metrics.forwarding(self.name) });
        }
        if is_served {
            metrics.forward_exhausted([&gvr.group, &gvr.version, &gvr.resource], self.name);
        } else {
            metrics.forward_exhausted(["", "", ""], self.name);
        }
        None
    }

    /// Removes the budgets of resources that are gone. Permits that are still held stay valid.
    pub(crate) fn retain(&self, is_known: impl Fn(&GroupVersionResource) -> bool) {
        self.by_resource.retain(|gvr, _| is_known(gvr));
    }

    fn semaphore(&self, gvr: &GroupVersionResource) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(self.permits));
        Arc::clone(&self.by_resource.entry(gvr.clone()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_resource_has_its_permits_and_unknown_ones_share() {
        let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
        let budget = ForwardBudget::new("forward", 1);
        let pods = GroupVersionResource::new("", "v1", "pods");
        let nodes = GroupVersionResource::new("", "v1", "nodes");
        let held = budget.try_acquire(&pods, true, &metrics).unwrap();
        assert!(budget.try_acquire(&pods, true, &metrics).is_none());
        assert!(budget.try_acquire(&nodes, true, &metrics).is_some());
        drop(held);
        assert!(budget.try_acquire(&pods, true, &metrics).is_some());
        let permit =
            budget.try_acquire(&GroupVersionResource::new("x", "v1", "a"), false, &metrics);
        assert!(permit.is_some());
        let other = GroupVersionResource::new("x", "v1", "b");
        assert!(budget.try_acquire(&other, false, &metrics).is_none());
        assert_eq!(budget.by_resource.len(), 2);
        budget.retain(|gvr| *gvr == nodes);
        assert_eq!(budget.by_resource.len(), 1);
    }
}
