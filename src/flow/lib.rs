//! The classes of requests, in the words of API Priority and Fairness, and the costs of clients.
//!
//! Pure: no I/O, no clock, no task. Time is an argument.
//!
//! [`plan`] holds the cluster's FlowSchemas and PriorityLevelConfigurations, or the built-in ones
//! of kube-apiserver. [`classify`] finds the FlowSchema of a request as
//! kube-apiserver does. [`work`] estimates the seats that a request takes there. [`costs`] keeps
//! the most expensive clients in bounded memory ([`hitters`]), with their habits ([`habit`],
//! [`deprecation`]), which [`doctor`] judges. [`schedule`] decides which forwarded
//! request is sent next, and [`refusals`] and [`wide`] how many an API server gets at once, by what
//! requests of their kind took before ([`estimates`]). [`rules`] are
//! operators' own, and [`rate_limit`] keeps their rates.
//! [`read_pace`] finds the clients that do not read. [`lanes`] orders large answers, and
//! [`overload`] has the stages of Weir's own overload.

pub mod candidates;
pub mod classify;
pub mod cost;
pub mod costs;
pub mod deprecation;
pub mod doctor;
pub mod estimates;
pub mod habit;
pub mod hitters;
pub mod lanes;
pub mod level;
mod object;
pub mod overload;
pub mod plan;
pub mod rate_limit;
pub mod read_pace;
pub mod refusals;
pub mod rules;
pub mod schedule;
pub mod schema;
pub mod spread;
pub mod wide;
pub mod work;
