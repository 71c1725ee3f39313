//! The share of one client in the forward budget of a resource: at most half, so that a client
//! whose lists are slow does not take all permits of a cache that is cold, fails or is over its
//! budget (`docs/decisions/limits-by-user.md`).

use crate::api::resource::GroupVersionResource;
use crate::cache::registry::ForwardPermit;
use crate::server::connection::client_id::ClientId;
use crate::tasks::keyed_counter::{Counted, KeyedCounter};

/// The permits of forward budgets that each client holds. Cheap to clone: clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardShares(KeyedCounter<ShareKey>);

/// A client, and one of the budgets of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShareKey {
    pub(crate) client: ClientId,
    pub(crate) gvr: GroupVersionResource,
    pub(crate) is_over_budget: bool,
}

/// A permit of a forward budget, which counts for a client.
#[derive(Debug)]
pub(crate) struct SharedPermit {
    pub(crate) _permit: ForwardPermit,
    /// Boxed, since every body of a response has room for it.
    pub(crate) _share: Option<Box<Counted<ShareKey>>>,
}

impl ForwardShares {
    /// Takes a part of a budget of `permits`. Returns `None` if the client has half of it.
    pub(crate) fn try_acquire(&self, key: ShareKey, permits: usize) -> Option<Counted<ShareKey>> {
        self.0.try_add_below(key, permits.div_ceil(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_at_most_half_of_each_budget() {
        let shares = ForwardShares::default();
        let key = |client, resource: &str, is_over_budget| ShareKey {
            client: ClientId::Connection(client),
            gvr: GroupVersionResource::new("", "v1", resource),
            is_over_budget,
        };
        let acquire = |key| shares.try_acquire(key, 4);
        let held: Vec<_> = (0..4).filter_map(|_| acquire(key(1, "pods", false))).collect();
        assert_eq!(held.len(), 2);
        let others = [key(2, "pods", false), key(1, "pods", true), key(1, "nodes", false)];
        assert!(others.into_iter().all(|other| acquire(other).is_some()));
        drop(held);
        assert_eq!(shares.0.keys(), 0);
        assert!(shares.try_acquire(key(1, "pods", false), 0).is_none());
        assert_eq!(shares.0.keys(), 0, "a refusal keeps nothing");
        assert!(shares.try_acquire(key(1, "pods", false), 1).is_some(), "half of one is one");
    }
}
