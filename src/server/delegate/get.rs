//! The rows of semantics.md §1.6.3. `resourceVersionMatch`, `limit`, `watch` and selectors do not count on a GET.

use crate::server::delegate::{Asked, Freshness, Reason};

/// | resourceVersion | here | why |
/// |---|---|---|
/// | unset | forward | a consistent read: etcd answers |
/// | `0` | whatever the cache has | |
/// | N | the cache, once it is at N | |
/// | anything else | forward | the upstream's 500 |
pub(super) fn decide(resource_version: &str) -> Result<Freshness, Reason> {
    match Asked::read(resource_version)? {
        Asked::Unset => Err(Reason::Consistent),
        Asked::Any => Ok(Freshness::Any),
        Asked::At(at) => Ok(Freshness::NotOlderThan(at)),
    }
}
