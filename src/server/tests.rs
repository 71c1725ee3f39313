//! Tests of the whole server in one process, with clients on real sockets and a fake upstream.

mod cached;
mod certificates;
mod connections;
mod documents;
mod forwarded;
mod framing;
mod harness;
mod identities;
mod limits;
mod memory;
mod overload;
mod proxied;
mod recorder;
mod shared;
mod shutdown;
mod upgrades;
mod watches;
mod websockets;
