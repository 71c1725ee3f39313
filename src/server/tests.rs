//! The whole server in-process, between clients on real sockets and a fake upstream.

mod cached;
mod connections;
mod documents;
mod forwarded;
mod harness;
mod shutdown;
mod upgrades;
mod websockets;
