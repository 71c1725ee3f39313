//! Label, field and shard selectors: the API server's exact grammar, and how an object is matched
//! (`docs/semantics.md` §7).
//!
//! Weir does not report an error for a selector that it cannot parse or that names an unknown
//! field. It forwards the request, and the API server writes the error.

pub mod field;
pub mod label;
pub mod shard;

/// The memory of an allocation besides its bytes: its header and rounding.
const ALLOCATION_BYTES: usize = 16;
