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

    /// Sends a request by the protocol that the upstream spoke last, or by the other one if it has
    /// changed since.
    pub(super) async fn send(
        &self,
        gauge: GaugeGuard,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
        mut by_http2: bool,
    ) -> Result<Response<Body>, SendError> {
        let pin = attempt.options.pin;
        for is_last in [false, true] {
            if by_http2 {
                match self.http2.acquire(pin).await.map_err(SendError::not_sent)? {
                    http2::Acquired::Stream(lease) => {
                        return exchange::send_http2(lease, request, gauge, attempt).await;
                    }
                    http2::Acquired::Http1 => {}
                }
            } else {
                match self.http1.acquire(pin).await.map_err(SendError::not_sent)? {
                    http1::Acquired::Connection(lease) => {
                        return exchange::send_http1(lease, request, gauge, attempt).await;
                    }
                    http1::Acquired::Http2(..) if is_last => {}
                    // The upstream now supports HTTP/2.
                    http1::Acquired::Http2(io, tls_generation, opened_in) => {
                        let adopted = self.http2.adopt(io, tls_generation, opened_in).await;
                        adopted.map_err(SendError::not_sent)?;
                    }
                }
            }
            by_http2 = !by_http2;
        }
        Err(SendError::not_sent(self.protocol_changed()))
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
