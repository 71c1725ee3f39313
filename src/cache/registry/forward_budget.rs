//! How many lists and watches of one resource may be under way upstream for want of a cache (design, section 7): a cold or failing cache
//! must never turn into a herd there.
//!
//! Invariant: the map holds resources that discovery knows, and no others; those it does not know share one budget, so that names made up by a
//! client fill nothing.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::resource::GroupVersionResource;
use crate::cache::metrics::CacheMetrics;

/// A place in a forward budget.
#[derive(Debug)]
pub struct ForwardPermit {
    _permit: OwnedSemaphorePermit,
}

/// See the module.
pub(crate) struct ForwardBudget {
    permits: usize,
    known: DashMap<GroupVersionResource, Arc<Semaphore>>,
    unknown: Arc<Semaphore>,
}

impl ForwardBudget {
    /// So many places for each resource.
    pub(crate) fn new(permits: usize) -> Self {
        let permits = permits.min(Semaphore::MAX_PERMITS);
        Self { permits, known: DashMap::new(), unknown: Arc::new(Semaphore::new(permits)) }
    }

    /// A place, or `None` when all are taken.
    pub(crate) fn try_acquire(
        &self,
        gvr: &GroupVersionResource,
        known: bool,
        metrics: &CacheMetrics,
    ) -> Option<ForwardPermit> {
        let semaphore = if known {
            let shard = self.known.get(gvr).map(|semaphore| Arc::clone(&semaphore));
            shard.unwrap_or_else(|| Arc::clone(&self.semaphore(gvr)))
        } else {
            Arc::clone(&self.unknown)
        };
        if let Ok(permit) = semaphore.try_acquire_owned() {
            return Some(ForwardPermit { _permit: permit });
        }
        if known {
            metrics.forward_exhausted(&gvr.group, &gvr.version, &gvr.resource);
        } else {
            metrics.forward_exhausted("", "", "");
        }
        None
    }

    /// Forgets the resources that are gone. Places still taken are given back to nobody.
    pub(crate) fn retain(&self, is_known: impl Fn(&GroupVersionResource) -> bool) {
        self.known.retain(|gvr, _| is_known(gvr));
    }

    fn semaphore(&self, gvr: &GroupVersionResource) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(self.permits));
        Arc::clone(&self.known.entry(gvr.clone()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_resource_has_its_places_and_strangers_share() {
        let metrics = CacheMetrics::register(&prometheus::Registry::new()).unwrap();
        let budget = ForwardBudget::new(1);
        let pods = GroupVersionResource::new("", "v1", "pods");
        let nodes = GroupVersionResource::new("", "v1", "nodes");
        let held = budget.try_acquire(&pods, true, &metrics).unwrap();
        assert!(budget.try_acquire(&pods, true, &metrics).is_none());
        assert!(budget.try_acquire(&nodes, true, &metrics).is_some());
        drop(held);
        assert!(budget.try_acquire(&pods, true, &metrics).is_some());
        let stranger =
            budget.try_acquire(&GroupVersionResource::new("x", "v1", "a"), false, &metrics);
        assert!(stranger.is_some());
        let other = GroupVersionResource::new("x", "v1", "b");
        assert!(budget.try_acquire(&other, false, &metrics).is_none());
        assert_eq!(budget.known.len(), 2);
        budget.retain(|gvr| *gvr == nodes);
        assert_eq!(budget.known.len(), 1);
    }
}
