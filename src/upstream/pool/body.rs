//! A response's body, and the place on a connection that it holds.
//!
//! HTTP/2 cancels a body by resetting its stream, and peers close connections that reset too much; HTTP/1.1 can only close the
//! connection. So what is left of an ordinary response is read and thrown away, within bounds, and what must be reset is counted
//! against its connection, which is retired in time.
//!
//! An answer that breaks off is an error, always: hyper takes what breaks off without an error code (RST_STREAM or GOAWAY with
//! NO_ERROR, as of an API server that stops) for the end, and half a list would pass for a whole one.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{http1, http2};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::TrafficClass;

/// The most that is read of a body nobody wants: more than most objects and errors, less than a reset is worth.
const DRAIN_MAX_BYTES: usize = 256 * 1024;
/// The longest that is waited for the end of such a body.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection or the stream failed.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The stream or its connection ended without the end of the body.
    #[error("it broke off before its end")]
    Truncated,
    /// Its reader took nothing of it for so long that it was dropped.
    #[error("its reader took nothing of it for too long")]
    Untaken,
}

/// A response body from the upstream. It counts as a stream of its connection until it ends or is dropped; one dropped
/// unread is drained or paced, so that cancelled bodies never cost a connection (baseline.md, last section).
pub struct Body {
    incoming: Option<Incoming>,
    lease: Lease,
    gauge: Option<GaugeGuard>,
    drain: bool,
    /// Whether only the peer's end of the stream is its end.
    strict: bool,
}

/// A place on a connection; dropping it says that the exchange was broken off.
pub(super) enum Lease {
    /// One of many streams.
    Http2(http2::Lease),
    /// The connection, whole.
    Http1(Box<http1::Lease>),
    /// Nothing to give back.
    None,
}

impl Lease {
    /// Gives the place back after an exchange that came to its end.
    fn complete(self) {
        match self {
            Self::Http2(lease) => lease.complete(),
            Self::Http1(lease) => lease.complete(),
            Self::None => {}
        }
    }
}

impl Body {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Self {
        let mut body =
            Self { incoming: Some(incoming), lease, gauge: None, drain: false, strict: false };
        body.complete_at_end();
        body
    }

    /// Takes nothing but the end of its HTTP/2 stream for its end. Not for an answer that may come before the request was
    /// sent whole: the peer then ends the stream and resets it (RFC 9113 §8.1), and the one can't be told from the other.
    pub(super) fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Counts it in a gauge until it ends.
    pub(super) fn counted(mut self, gauge: GaugeGuard) -> Self {
        if self.incoming.is_some() {
            self.gauge = Some(gauge);
        }
        self
    }

    /// Says whether what is left of it may be worth reading: a watch has no end to read to.
    pub(super) fn paced(mut self, class: TrafficClass) -> Self {
        self.drain = matches!(class, TrafficClass::Request | TrafficClass::Read);
        self
    }

    fn complete_at_end(&mut self) {
        if self.incoming.as_ref().is_some_and(Incoming::is_end_stream) {
            self.complete();
        }
    }

    fn complete(&mut self) {
        self.incoming = None;
        self.gauge = None;
        std::mem::replace(&mut self.lease, Lease::None).complete();
    }

    /// Whether a body that gives no more has not been ended by its peer.
    fn breaks_off(&self) -> bool {
        self.strict && self.incoming.as_ref().is_some_and(|incoming| !incoming.is_end_stream())
    }

    /// The exchange failed. An HTTP/2 stream that the peer ended needs no reset; an HTTP/1.1 connection is of no more use.
    fn fail(&mut self) {
        self.incoming = None;
        self.gauge = None;
        match std::mem::replace(&mut self.lease, Lease::None) {
            Lease::Http2(lease) => lease.complete(),
            lease => drop(lease),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = std::task::ready!(Pin::new(incoming).poll_frame(context));
        match &polled {
            Some(Ok(_)) => self.complete_at_end(),
            Some(Err(_)) => self.fail(),
            None if self.breaks_off() => {
                self.fail();
                return Poll::Ready(Some(Err(BodyError::Truncated)));
            }
            None => self.complete(),
        }
        Poll::Ready(polled.map(|frame| frame.map_err(BodyError::Http)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

/// Shows nothing of what it carries.
impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("ended", &self.incoming.is_none()).finish_non_exhaustive()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.complete_at_end();
        let Some(incoming) = self.incoming.take() else { return };
        let hopeless = incoming.size_hint().lower() > DRAIN_MAX_BYTES as u64;
        if !self.drain || hopeless {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let lease = std::mem::replace(&mut self.lease, Lease::None);
        runtime.spawn(async move {
            if let Ok(true) = tokio::time::timeout(DRAIN_MAX, read_out(incoming)).await {
                lease.complete();
            }
        });
    }
}

/// Reads to the end, or to the bound; tells which.
async fn read_out(mut incoming: Incoming) -> bool {
    let mut read = 0;
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else { return false };
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > DRAIN_MAX_BYTES {
            return false;
        }
    }
    true
}
