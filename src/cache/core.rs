//! The watch cache of one resource: the current objects, a window of recent events, and the
//! resourceVersion of both. It corresponds to kube-apiserver's `cacher`.
//!
//! This module does no I/O, spawns no tasks and reads no clock. Callers pass in objects and the
//! current time; they get back frames and wake-ups. Objects, history and resourceVersion change
//! together, in batches. Each change is published as one immutable [`State`](watch_cache::State),
//! which readers load without a lock.

mod change;
mod cursor;
mod dispatcher;
pub mod earlier;
pub mod event;
mod field_index;
pub mod filter;
mod history;
mod inner;
mod lag;
mod limits;
mod objects;
pub mod page_comparison;
mod reader;
mod refusal;
mod relist;
pub mod snapshot;
pub mod state;
pub mod store;
mod term_index;
pub mod unreadable;
pub mod visible;
pub mod watch_cache;
pub mod watcher;

#[cfg(test)]
mod tests;
