//! The differential suite: requests, expected servers, and the comparison. `tests/differential.rs`
//! runs it against the simulator and `tests/real` against a real kube-apiserver.

pub(crate) mod allowed;
pub(crate) mod churn;
mod collections;
pub(crate) mod corpus;
pub(crate) mod expected;
mod forms;
pub(crate) mod frames;
pub(crate) mod objects;
mod odd;
pub(crate) mod paging;
mod progress;
pub(crate) mod read_request;
pub(crate) mod run;
mod sample;
mod selectors;
mod tables;
pub(crate) mod wire;
