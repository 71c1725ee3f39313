//! The objects of a list under way: claimed from the byte budgets as they come, and given back when the list is over, however it ends.

use crate::cache::cached_resource::CachedResource;
use crate::cache::reflector::failure::Failure;
use crate::cache::refusal::Refusal;
use crate::codec::object::Object;

/// See the module.
pub(super) struct ListAccumulator<'a> {
    cached: &'a CachedResource,
    objects: Vec<Object>,
    weight: usize,
}

impl<'a> ListAccumulator<'a> {
    /// Nothing yet.
    pub(super) fn new(cached: &'a CachedResource) -> Self {
        Self { cached, objects: Vec::new(), weight: 0 }
    }

    /// Takes an object, if the budgets have room for it.
    pub(super) fn push(&mut self, object: Object) -> Result<(), Failure> {
        self.weight += object.weight();
        self.objects.push(object);
        self.cached.account.set_listing(self.weight);
        let budget = if self.cached.account.is_too_heavy(self.weight) {
            "resource"
        } else if self.cached.context.budget.excess() > OVERDRAFT_BYTES {
            "total"
        } else {
            return Ok(());
        };
        self.cached.context.metrics.budget_refusal(budget);
        Err(Failure::Stop(Refusal::OverBudget))
    }

    /// Not sent by any known upstream before the end of initial events; client-go allows for it, and so do we.
    pub(super) fn remove(&mut self, deleted: &Object) {
        self.objects.retain(|object| object.key != deleted.key);
    }

    /// All of them, in the order in which they came.
    pub(super) fn take(&mut self) -> Vec<Object> {
        std::mem::take(&mut self.objects)
    }

    /// Begins again.
    pub(super) fn clear(&mut self) {
        self.weight = 0;
        self.objects.clear();
        self.cached.account.set_listing(0);
    }
}

impl Drop for ListAccumulator<'_> {
    fn drop(&mut self) {
        self.cached.account.set_listing(0);
    }
}

/// How far a list may exceed the total budget before it is given up: the registry needs a moment to stop idle caches first.
const OVERDRAFT_BYTES: usize = 16 * 1024 * 1024;
