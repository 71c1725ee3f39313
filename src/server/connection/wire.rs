//! What a client sent, byte for byte, before hyper and h2 read it.
//!
//! [`target`] writes request targets in a form that `http::Uri` carries without a change.

pub(crate) mod target;
