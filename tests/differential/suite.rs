//! The differential suite: what is sent both ways, what is expected, and how it is compared. Used against the simulator by
//! `tests/differential.rs` and against a real kube-apiserver by `tests/real`.

pub(crate) mod allowed;
pub(crate) mod ask;
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
pub(crate) mod run;
mod sample;
mod selectors;
mod tables;
pub(crate) mod wire;
