//! The matrix of users, verbs, resources and encodings: Weir allows exactly what the upstream allows, with the same bodies. Used against the
//! simulator by `tests/matrix.rs` and against a real kube-apiserver by `tests/real`.

pub(crate) mod confusion;
pub(crate) mod credentials;
mod grants;
mod requests;
pub(crate) mod revocation;
pub(crate) mod run;
pub(crate) mod secrecy;
pub(crate) mod users;
pub(crate) mod world;
