//! Accepting client connections: listeners, TLS and serving certificates.

pub mod listener;
pub mod tls;
