//! The matrix of users, verbs, resources and encodings: Weir allows exactly the requests that the
//! upstream allows, with the same bodies. `tests/matrix.rs` runs it against the simulator and
//! `tests/real` against a real kube-apiserver.

pub(crate) mod confusion;
pub(crate) mod credentials;
mod grants;
mod impersonators;
mod requests;
pub(crate) mod revocation;
pub(crate) mod run;
pub(crate) mod secrecy;
pub(crate) mod users;
pub(crate) mod world;
