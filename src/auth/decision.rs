//! The result of authorization: a decision and its source.

use std::sync::Arc;

/// Whether a user may do what a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user may.
    pub allowed: bool,
    /// The reason that the upstream gave; empty for none.
    pub reason: Arc<str>,
    /// The source of the decision.
    pub source: DecisionSource,
}

/// Where a decision comes from.
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
