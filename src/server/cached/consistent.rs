//! Consistent lists from the cache: those whose resourceVersion is unset
//! (`docs/decisions/proofs-of-freshness.md`).
//!
//! Such a list is worth a proof of freshness only if it takes long to forward it, or if many
//! arrive. The time is measured with each one that is forwarded ([`ListTimes`]). So the first list
//! of its kind is forwarded, and starts no cache: who lists everything once fills no caches.
//!
//! A list without a proof is forwarded as it would be without a cache: it draws on no forward
//! budget, and never becomes an error.
//!
//! [`ListTimes`]: crate::server::forward::list_times::ListTimes

use std::pin::pin;
use std::sync::Arc;

use crate::cache::core::watch_cache::State;
use crate::cache::handle::CacheHandle;
use crate::cache::proof::consistent_list::NoProof;
use crate::config::ConsistentLists;
use crate::server::cached::read::CachedRead;
use crate::server::delegate::Reason;
use crate::server::metrics::WaitCause;

/// Returns the cache, and a state of it that is not older than the request.
pub(super) async fn fresh_state(
    read: &CachedRead<'_>,
) -> Result<(CacheHandle, Arc<State>), Reason> {
    let services = read.services;
    if !services.registry.availability().is_usable() {
        return Err(Reason::Consistent);
    }
    let forwarding = services.list_times.expected(read.context.parts);
    let starts_cache = forwarding.is_some()
        || services.registry.config().consistent_lists == ConsistentLists::Always;
    let handle = match starts_cache {
        true => read.cache().await.map(Some),
        false => read.running_cache(),
    };
    let handle = handle.map_err(without_budget)?;
    let handle = handle.filter(CacheHandle::is_ready).ok_or(Reason::Consistent)?;
    let (since, timeout) = (read.context.started, services.freshness_timeout());
    let fresh = {
        let fresh = pin!(handle.consistent_state(since, forwarding, timeout));
        read.waiting(WaitCause::Freshness, fresh).await
    };
    match fresh {
        Ok(state) => Ok((handle, state)),
        Err(NoProof::NotTried) => Err(Reason::Consistent),
        Err(NoProof::Late) => Err(Reason::Unproved),
    }
}

/// Returns the reason to forward a consistent list. It draws on no forward budget.
fn without_budget(reason: Reason) -> Reason {
    if reason.wants_cache() { Reason::Consistent } else { reason }
}
