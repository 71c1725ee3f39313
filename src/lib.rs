//! Weir: a caching read-through proxy for the Kubernetes API.
//!
//! The modules in the order in which a request and an event meet them; each may use only those
//! before it (`tests/tidy.rs` checks the `use crate::` lines):
//!
//! [`api`] (Kubernetes' vocabulary, pure) < [`codec`] (bytes to objects and back) <
//! [`cache::core`] (the watch cache, without I/O or clock) < [`upstream`] (connections to the API
//! server) < [`cache`] (reflectors and the registry of caches) < [`auth`] (who clients are and what they
//! may do) < [`server`] (listeners, routing, answers) < [`admin`] (health and metrics) < [`simulator`] (a small API server in-process) <
//! [`app`] (builds, starts and stops the parts) < [`cli`]. [`config`], [`telemetry`], `tasks` (single-flight) and `streams` (the task of an HTTP/2 connection) are leaves.

pub mod admin;
pub mod api;
pub mod app;
pub mod auth;
pub mod cache;
pub mod cli;
pub mod codec;
pub mod config;
pub mod server;
pub mod simulator;
mod streams;
mod tasks;
pub mod telemetry;
pub mod upstream;
