//! The objects of a list in progress.
//!
//! The objects are claimed from the byte budgets as they arrive. The claim ends with the list,
//! however the list ends. Objects that the cache holds already are shared with it at once, so that
//! a list of what has hardly changed takes hardly any memory.

use std::sync::Arc;

use crate::cache::cached_resource::CachedResource;
use crate::cache::core::watch_cache::{CompleteList, State};
use crate::cache::reflector::failure::Failure;
use crate::cache::refusal::Refusal;
use crate::codec::ingest::Ingested;
use crate::codec::object::Object;
use crate::codec::unreadable::UnreadableObject;

/// The objects of a list in progress.
pub(super) struct ListAccumulator<'a> {
    cached: &'a CachedResource,
    held: Option<Arc<State>>,
    listed: CompleteList,
    weight: usize,
    /// The part of the weight that is shared with the cache.
    shared: usize,
}

impl<'a> ListAccumulator<'a> {
    /// Starts without objects.
    pub(super) fn new(cached: &'a CachedResource) -> Self {
        let held = cached.watch_cache.state().map(|state| state.without_events());
        Self { cached, held, listed: CompleteList::default(), weight: 0, shared: 0 }
    }

    /// Adds an object. Fails if the list exceeds a budget.
    pub(super) fn push(&mut self, object: Ingested) -> Result<(), Failure> {
        match object {
            Ingested::Object(object) => {
                self.weight += object.weight();
                let held = self.held.as_ref().and_then(|held| held.store().equal(&object));
                self.shared += held.map_or(0, |held| held.weight());
                let held = held.cloned();
                self.listed.objects.push(held.unwrap_or_else(|| Arc::new(object)));
            }
            Ingested::Unreadable(object) => {
                self.weight += size_of_val(&object);
                self.listed.unreadable.push(object);
            }
        }
        let CachedResource { account, context, .. } = self.cached;
        account.set_listing(self.weight - self.shared);
        let budget = if account.is_too_heavy(self.weight) {
            "resource"
        } else if context.budget.excess() > OVERDRAFT_BYTES {
            "total"
        } else {
            return Ok(());
        };
        context.metrics.budget_refusal(budget);
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
    pub(super) fn take(&mut self) -> CompleteList {
        // The cache has the last reference to the old state, and frees it when it is replaced.
        self.held = None;
        std::mem::take(&mut self.listed)
    }

    /// Removes all objects.
    pub(super) fn clear(&mut self) {
        (self.weight, self.shared) = (0, 0);
        self.listed = CompleteList::default();
        self.cached.account.set_listing(0);
    }
}

impl Drop for ListAccumulator<'_> {
    fn drop(&mut self) {
        self.cached.account.set_listing(0);
    }
}

/// How far a list may exceed the total budget before it fails. The registry needs a moment to stop
/// idle caches first.
const OVERDRAFT_BYTES: usize = 16 * 1024 * 1024;
