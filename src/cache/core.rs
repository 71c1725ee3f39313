//! The watch cache of one resource: the present objects, a window of recent events, and the
//! resourceVersion up to which both are true (client-go's and the apiserver's `cacher`).
//!
//! It does no I/O, spawns nothing and reads no clock: bytes and `now` come in, frames and wake-ups go out.
//! State, history and resourceVersion change together, in batches, and are published to readers as one
//! immutable [`State`](watch_cache::State), without locks.

mod change;
mod cursor;
mod dispatcher;
mod end_cause;
pub mod event;
mod field_index;
pub mod filter;
mod history;
mod index_key;
mod inner;
mod limits;
mod now;
mod objects;
mod refusal;
mod relist;
pub mod snapshot;
pub mod state;
pub mod store;
pub mod watch_cache;
pub mod watcher;

#[cfg(test)]
mod tests;
