//! Responses from a watch cache: GET, LIST and WATCH.

pub(crate) mod compress;
pub(crate) mod get;
pub(crate) mod list;
mod page;
pub(crate) mod watch;
pub(crate) mod watch_stream;
pub(crate) mod websocket;
