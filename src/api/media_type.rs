//! Which form of answer a request's `Accept` asks for (semantics.md §8.1, §8.2, §8.6).
//!
//! The upstream sorts the clauses with an unstable sort and a comparison that is no order, so where
//! wildcards are among clauses of different candidate and quality, its choice hangs on its sorting algorithm. Such a header is
//! not decided here but forwarded, and so is any whose syntax is not the plain one.

mod accept;
mod form;
mod negotiation;

pub use self::form::{
    Encoding, Form, META_V1, PARTIAL_OBJECT_METADATA, PARTIAL_OBJECT_METADATA_LIST, View,
};
pub(crate) use self::negotiation::is_interactive_client;
pub use self::negotiation::{accepts_gzip, error_form, negotiate};
