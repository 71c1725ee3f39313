//! Checks of a request before it is answered: framing, host, authentication and authorization, audit.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod framing;
pub(crate) mod host;
