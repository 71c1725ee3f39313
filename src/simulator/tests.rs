//! The simulator over HTTP, against what semantics.md says.

mod client;
mod faults;
mod informers;
mod lists;
mod watches;
mod writes;
