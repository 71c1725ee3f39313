//! Relays bodies and heads unchanged, except for the parts that belong to one connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{Response, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use crate::server::connection::permitted_io::StallTimeout;
use crate::server::drain::WatchDrain;
use crate::server::forward::claim::ForwardClaim;
use crate::server::forward::watch::ForwardedWatch;
use crate::server::http::body::Body;
use crate::server::http::headers;
use crate::server::request::holds::Holds;
use crate::upstream::{RequestBody, pool};

pub(crate) enum ClientBody {
    /// It is streamed.
    Unread(Incoming),
    Read(Bytes),
}

impl ClientBody {
    /// Reads a body that the client says is `length` bytes long. `None` if it breaks off, or does
    /// not come within `patience`. Its bytes are copied: a small frame would keep the whole buffer
    /// of the connection.
    pub(crate) async fn read(body: Incoming, length: usize, patience: Duration) -> Option<Bytes> {
        timeout(patience, Self::copy(body, length)).await.ok()?
    }

    async fn copy(mut body: Incoming, length: usize) -> Option<Bytes> {
        let mut bytes = BytesMut::with_capacity(length);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.ok()?.into_data() else { continue };
            if bytes.len() + data.len() > length {
                return None;
            }
            bytes.extend_from_slice(&data);
        }
        // hyper treats a reset of HTTP/2 without an error code as the end of the body.
        (bytes.len() == length).then(|| bytes.freeze())
    }
}

impl From<Incoming> for ClientBody {
    fn from(body: Incoming) -> Self {
        Self::Unread(body)
    }
}

/// Returns the upstream's response as it is sent to the client, with a body that has its `holds`,
/// and `claim` as long as its rules say. A watch ends with `drain`, where its format allows it.
pub(super) fn relay_response(
    response: Response<pool::Body>,
    mut holds: Box<Holds>,
    drain: Option<WatchDrain>,
    claim: Option<ForwardClaim>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    // The Connection header of a response cannot name an identity header that matters to a client.
    let _kept = headers::remove_hop_by_hop(&mut parts.headers);
    parts.version = Version::default();
    parts.extensions.clear();
    let body = match (drain, ForwardedWatch::scanner(&parts.headers)) {
        (Some(drain), Some(events)) => {
            let claim = match claim.map(ForwardClaim::into_watch) {
                Some(Ok(claim)) => Some(claim),
                Some(Err(permit)) => {
                    holds.budget = permit;
                    None
                }
                None => None,
            };
            let body = Box::new(ForwardedWatch::new(body, events, drain, claim));
            Body::ForwardedWatch { body, holds }
        }
        _ => {
            holds.budget = claim.and_then(ForwardClaim::into_permit);
            match holds.seats.as_mut().filter(|_| !body.is_end_stream()) {
                Some(seats) => Body::Seated { reading: seats.read(body, &parts), holds },
                None => Body::Upstream { body: Box::new(body), holds },
            }
        }
    };
    Response::from_parts(parts, body)
}

/// Returns path and query unchanged, from any form of request target.
pub(super) fn path_only(uri: Uri) -> Uri {
    let path = uri.into_parts().path_and_query;
    Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
}

/// Returns the client's body as it is sent upstream. `broken` is set when the body breaks off.
/// `is_expected` is whether the client waits for a 100 before it sends the body. hyper sends one
/// when the body is first read. Go's server sends none with a request whose body it does not read,
/// such as a 404, so the API server has a moment in which it may answer first.
pub(super) fn relay_request_body(
    body: ClientBody,
    (version, is_expected): (Version, bool),
    broken: &Arc<AtomicBool>,
    stall: StallTimeout,
) -> RequestBody {
    let body = match body {
        ClientBody::Unread(body) => body,
        ClientBody::Read(bytes) => {
            return Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        }
    };
    if body.is_end_stream() {
        return Empty::new().map_err(|never| match never {}).boxed_unsync();
    }
    let streamed = version == Version::HTTP_2;
    let held = (is_expected && !streamed).then(|| Box::pin(sleep(CONTINUE_AFTER)));
    RelayedBody { body, streamed, held, broken: Arc::clone(broken), stall }.boxed_unsync()
}

/// A client's request body. That of an HTTP/2 stream ends only where the stream does: hyper treats
/// a reset without an error code as the end too, and half a body must not reach the upstream as a
/// whole one.
struct RelayedBody {
    body: Incoming,
    /// Whether it is the body of an HTTP/2 stream.
    streamed: bool,
    /// Ends when the body may be read, and the client gets its 100.
    held: Option<Pin<Box<Sleep>>>,
    /// Set when the body breaks off.
    broken: Arc<AtomicBool>,
    /// Ends a body of which no more data comes.
    stall: StallTimeout,
}

impl http_body::Body for RelayedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(held) = &mut self.held {
            ready!(held.as_mut().poll(context));
            self.held = None;
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let polled = match self.stall.check_timeout(context, polled) {
            Ok(polled) => polled,
            Err(stalled) => {
                self.broken.store(true, Ordering::Relaxed);
                return Poll::Ready(Some(Err(stalled.into())));
            }
        };
        let frame = match ready!(polled) {
            None if self.streamed && !self.body.is_end_stream() => {
                Some(Err(pool::BodyError::Truncated))
            }
            frame => frame.map(|frame| frame.map_err(pool::BodyError::Http)),
        };
        if let Some(Err(_)) = frame {
            self.broken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An API server answers a request whose body it does not read within some milliseconds. Clients
/// that wait for a 100 do so for 350 ms and longer, then send the body without it.
const CONTINUE_AFTER: Duration = Duration::from_millis(100);
