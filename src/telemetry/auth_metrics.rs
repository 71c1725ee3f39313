//! Metrics of authorization.

pub mod authorization;
pub mod rbac;
pub mod rights;
