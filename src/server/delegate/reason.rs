//! The reasons to forward a request. The set is bounded, since they are values of a label and of a
//! header.

use crate::cache::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The client requested it with `X-Weir-Cache: bypass`.
    Bypass,
    /// A cache may answer it, and is compared with the upstream: shadow mode.
    Shadow,
    /// The request is not a read.
    Write,
    NonResource,
    Subresource,
    /// The path is ambiguous, or does not fit the resource's scope.
    Path,
    /// The request is a HEAD, or has a body, a byte range, a condition, an `Origin` that is not the
    /// page's own, or a parameter that Weir does not handle.
    Request,
    /// The request is an upgrade, or a watch over a WebSocket whose handshake is not the plain
    /// form.
    Upgrade,
    /// The client acts as another user, and roles in memory do not allow it.
    Impersonation,
    /// The upstream refuses the options, or answers them in its own way.
    Options,
    /// The read is consistent: its resourceVersion is unset.
    Consistent,
    /// The list is consistent, and no proof arrived in time that the cache is fresh.
    Unproved,
    /// The cache does not have the state at the exact resourceVersion.
    Exact,
    /// The cache does not have the state of the next page.
    Continue,
    /// Neither Weir nor the upstream's cache would have written the continue token.
    Token,
    /// The list is of a single object and has a limit: the upstream reads it from etcd, whatever
    /// the resourceVersion.
    Latest,
    /// Only the API server writes this form of response: Table, YAML, CBOR, metadata of
    /// `meta.k8s.io/v1beta1`, an object that it takes for a list.
    Form,
    /// The upstream refuses the selector, or interprets it in its own way; or the selector is too
    /// long to be kept for each watch; or it is a shard selector that the upstream may ignore.
    Selector,
    /// The object does not exist, and only the upstream can write the error: because of the name,
    /// or of the form that the request negotiates for errors.
    NotFound,
    /// The resourceVersion is older than this cache's history, and the upstream may still have it.
    BeforeCache,
    /// The answer may have an object that the cache cannot read.
    Unreadable,
    /// Weir cannot determine who the client is.
    Identity,
    /// Weir cannot determine what the client may do.
    Authorization,
    Refused(Refusal),
}

impl Reason {
    /// All but the refusals of a cache.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 23] = [
        Self::Bypass,
        Self::Shadow,
        Self::Write,
        Self::NonResource,
        Self::Subresource,
        Self::Path,
        Self::Request,
        Self::Upgrade,
        Self::Impersonation,
        Self::Options,
        Self::Consistent,
        Self::Unproved,
        Self::Exact,
        Self::Continue,
        Self::Token,
        Self::Latest,
        Self::Form,
        Self::Selector,
        Self::NotFound,
        Self::BeforeCache,
        Self::Unreadable,
        Self::Identity,
        Self::Authorization,
    ];

    /// Returns the value of the `X-Weir-Cache` header and of the label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Shadow => "shadow",
            Self::Write => "write",
            Self::NonResource => "non-resource",
            Self::Subresource => "subresource",
            Self::Path => "path",
            Self::Request => "request",
            Self::Upgrade => "upgrade",
            Self::Impersonation => "impersonation",
            Self::Options => "options",
            Self::Consistent => "consistent",
            Self::Unproved => "unproved",
            Self::Exact => "exact",
            Self::Continue => "continue",
            Self::Token => "token",
            Self::Latest => "latest",
            Self::Form => "form",
            Self::Selector => "selector",
            Self::NotFound => "not-found",
            Self::BeforeCache => "before-cache",
            Self::Unreadable => "unreadable-object",
            Self::Identity => "identity",
            Self::Authorization => "authorization",
            Self::Refused(refusal) => refusal.as_str(),
        }
    }

    /// Whether a list or watch with this reason would have been served if there were a cache. Such
    /// requests count against the forward budget (`docs/decisions/herds.md`).
    pub(crate) fn wants_cache(self) -> bool {
        match self {
            Self::BeforeCache => true,
            Self::Refused(refusal) => {
                matches!(
                    refusal,
                    Refusal::NotReady
                        | Refusal::NotFresh
                        | Refusal::OverBudget
                        | Refusal::Quarantined
                )
            }
            _ => false,
        }
    }
}
