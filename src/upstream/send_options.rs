//! How a request uses the connections to the upstream, and what it is for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::upstream::endpoints::pin::Pin;

/// The kind of exchange that a request starts. It decides which connections carry the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrafficClass {
    /// An ordinary request.
    Request,
    /// A list of a whole collection whose body is parsed while it arrives. It uses HTTP/1.1 on a
    /// connection of its own, which Go's server fills in a fifth less time than an HTTP/2 stream,
    /// and where it delays no other exchange.
    List,
    /// A watch or another long-lived stream (logs with `follow`): at most 64 on an HTTP/2
    /// connection, which carries no requests.
    Stream,
    /// An upgrade (SPDY, WebSocket): HTTP/1.1 on a connection of its own. A 101 response has
    /// `hyper::upgrade::OnUpgrade` in its extensions. After any other response the connection is
    /// closed.
    Upgrade,
}

crate::api::labels! {
    /// The purpose of a request to the upstream, by which bytes are counted.
    #[derive(Default)]
    pub(crate) enum RequestPurpose {
        /// A client's request.
        Forward = "forward",
        /// A list, watch or probe of a cache.
        Cache = "cache",
        /// A review of a credential or a permission.
        Review = "review",
        /// Discovery, versions, health checks and settings.
        #[default]
        Other = "other",
    }
}

/// The use of the connections by a request. The default is that of Weir's own requests.
#[derive(Clone, Default)]
pub struct SendOptions {
    pub(crate) purpose: RequestPurpose,
    /// Whether it is a read of objects: a GET, a list or a watch, which has no effect, so that
    /// sending it twice is harmless. A GET of a subresource that connects to something else
    /// (`proxy`) is none: its effect is unknown.
    pub is_read: bool,
    /// Whether the upstream may refuse to authenticate the request. kube-apiserver ends the HTTP/2
    /// connection of each such request (`docs/semantics.md` §8.8), so these requests never share a
    /// connection with another exchange.
    pub unproven: bool,
    /// Whether its response is large. It has an HTTP/1.1 connection of its own while it lasts,
    /// where no short response waits behind it, unless `pin` says otherwise.
    pub(crate) is_wide: bool,
    /// The client, for reads that may show an older state. All such reads of a client use the same
    /// connection while it lives: behind a load balancer, another connection may lead to an API
    /// server that lags, and the client would go back in time
    /// (`docs/decisions/several-api-servers.md`).
    pub pin: Option<u64>,
    /// The path of the collection, for reads and watches that may show an older state. With several
    /// API servers, the one that gets it must be as far as the client's last one was.
    pub collection: Option<Arc<str>>,
    /// The time until which the request waits for an API server if none could be reached; `None`
    /// for not at all.
    pub wait_until: Option<Instant>,
    /// The longest wait for the head of the response over HTTP/1.1, and the longest pause in the
    /// body of a response that is no stream. There, nothing shows whether the connection lives.
    /// `None` for no limit.
    pub(crate) answer_timeout: Option<Duration>,
    /// The choice of the API server that gets the request.
    pub(crate) choice: Choice,
    /// Learns if the request's stream is reset.
    pub reset_observer: Option<Arc<dyn ResetObserver>>,
    /// Learns which API server each attempt went to, and what it answered.
    pub attempt_observer: Option<Arc<dyn AttemptObserver>>,
}

impl SendOptions {
    /// Returns whether it is a client's read. Those of reflectors have a schedule of their own.
    pub(super) fn is_clients_read(&self) -> bool {
        self.is_read && self.purpose == RequestPurpose::Forward
    }
}

/// The choice of one of several API servers (`docs/decisions/several-api-servers.md`).
#[derive(Clone, Debug, Default)]
pub(crate) enum Choice {
    /// By load: for writes, consistent reads, and everything that all servers answer equally.
    #[default]
    Spread,
    /// The server of this client, for reads and watches that may show an older state.
    Sticky(u64),
    /// The server of this reflector.
    Pinned(Arc<Pin>),
    /// The server with this key.
    Only(u64),
}

/// Learns of a stream that was reset before its exchange was complete.
pub trait ResetObserver: Send + Sync {
    /// A stream was reset. Called without a lock of the pool.
    fn stream_was_reset(&self);
}

/// Learns of the attempts to send a request, of which there is one at a time.
pub trait AttemptObserver: Send + Sync {
    /// A request is about to be sent to the API server with this key.
    fn began(&self, server: u64);

    /// The head of the response has arrived.
    fn answered(&self, status: StatusCode, headers: &HeaderMap);
}

impl fmt::Debug for SendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendOptions")
            .field("purpose", &self.purpose)
            .field("is_read", &self.is_read)
            .field("unproven", &self.unproven)
            .field("pin", &self.pin)
            .field("collection", &self.collection)
            .field("wait_until", &self.wait_until)
            .field("answer_timeout", &self.answer_timeout)
            .field("choice", &self.choice)
            .finish_non_exhaustive()
    }
}
