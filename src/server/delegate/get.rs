//! The rows of `docs/semantics.md` §1.6.3. `resourceVersionMatch`, `limit`, `watch` and selectors
//! are ignored on a GET.

use crate::server::delegate::reason::Reason;
use crate::server::delegate::version::{Freshness, RequestedVersion};

/// Decides about a GET.
///
/// | resourceVersion | decision | reason |
/// |---|---|---|
/// | unset | forward | a consistent read: etcd answers |
/// | `0` | any state of the cache | |
/// | N | the cache, once it is at N | |
/// | anything else | forward | the upstream's 500 |
pub(super) fn decide(resource_version: &str) -> Result<Freshness, Reason> {
    match RequestedVersion::parse(resource_version)? {
        RequestedVersion::Unset => Err(Reason::Consistent),
        RequestedVersion::Any => Ok(Freshness::Any),
        RequestedVersion::At(at) => Ok(Freshness::NotOlderThan(at)),
    }
}
