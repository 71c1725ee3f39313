//! HTTP that cached and forwarded responses share: headers, bodies, responses made by Weir.

pub(crate) mod audit_id;
pub(crate) mod headers;
pub(crate) mod response;
