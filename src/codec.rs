//! Bytes to objects and back. Objects stay as the upstream encoded them; only metadata is extracted.

pub mod attrs;
pub mod bookmark;
pub mod frame;
pub mod gzip;
pub mod ingest;
pub mod json;
pub mod list;
pub mod object;
pub mod pretty;
pub mod protobuf;
pub mod rope;
pub mod splice;
pub mod uid;
