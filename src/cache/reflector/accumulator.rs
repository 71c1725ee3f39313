//! The objects of a list in progress.
//!
//! The objects are claimed from the byte budgets as they arrive. The claim ends with the list,
//! however the list ends.

use crate::cache::budget::Account;
use crate::cache::context::CacheContext;
use crate::cache::reflector::failure::Failure;
use crate::cache::refusal::Refusal;
use crate::codec::object::Object;

/// The objects of a list in progress.
pub(super) struct ListAccumulator<'a> {
    account: &'a Account,
    context: &'a CacheContext,
    objects: Vec<Object>,
    weight: usize,
}

impl<'a> ListAccumulator<'a> {
    /// Starts without objects.
    pub(super) fn new(account: &'a Account, context: &'a CacheContext) -> Self {
        Self { account, context, objects: Vec::new(), weight: 0 }
    }

    /// Adds an object. Fails if the list exceeds a budget.
    pub(super) fn push(&mut self, object: Object) -> Result<(), Failure> {
        self.weight += object.weight();
        self.objects.push(object);
        self.account.set_listing(self.weight);
        let budget = if self.account.is_too_heavy(self.weight) {
            "resource"
        } else if self.context.budget.excess() > OVERDRAFT_BYTES {
            "total"
        } else {
            return Ok(());
        };
        self.context.metrics.budget_refusal(budget);
        Err(Failure::Stop(Refusal::OverBudget))
    }

    /// Removes a deleted object. No known upstream sends a deletion before the end of the initial
    /// events, but client-go accepts one.
    pub(super) fn remove(&mut self, deleted: &Object) {
        self.objects.retain(|object| object.key != deleted.key);
    }

    /// Returns all objects in the order in which they arrived.
    pub(super) fn take(&mut self) -> Vec<Object> {
        std::mem::take(&mut self.objects)
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self) {
        self.weight = 0;
        self.objects.clear();
        self.account.set_listing(0);
    }
}

impl Drop for ListAccumulator<'_> {
    fn drop(&mut self) {
        self.account.set_listing(0);
    }
}

/// How far a list may exceed the total budget before it fails. The registry needs a moment to stop
/// idle caches first.
const OVERDRAFT_BYTES: usize = 16 * 1024 * 1024;
