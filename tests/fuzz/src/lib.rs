//! The fuzz targets, and the modules of Weir that they test.
//!
//! `api` and `codec` are Weir's own crates, and the PROXY protocol is compiled from its file: Weir
//! as a dependency would bring its whole tree, instrumented, for a few modules.

#[path = "../../../src/server/accept/proxy_protocol.rs"]
mod proxy_protocol;
pub mod targets;

pub use weir_api as api;
pub use weir_codec as codec;

/// Checks the properties of a target for these bytes, and panics if one fails.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 20] = [
    ("accept", targets::request::accept),
    ("bookmark", targets::json::bookmark),
    ("continue_token", targets::request::continue_token),
    ("field_selector", targets::request::field_selector),
    ("frames", targets::json::frames),
    ("gzip", targets::json::gzip),
    ("label_selector", targets::request::label_selector),
    ("list", targets::json::list),
    ("object", targets::json::object),
    ("pretty", targets::json::pretty),
    ("protobuf_bookmark", targets::protobuf::bookmark),
    ("protobuf_frames", targets::protobuf::frames),
    ("protobuf_list", targets::protobuf::list),
    ("protobuf_object", targets::protobuf::object),
    ("protobuf_status", targets::protobuf::status),
    ("proxy_protocol", targets::proxy::proxy_protocol),
    ("query", targets::request::query),
    ("request_info", targets::request::request_info),
    ("selectable_fields", targets::request::selectable_fields),
    ("trace_context", targets::request::trace_context),
];

/// Runs a target of [`TARGETS`].
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(target_name, _)| *target_name == name).expect("a known target");
    target(data);
}
