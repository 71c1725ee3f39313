//! Who clients are, what they may do, and what is told of it (semantics.md §12; design, section 8).
//!
//! For the gateway mode alone: in sidecar mode every client acts with Weir's own identity, and nothing here is used.
//!
//! Two questions, asked apart, since most requests need only the first half of the first. [`authenticator`] tells what a client *presents*
//! (pure, no I/O: enough to forward its request in its own name) and, if something is to be answered from a cache, *who it is* (perhaps after
//! a token review). [`authorizer`] tells whether that user *may*. What cannot be told here (the upstream does not answer a review, Weir
//! lacks the right to ask for one) is no answer: the request is forwarded, and the upstream judges.
//!
//! Invariants: a wrong credential is never anonymous; the identity of Weir itself never answers for a client; nothing here is ever logged
//! that could be used as a credential.

pub mod access_review;
pub mod attributes;
pub mod audit;
pub mod authenticator;
pub mod authorizer;
pub mod bearer;
pub mod cluster;
pub mod decision;
pub mod forbidden;
pub mod metrics;
mod outage;
pub mod peer;
pub mod permission_check;
pub mod rbac;
pub mod reauthorization;
pub mod request_header;
mod review_backoff;
pub mod token_review;
pub mod user;
pub mod x509;
