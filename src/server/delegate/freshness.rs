//! The `resourceVersion` parameter, the freshness that it asks for, and the rows of
//! `docs/semantics.md` §1.6.3: those of a GET.

use crate::api::resource_version::ResourceVersion;
use crate::server::delegate::reason::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Any,
    NotOlderThan(ResourceVersion),
}

impl Freshness {
    /// Decides about a GET, of which `resourceVersionMatch`, `limit`, `watch` and selectors are
    /// ignored.
    ///
    /// | resourceVersion | decision | reason |
    /// |---|---|---|
    /// | unset | forward | a consistent read: etcd answers |
    /// | `0` | any state of the cache | |
    /// | N | the cache, once it is at N | |
    /// | anything else | forward | the upstream's 500 |
    pub(super) fn decide(resource_version: &str) -> Result<Self, Reason> {
        match RequestedVersion::parse(resource_version)? {
            RequestedVersion::Unset => Err(Reason::Consistent),
            RequestedVersion::Any => Ok(Self::Any),
            RequestedVersion::At(at) => Ok(Self::NotOlderThan(at)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedVersion {
    /// Absent or empty.
    Unset,
    /// `0`.
    Any,
    /// A number above 0.
    At(ResourceVersion),
}

impl RequestedVersion {
    /// Parses the parameter. Non-canonical values are left to the API server: it rejects most of
    /// them, and treats `00` as neither 0 nor a number (docs/semantics.md, rows L13 and L14).
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        if text.is_empty() {
            return Ok(Self::Unset);
        }
        match ResourceVersion::parse(text) {
            Some(ResourceVersion(0)) => Ok(Self::Any),
            Some(at) => Ok(Self::At(at)),
            None => Err(Reason::Options),
        }
    }
}
