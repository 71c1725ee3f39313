//! Responses from a watch cache: GET, LIST and WATCH.
//!
//! [`read`] is the request on its way to a cache, [`respond`] builds the response head.
//! [`compress`] compresses lists, [`watch_stream`] is the body of a watch, which [`websocket`]
//! sends over a WebSocket. [`response_budget`] bounds the memory of bodies. [`drop_rules`] says
//! which clients do without managed fields. [`at_state`] answers a read as it would have been
//! answered at one resourceVersion, for shadow mode.

pub(crate) mod at_state;
pub(crate) mod compress;
pub(crate) mod drop_rules;
pub(crate) mod filtered;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod read;
mod respond;
pub(crate) mod response_budget;
pub(crate) mod watch;
mod watch_stream;
pub(crate) mod websocket;
