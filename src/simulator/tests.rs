//! Tests of the simulator over HTTP, by the rules of `docs/semantics.md`.

mod client;
mod credentials;
mod definitions;
mod documents;
mod faults;
mod identity;
mod informers;
mod lists;
mod protobuf;
mod samples;
mod watches;
mod websocket;
mod writes;
