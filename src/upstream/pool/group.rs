//! The connections for one kind of exchange, over either protocol.

use std::sync::Arc;

use http::{Request, Response};

use super::body::Body;
use super::dialer::Dialer;
use super::exchange::Attempt;
use super::limits::Http2Limits;
use super::send_error::SendError;
use super::{exchange, http1, http2};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::error::UpstreamError;
use crate::upstream::request_body::RequestBody;

/// The connections for one kind of exchange. They end after their last exchange when the group is
/// dropped.
pub(super) struct Group {
    dialer: Arc<Dialer>,
    http2: Arc<http2::Connections>,
    http1: Arc<http1::Connections>,
}

impl Group {
    pub(super) fn new(dialer: &Arc<Dialer>, http2_limits: Http2Limits, http1_max: usize) -> Self {
        let http1 = http1::Connections::new(dialer.clone(), http1_max);
        let http2 = http2::Connections::new(dialer.clone(), http2_limits, http1.clone());
        Self { dialer: dialer.clone(), http2, http1 }
    }

    /// Sends a request to an upstream that spoke HTTP/2 last.
    pub(super) async fn send_http2_first(
        &self,
        gauge: GaugeGuard,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
    ) -> Result<Response<Body>, SendError> {
        match self.http2.acquire(attempt.options.pin).await {
            Ok(http2::Acquired::Stream(lease)) => {
                exchange::send_http2(lease, request, gauge, attempt).await
            }
            Ok(http2::Acquired::Http1) => match self.http1.acquire(attempt.options.pin).await {
                Ok(http1::Acquired::Connection(lease)) => {
                    exchange::send_http1(lease, request, gauge, attempt).await
                }
                Ok(http1::Acquired::Http2(..)) => Err(SendError::not_sent(self.protocol_changed())),
                Err(error) => Err(SendError::not_sent(error)),
            },
            Err(error) => Err(SendError::not_sent(error)),
        }
    }

    /// Sends a request to an upstream that spoke HTTP/1.1 last.
    pub(super) async fn send_http1_first(
        &self,
        gauge: GaugeGuard,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
    ) -> Result<Response<Body>, SendError> {
        let (io, tls_generation, opened_in) = match self.http1.acquire(attempt.options.pin).await {
            Ok(http1::Acquired::Connection(lease)) => {
                return exchange::send_http1(lease, request, gauge, attempt).await;
            }
            Ok(http1::Acquired::Http2(io, tls_generation, opened_in)) => {
                (io, tls_generation, opened_in)
            }
            Err(error) => return Err(SendError::not_sent(error)),
        };
        // The upstream now supports HTTP/2.
        if let Err(error) = self.http2.adopt(io, tls_generation, opened_in).await {
            return Err(SendError::not_sent(error));
        }
        match self.http2.acquire(attempt.options.pin).await {
            Ok(http2::Acquired::Stream(lease)) => {
                exchange::send_http2(lease, request, gauge, attempt).await
            }
            Ok(http2::Acquired::Http1) => Err(SendError::not_sent(self.protocol_changed())),
            Err(error) => Err(SendError::not_sent(error)),
        }
    }

    #[cfg(test)]
    pub(super) fn resets_and_in_use(&self) -> (usize, usize) {
        self.http2.resets_and_in_use()
    }

    /// Returns the error of a request for which the upstream changed its protocol twice. Several
    /// upstreams with different protocols are behind one address. The next request may succeed.
    fn protocol_changed(&self) -> UpstreamError {
        UpstreamError::Connect {
            address: self.dialer.address(),
            cause: "it alternates between HTTP/1.1 and HTTP/2".to_owned(),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.http2.retire();
        self.http1.close_idle();
    }
}
