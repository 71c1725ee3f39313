//! Helpers for asynchronous tasks that every layer may use.

pub(crate) mod blocking;
pub(crate) mod keyed_counter;
pub(crate) mod single_flight;
pub(crate) mod single_permit;
