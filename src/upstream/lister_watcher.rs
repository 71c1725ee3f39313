//! Lists and watches of one resource upstream, as a reflector uses them (client-go's
//! `ListerWatcher`).

mod exact;
mod http;
mod list_watch;
mod query;
mod responses;
mod stream;
#[cfg(test)]
mod tests;

pub use self::http::HttpListWatch;
pub use self::list_watch::{
    Answer, ExactPart, ExactRequest, ExactServer, ListRequest, ListWatch, UpstreamEvent,
    WatchRequest, WatchStream,
};
