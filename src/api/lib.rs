//! The vocabulary of the Kubernetes API: requests, their options and selectors, and the parts of
//! responses.
//!
//! Everything here is pure: bytes and strings in, values out. One parser reads the path, one the
//! query, and one each kind of selector. Routing, authorization and cache keys use their results,
//! so they cannot disagree about a request.

pub mod ascii;
pub mod built_in_groups;
pub mod continue_token;
pub mod json_string;
pub mod keyed_hash;
pub mod labels;
pub mod list_options;
pub mod media_type;
pub mod query;
pub mod request_info;
pub mod resource;
pub mod resource_version;
pub mod retry_after;
pub mod selectable;
pub mod selector;
pub mod status;
pub mod trace_context;

/// Implements a `Debug` that shows only the names of types, whose fields name users or say nothing.
#[macro_export]
macro_rules! opaque {
    ($($name:ident $(<$lifetime:lifetime>)?),+) => {$(
        impl std::fmt::Debug for $name $(<$lifetime>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}
