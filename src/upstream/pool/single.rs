//! A connection of its own, over HTTP/1.1, for several requests one after the other. All of them
//! reach the same API server, which a balancer before several API servers chooses by connection.

use std::sync::Arc;

use http::{Request, Response};
use hyper::client::conn::http1::SendRequest;
use tokio::sync::Semaphore;

use super::body::{Body, Lease};
use super::dialer::Dialer;
use super::request_form::http1_form;
use super::send_error::SendError;
use super::{http1, limits};
use crate::upstream::connect::{Io, Offer};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::request_body::RequestBody;

/// A connection that carries one request at a time. It closes when it is dropped and the body of
/// its last response has ended.
pub(in crate::upstream) struct Single {
    sender: SendRequest<RequestBody>,
}

impl Single {
    /// Opens a connection for checks of the server, which no limit refuses.
    pub(super) async fn open_for_check(dialer: &Dialer) -> Result<Self, SendError> {
        let identity = dialer.credentials.current();
        let io = dialer.connect_uncounted(&identity, Offer::Http1).await;
        Self::start(io.map_err(SendError::not_sent)?).await
    }

    /// Opens a connection. Fails at once if too many are open.
    pub(super) async fn open(dialer: &Dialer, permits: &Arc<Semaphore>) -> Result<Self, SendError> {
        let identity = dialer.credentials.current();
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            return Err(SendError::not_sent(dialer.exhausted()));
        };
        let mut io = dialer.connect(&identity, Offer::Http1).await.map_err(SendError::not_sent)?;
        io.hold(permit);
        Self::start(io).await
    }

    async fn start(io: Io) -> Result<Self, SendError> {
        let headers_max = limits::LIST_HEADERS_MAX_BYTES as usize;
        let sender = http1::handshake(io, headers_max).await.map_err(SendError::not_sent)?;
        Ok(Self { sender })
    }

    /// Sends a request. The body of the previous response must have been read to its end.
    pub(in crate::upstream) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, SendError> {
        if let Err(error) = self.sender.ready().await {
            return Err(SendError::not_sent(lost(&error)));
        }
        match self.sender.try_send_request(http1_form(request)).await {
            Ok(response) => Ok(response.map(|body| Body::new(body, Lease::None))),
            Err(error) => Err(SendError::from_hyper(error)),
        }
    }
}

fn lost(error: &hyper::Error) -> UpstreamError {
    UpstreamError::Lost(chain(error))
}
