//! Weir: a caching read-through proxy for the Kubernetes API.
//!
//! Crates of their own, re-exported here, are the pure parts [`api`] (Kubernetes' vocabulary),
//! [`codec`] (bytes to objects and back) and [`flow`] (the class of a request and its costs), and
//! [`simulator`] (a small API server in-process).
//!
//! The modules are layers; each may use only the layers before it (`tests/tidy/layers.rs` checks
//! this): [`cache::core`] (the watch cache, without I/O or clock) < [`upstream`] (connections to
//! the API server) < [`cache`] (reflectors and the registry of caches) < [`auth`] (authentication
//! and authorization of clients) < [`server`] (listeners, routing, responses) < [`admin`] (health
//! and metrics) < [`app`] (builds, starts and stops the components) < [`cli`]. [`config`],
//! [`telemetry`], `tasks` (single-flight) and `streams` (the task of an HTTP/2 connection) are
//! leaves.

pub mod admin;
pub mod app;
pub mod auth;
pub mod cache;
pub mod cli;
pub mod config;
pub mod server;
mod streams;
mod tasks;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod upstream;

pub use weir_api as api;
pub use weir_codec as codec;
pub use weir_flow as flow;
#[cfg(any(feature = "demo", test))]
pub use weir_simulator as simulator;
