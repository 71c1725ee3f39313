//! Requests in a row to one API server: they share a connection of their own.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;

use crate::upstream::endpoints::ApiServer;
use crate::upstream::endpoints::pin::Pin;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool::{self, Single};
use crate::upstream::pools::Route;
use crate::upstream::request_body::RequestBody;
use crate::upstream::{Choice, RequestPurpose, TrafficClass, Upstream};

/// A connection of its own to one API server. A request is sent when the body of the response
/// before it was read.
pub(crate) struct OneServer {
    upstream: Upstream,
    route: Arc<Route>,
    connection: Single,
}

impl OneServer {
    /// Opens the connection to another API server than that of `pin`, if there is one.
    pub(super) async fn connect_elsewhere(
        upstream: &Upstream,
        pin: &Pin,
    ) -> Result<Self, UpstreamError> {
        let (route, connection) = upstream.single(&Choice::Spread, pin.current()).await?;
        Ok(Self { upstream: upstream.clone(), route, connection })
    }

    /// Opens the connection to the API server that `choice` finds.
    pub(super) async fn connect_by(
        upstream: &Upstream,
        choice: &Choice,
    ) -> Result<Self, UpstreamError> {
        let (route, connection) = upstream.single(choice, None).await?;
        Ok(Self { upstream: upstream.clone(), route, connection })
    }

    /// Opens a connection for checks to this API server, if it is still in the set.
    pub(super) async fn connect_to(
        upstream: &Upstream,
        server: &Arc<ApiServer>,
    ) -> Result<Self, UpstreamError> {
        let (route, connection) = upstream.single_to(server).await?;
        Ok(Self { upstream: upstream.clone(), route, connection })
    }

    /// Sends a request as [`Upstream::send`] does, but never twice.
    pub(super) async fn send(
        &mut self,
        class: TrafficClass,
        purpose: RequestPurpose,
        request: Request<RequestBody>,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        let started = Instant::now();
        let path = request.uri().path_and_query().cloned();
        let mut request = self.upstream.authenticate(request).await?;
        *request.uri_mut() = self.route.uri(path.as_ref())?;
        let sent = self.connection.send(request).await.map_err(|failure| failure.error);
        self.upstream.count(class, &sent, started);
        let bytes = self.upstream.inner.metrics.bytes(purpose);
        let server = self.route.server.key;
        sent.map(|response| response.map(|body| body.received_by(&bytes.received).sent_by(server)))
    }
}
