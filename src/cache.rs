//! Caches and what keeps them: a reflector each, their registry, proof of freshness, budgets.
//!
//! [`core`] is the watch cache itself, without I/O or clock. Everything else in here drives it.

pub mod budget;
pub(crate) mod cached_resource;
pub mod core;
pub mod handle;
pub(crate) mod key;
pub mod progress;
pub mod proof;
pub mod reflector;
pub mod refusal;
pub mod registry;
#[cfg(test)]
pub(crate) mod script;
