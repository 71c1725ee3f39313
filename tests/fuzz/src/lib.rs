//! The fuzz targets, and the modules of Weir that they feed.
//!
//! `api` and `codec` are links to Weir's own sources. Both are pure (tests/tidy.rs sees to it), so that they build by themselves
//! in seconds, while Weir as a dependency would bring its whole tree, instrumented, for the sake of two modules.

pub mod api;
pub mod codec;
pub mod targets;

/// All targets by name.
pub const TARGETS: [(&str, fn(&[u8])); 11] = [
    ("accept", targets::accept),
    ("bookmark", targets::bookmark),
    ("field_selector", targets::field_selector),
    ("frames", targets::frames),
    ("gzip", targets::gzip),
    ("label_selector", targets::label_selector),
    ("list", targets::list),
    ("object", targets::object),
    ("pretty", targets::pretty),
    ("query", targets::query),
    ("request_info", targets::request_info),
];
