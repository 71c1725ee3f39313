//! Bytes to objects and back, by splicing: nothing here decodes or re-encodes an object, since a
//! client must get the very bytes that the upstream wrote (design, section 1.8; semantics.md §3.6, §5.2).

pub mod bookmark;
pub mod frame;
pub mod gzip;
pub mod json;
pub mod list;
pub mod object;
pub mod pretty;
pub mod uid;
