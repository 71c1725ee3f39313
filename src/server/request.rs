//! A request from its parse to the decision whether its client may read from a cache: framing,
//! host, authentication, authorization and audit.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod context;
pub(crate) mod explain;
pub(crate) mod framing;
pub(crate) mod holds;
pub(crate) mod host;
pub(crate) mod rejection;
pub(crate) mod resolved;
mod route;
pub(crate) mod trace;
