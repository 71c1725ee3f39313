//! Compares caches with the upstream (`docs/decisions/verified-caches.md`).
//!
//! Page by page, each object once in a round, a list of the upstream at exactly the cache's own
//! resourceVersion is compared with the cache's state there. A difference is confirmed over another
//! connection, and then etcd itself is asked for each object that differs: the upstream's own watch
//! cache can be the one that is wrong.
//!
//! * [`walk`]: which page of a cache is next. Pure.
//! * [`pace`]: which cache is next, and when. Pure; time is an argument.
//! * [`check`]: one comparison, with its requests.
//! * [`findings`]: the last check and the last difference of a cache, for operators.
//! * [`quarantine`]: the caches that were proved wrong. Pure; time is an argument.
//!
//! Invariants: a check changes no state and delays no event. Nothing follows from one observation.
//! No cache is repaired from a source that etcd contradicts.

pub(crate) mod check;
pub(crate) mod findings;
pub(crate) mod pace;
pub(crate) mod quarantine;
pub(crate) mod walk;

#[cfg(test)]
mod tests;
