//! The whole proxy before the simulator, over real sockets: one file a capability.
//!
//! Nothing here sleeps for luck: tests wait for conditions, and fail when those never come true.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "this is a test")]

mod admin;
mod audit;
mod budget;
mod client;
mod cold;
mod crds;
mod documents;
mod forward;
mod gateway;
mod harness;
mod identity;
mod informer;
mod listeners;
mod odd;
mod paging;
mod readers;
mod reflector;
mod scope;
mod settings;
mod shutdown;
mod starts;
mod upgrades;
mod watches;
