//! The objects of a list in progress.
//!
//! The objects are claimed from the byte budgets as they arrive. The claim ends with the list,
//! however the list ends.

use crate::cache::budget::Account;
use crate::cache::context::CacheContext;
use crate::cache::reflector::failure::Failure;
use crate::cache::refusal::Refusal;
use crate::codec::ingest::Ingested;
use crate::codec::list::ListedObjects;
use crate::codec::object::Object;
use crate::codec::unreadable::UnreadableObject;

/// The objects of a list in progress.
pub(super) struct ListAccumulator<'a> {
    account: &'a Account,
    context: &'a CacheContext,
    listed: ListedObjects,
    weight: usize,
}

impl<'a> ListAccumulator<'a> {
    /// Starts without objects.
    pub(super) fn new(account: &'a Account, context: &'a CacheContext) -> Self {
        Self { account, context, listed: ListedObjects::default(), weight: 0 }
    }

    /// Adds an object. Fails if the list exceeds a budget.
    pub(super) fn push(&mut self, object: Ingested) -> Result<(), Failure> {
        self.weight += match &object {
            Ingested::Object(object) => object.weight(),
            Ingested::Unreadable(object) => size_of_val(object),
        };
        self.listed.push(object);
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
        self.listed.objects.retain(|object| object.key != deleted.key);
    }

    /// Removes a deleted object that cannot be read.
    pub(super) fn remove_unreadable(&mut self, deleted: &UnreadableObject) {
        self.listed.unreadable.retain(|object| object.uid != deleted.uid);
    }

    /// Returns all objects in the order in which they arrived.
    pub(super) fn take(&mut self) -> ListedObjects {
        std::mem::take(&mut self.listed)
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self) {
        self.weight = 0;
        self.listed = ListedObjects::default();
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
