//! How a client's request uses the connections to the upstream.

use std::fmt;
use std::sync::Arc;

/// How a request uses the connections. The default is that of Weir's own requests.
#[derive(Clone, Default)]
pub struct SendOptions {
    /// Whether the upstream may refuse to authenticate the request. kube-apiserver ends the HTTP/2
    /// connection of each such request (`docs/semantics.md` §8.8), so these requests never share a
    /// connection with another exchange.
    pub unproven: bool,
    /// The client, for reads that may show an older state. All such reads of a client use the same
    /// connection while it lives: behind a load balancer, another connection may lead to an API
    /// server that lags, and the client would go back in time
    /// (`docs/decisions/sticky-reads.md`).
    pub pin: Option<u64>,
    /// Learns if the request's stream is reset.
    pub reset_observer: Option<Arc<dyn ResetObserver>>,
}

/// Learns of a stream that was reset before its exchange was complete.
pub trait ResetObserver: Send + Sync {
    /// A stream was reset. Called without a lock of the pool.
    fn stream_was_reset(&self);
}

impl fmt::Debug for SendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendOptions")
            .field("unproven", &self.unproven)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}
