//! The caches of resources: a reflector for each, their registry, proofs of freshness, and budgets.
//!
//! [`core`] is the watch cache itself, without I/O or a clock. The other modules drive it.

pub(crate) mod backfill;
pub mod budget;
pub(crate) mod cached_resource;
pub(crate) mod clock;
pub(crate) mod cluster_identity;
pub(crate) mod context;
pub mod core;
pub(crate) mod count_check;
pub(crate) mod floors;
pub mod handle;
pub(crate) mod key;
pub mod metrics;
pub(crate) mod probe;
pub mod progress;
pub mod proof;
pub mod reflector;
pub mod refusal;
pub mod registry;
#[cfg(test)]
pub(crate) mod script;
pub(crate) mod shard_support;
pub(crate) mod upstream_history;
pub mod verification;
pub(crate) mod watch_list_attempt;
pub(crate) mod watch_list_support;
