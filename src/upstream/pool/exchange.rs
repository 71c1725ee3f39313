//! Sends a request on an acquired connection. The lease of the connection moves into the response's
//! body.

use http::{Request, Response};
use http_body::Body as _;

use super::body::{Body, Lease};
use super::request_form::{http1_form, http2_form};
use super::send_error::SendError;
use super::{http1, http2};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::error::UpstreamError;
use crate::upstream::request_body::RequestBody;
use crate::upstream::send_options::SendOptions;

/// Sends a request over HTTP/1.1.
pub(super) async fn send_http1(
    mut lease: http1::Lease,
    request: Request<RequestBody>,
    gauge: GaugeGuard,
) -> Result<Response<Body>, SendError> {
    let sent = lease.sender.try_send_request(http1_form(request)).await;
    let response = sent.map_err(SendError::from_hyper)?;
    Ok(response.map(|incoming| Body::new(incoming, Lease::Http1(Box::new(lease))).counted(gauge)))
}

/// Sends a request over HTTP/2.
pub(super) async fn send_http2(
    mut lease: http2::Lease,
    request: Request<RequestBody>,
    gauge: GaugeGuard,
    options: &SendOptions,
) -> Result<Response<Body>, SendError> {
    lease.observe_reset(options.reset_observer.clone());
    let request = http2_form(request);
    let has_no_body = request.body().is_end_stream();
    let Some(mut sender) = lease.sender() else {
        lease.complete();
        return Err(SendError::not_sent(UpstreamError::Lost("the connection closed".to_owned())));
    };
    let sent = sender.try_send_request(request);
    drop(sender);
    match sent.await {
        Ok(response) => Ok(response.map(|incoming| {
            let body = Body::new(incoming, Lease::Http2(lease)).counted(gauge);
            if has_no_body { body.strict() } else { body }
        })),
        Err(failure) => {
            // The peer or the connection ended the stream; Weir reset nothing.
            lease.complete();
            Err(SendError::from_hyper(failure))
        }
    }
}
