//! The simulator over HTTP, against what semantics.md says.

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
