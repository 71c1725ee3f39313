//! HTTP that cached and forwarded responses share: headers, bodies, responses made by Weir.

pub(crate) mod audit_id;
pub(crate) mod body;
pub(crate) mod headers;
pub(crate) mod refusal;
pub(crate) mod rendered;
pub(crate) mod response;
