//! The encodings of objects, lists and watch frames. Objects stay as the API server encoded them;
//! only metadata and selectable fields are extracted (`docs/decisions/upstream-bytes.md`).

pub mod attrs;
pub mod bookmark;
pub mod frame;
pub mod gzip;
pub mod held_bytes;
pub mod ingest;
pub mod json;
pub mod list;
pub(crate) mod managed_fields;
pub mod object;
pub mod pretty;
pub mod protobuf;
pub mod rope;
pub mod splice;
mod uid;
pub mod unreadable;
