//! Label and field selectors: their grammar to the letter, and matching (semantics.md §7).
//!
//! What does not parse, or names a field that the kind does not have, is not an error here: the
//! request is forwarded and the upstream words the answer.

pub mod field;
pub mod label;
