//! The result of authorization: a decision and its source.

use std::sync::Arc;

/// The decision on a request of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason that the upstream gave; empty for none.
    pub reason: Arc<str>,
    /// The source of the decision.
    pub source: DecisionSource,
}

/// The origin of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionSource {
    /// A new access review.
    Review,
    /// The cached result of an access review.
    Cached,
    /// The cluster's roles and bindings.
    Rbac,
    /// An expired access review, used because the upstream is down.
    Stale,
}
