//! Authentication, authorization and audit of clients (`docs/semantics.md` §12).
//!
//! Only the gateway mode uses this module. In sidecar mode every client acts with Weir's own
//! identity.
//!
//! Authentication and authorization are separate steps, because most requests need only the first
//! part of the first. [`authenticator`] reads the *presented credential* (no I/O; enough to forward
//! the request in the client's name). Only if the request is to be answered from a cache does it
//! find the *identity*, which may need a token review. [`authorizer`] decides whether that user is
//! *allowed*. If Weir cannot decide (the upstream does not answer a review, or Weir lacks the
//! permission to send one), the request is forwarded, and the upstream decides.
//!
//! Invariants: an invalid credential never makes a request anonymous; Weir never answers a client
//! with its own identity's permissions; nothing that could be used as a credential is logged.

pub mod access_review;
pub mod attributes;
pub mod audit;
pub mod authenticator;
pub mod authorizer;
pub mod bearer;
pub mod forbidden;
pub mod impersonation;
pub mod metrics;
pub mod peer;
pub mod permission_check;
pub mod rbac;
pub mod reauthorization;
pub mod request_header;
mod reviewer;
pub(crate) mod standing;
pub mod token_review;
pub mod trust;
pub mod user;
pub(crate) mod visibility;
pub mod x509;

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

crate::api::labels! {
    /// The origin of a decision.
    pub enum DecisionSource {
        /// A new access review.
        Review = "review",
        /// The cached result of an access review.
        Cached = "cached",
        /// The cluster's roles and bindings.
        Rbac = "rbac",
        /// An expired access review, used because the upstream is down.
        Stale = "stale",
    }
}
