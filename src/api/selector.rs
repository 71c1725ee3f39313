//! Label and field selectors: their exact grammar, and matching (`docs/semantics.md` §7).
//!
//! A selector that cannot be parsed, or that names an unknown field, is not an error here: the
//! request is forwarded and the API server writes the error.

pub mod field;
pub mod label;
