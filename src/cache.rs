//! Caches and what keeps them: a reflector each, their registry, proof of freshness, budgets.
//!
//! [`core`] is the watch cache itself, without I/O or clock. Everything else in here drives it.

pub mod budget;
pub(crate) mod cached_resource;
pub(crate) mod clock;
pub(crate) mod context;
pub mod core;
pub mod handle;
pub(crate) mod key;
pub(crate) mod probe;
pub mod progress;
pub mod proof;
pub mod reflector;
pub mod refusal;
pub mod registry;
#[cfg(test)]
pub(crate) mod script;
pub(crate) mod upstream_history;
pub(crate) mod watch_list_support;
