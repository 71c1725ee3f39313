//! The reasons for which a request goes to the upstream: a bounded set, since they are label values and a header's words.

use crate::cache::refusal::Refusal;

/// Why a request goes to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The client asked for it by `X-Weir-Cache: bypass`.
    Bypass,
    /// Not a read.
    Write,
    /// Not a resource.
    NonResource,
    /// A subresource.
    Subresource,
    /// The path can be read in more than one way, or does not fit the resource's scope.
    Path,
    /// HEAD, a body, a byte range, a condition, or a parameter that Weir leaves alone.
    Request,
    /// An upgrade; or a watch over a WebSocket whose handshake is not the plain one.
    Upgrade,
    /// The client acts as somebody else.
    Impersonation,
    /// Options that the upstream refuses, or words in its own way.
    Options,
    /// A consistent read: resourceVersion unset.
    Consistent,
    /// The state at one very resourceVersion, which the cache does not have.
    Exact,
    /// The next page of a state that the cache does not have.
    Continue,
    /// A continue token that neither Weir nor the upstream's cache would have written.
    Token,
    /// A single object with a limit: the upstream reads it from its store, whatever the resourceVersion.
    Latest,
    /// A form of response that only the API server makes: Table, YAML, CBOR, metadata of `meta.k8s.io/v1beta1`.
    Form,
    /// A selector that the upstream refuses, or takes in a way of its own.
    Selector,
    /// There is no such object; the upstream says so.
    NotFound,
    /// The resourceVersion is from before this cache began, and the upstream may still have it.
    BeforeCache,
    /// The bookmark that the client is owed has not been learnt yet.
    NoBookmark,
    /// Who the client is cannot be told here.
    Identity,
    /// Whether the client may cannot be told here.
    Authorization,
    /// The cache does not answer.
    Refused(Refusal),
}

impl Reason {
    /// The word in the `X-Weir-Cache` header and in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Write => "write",
            Self::NonResource => "non-resource",
            Self::Subresource => "subresource",
            Self::Path => "path",
            Self::Request => "request",
            Self::Upgrade => "upgrade",
            Self::Impersonation => "impersonation",
            Self::Options => "options",
            Self::Consistent => "consistent",
            Self::Exact => "exact",
            Self::Continue => "continue",
            Self::Token => "token",
            Self::Latest => "latest",
            Self::Form => "form",
            Self::Selector => "selector",
            Self::NotFound => "not-found",
            Self::BeforeCache => "before-cache",
            Self::NoBookmark => "no-bookmark",
            Self::Identity => "identity",
            Self::Authorization => "authorization",
            Self::Refused(refusal) => refusal.as_str(),
        }
    }

    /// Whether a list or watch with this reason would have been served, had there been a cache: those draw on the forward budget
    /// (design, section 7).
    pub(crate) fn wants_cache(self) -> bool {
        match self {
            Self::BeforeCache | Self::NoBookmark => true,
            Self::Refused(refusal) => {
                matches!(refusal, Refusal::NotReady | Refusal::NotFresh | Refusal::OverBudget)
            }
            _ => false,
        }
    }
}
