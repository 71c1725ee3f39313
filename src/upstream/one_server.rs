//! Requests in a row to one API server: they share a connection of their own.

use http::{Request, Response};
use tokio::time::Instant;

use crate::upstream::error::UpstreamError;
use crate::upstream::pool::{self, Single};
use crate::upstream::request_body::RequestBody;
use crate::upstream::{TrafficClass, Upstream};

/// A connection of its own to one API server. A request is sent when the body of the response
/// before it was read.
pub(crate) struct OneServer {
    upstream: Upstream,
    connection: Single,
}

impl OneServer {
    /// Opens the connection.
    pub(super) async fn connect(upstream: &Upstream) -> Result<Self, UpstreamError> {
        Ok(Self { upstream: upstream.clone(), connection: upstream.single().await? })
    }

    /// Sends a request as [`Upstream::send`] does, but never twice.
    pub(super) async fn send(
        &mut self,
        class: TrafficClass,
        request: Request<RequestBody>,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let started = Instant::now();
        let request = self.upstream.prepare(request).await?;
        let sent = self.connection.send(request).await.map_err(|failure| failure.error);
        self.upstream.count(class, &sent, started);
        sent
    }
}
