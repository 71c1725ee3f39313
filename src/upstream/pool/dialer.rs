//! Opens the connections of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::limits::ACQUIRE_TIMEOUT;
use crate::config::UpstreamConfig;
use crate::config::seams::Dial;
use crate::upstream::connect::{Io, Offer, connect};
use crate::upstream::credentials::{Credentials, Endpoint, Identity};
use crate::upstream::error::UpstreamError;
use crate::upstream::metrics::{ProtocolLabel, UpstreamMetrics};

/// Opens connections to one API server with one identity.
pub(super) struct Dialer {
    endpoint: Endpoint,
    pub(super) credentials: Arc<Credentials>,
    pub(super) metrics: UpstreamMetrics,
    /// Opens the connections; `None` for TCP.
    dial: Option<Dial>,
    /// Whether the configuration allows HTTP/2.
    http2_allowed: bool,
    /// Whether the upstream chose HTTP/2 the last time that it was offered.
    http2_chosen: AtomicBool,
    /// The number of connections that were ever opened, to all servers.
    connections_opened: Arc<AtomicU64>,
}

impl Dialer {
    pub(super) fn new(
        endpoint: Endpoint,
        (config, dial): (&UpstreamConfig, Option<Dial>),
        credentials: Arc<Credentials>,
        metrics: UpstreamMetrics,
        connections_opened: Arc<AtomicU64>,
    ) -> Self {
        Self {
            endpoint,
            credentials,
            metrics,
            dial,
            http2_allowed: config.http2,
            http2_chosen: AtomicBool::new(config.http2),
            connections_opened,
        }
    }

    /// Opens a connection, TLS included. Counts it as opened, unless it is for an upgrade: nothing
    /// that comes over that is kept, so that its cluster need not be compared.
    pub(super) async fn connect(
        &self,
        identity: &Identity,
        offer: Offer,
    ) -> Result<Io, UpstreamError> {
        let io = self.connect_uncounted(identity, offer).await?;
        if offer != Offer::Upgrade {
            self.connections_opened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(io)
    }

    /// Opens a connection for a check of the server, which keeps nothing either.
    pub(super) async fn connect_uncounted(
        &self,
        identity: &Identity,
        offer: Offer,
    ) -> Result<Io, UpstreamError> {
        let mut io = connect(identity, &self.endpoint, offer, self.dial.as_ref()).await?;
        if offer == Offer::Http2 {
            self.http2_chosen.store(io.http2, Ordering::Relaxed);
        }
        let protocol = if io.http2 { ProtocolLabel::Http2 } else { ProtocolLabel::Http1 };
        io.hold(self.metrics.connection(protocol));
        Ok(io)
    }

    /// Returns whether the server speaks TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.endpoint.https
    }

    /// Returns whether requests should use HTTP/2.
    pub(super) fn speaks_http2(&self) -> bool {
        self.http2_chosen.load(Ordering::Relaxed)
    }

    /// Returns the protocols that the configuration allows.
    pub(super) fn offer(&self) -> Offer {
        if self.http2_allowed { Offer::Http2 } else { Offer::Http1 }
    }

    /// Returns the error of a request that got no connection within [`ACQUIRE_TIMEOUT`].
    pub(super) fn exhausted(&self) -> UpstreamError {
        UpstreamError::Exhausted { address: self.address(), timeout: ACQUIRE_TIMEOUT }
    }

    /// Returns the server's address, for messages.
    pub(super) fn address(&self) -> String {
        self.endpoint.to_string()
    }
}
