//! The body of a response, and the lease of its connection.
//!
//! A cancelled HTTP/2 body resets its stream, and peers close connections that reset too many
//! streams. A cancelled HTTP/1.1 body closes its connection. Therefore the rest of a dropped body
//! of an ordinary response is read and discarded, within bounds. Resets that remain are counted
//! for their connection, which is spared for a while, and for their client ([`SendOptions`]).
//!
//! [`SendOptions`]: crate::upstream::send_options::SendOptions
//!
//! A body that breaks off is always an error. hyper takes a stream that ends without an error code
//! (RST_STREAM or GOAWAY with NO_ERROR, as a stopping API server sends) for a complete one, and
//! half a list would look like a whole list.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prometheus::IntCounter;
use tokio::time::{Sleep, sleep};

use super::{http1, http2};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::endpoints::load::InUse;
use crate::upstream::send_options::{SendOptions, TrafficClass};

/// The most that is read of a dropped body: more than most objects and errors have, and cheaper
/// than a reset.
const DRAIN_MAX_BYTES: usize = 256 * 1024;
/// The longest time that a dropped body is read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The error of a body that broke off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection or the stream failed.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The stream or its connection ended before the body did.
    #[error("the body broke off before its end")]
    Truncated,
    /// The upstream sent nothing of the body for too long over HTTP/1.1.
    #[error("the upstream sent nothing of the body for {0:?}")]
    Silent(Duration),
    /// The client read nothing of the body for too long, so that it was dropped.
    #[error("the client read nothing of the body for too long")]
    Stalled,
    /// The client read a list so slowly that too much of its state was replaced meanwhile.
    #[error("the client read a list much more slowly than its objects change")]
    Outrun,
}

/// The body of a response from the upstream. It holds its stream or connection until it ends or is
/// dropped. A dropped body is drained, or its reset is counted, so that cancelled bodies do not
/// make the peer close the connection.
pub struct Body {
    incoming: Option<Incoming>,
    lease: Lease,
    gauge: Option<GaugeGuard>,
    /// Counts the exchange in the load of its server.
    load: Option<InUse>,
    /// Counts the bytes of the body.
    received: Option<IntCounter>,
    /// Whether the rest of the body is read after a drop.
    drain: bool,
    /// Whether only END_STREAM from the peer ends the body.
    strict: bool,
    /// The longest pause over HTTP/1.1.
    pause: Option<Pause>,
    /// The key of the API server that sends it.
    server: Option<u64>,
}

/// The longest pause in a body.
struct Pause {
    max: Duration,
    /// The end of the present pause.
    end: Option<Pin<Box<Sleep>>>,
}

impl Pause {
    /// Begins a pause, or goes on with it. Ready at its end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(self.max)));
        end.as_mut().poll(context)
    }
}

/// The lease of a stream or connection. Dropping it means that the exchange was broken off.
pub(super) enum Lease {
    /// A stream of an HTTP/2 connection.
    Http2(http2::Lease),
    /// An HTTP/1.1 connection.
    Http1(Box<http1::Lease>),
    /// No lease: the connection is used once.
    None,
}

impl Lease {
    /// Returns the stream or connection to its pool after a complete exchange.
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
        let incoming = Some(incoming);
        let (gauge, load, received) = (None, None, None);
        let (drain, strict, pause) = (false, false, None);
        let server = None;
        let mut body =
            Self { incoming, lease, gauge, load, received, drain, strict, pause, server };
        body.complete_at_end();
        body
    }

    /// Accepts only END_STREAM as the end of the body. Must not be used if the response may come
    /// before the whole request was sent: the peer then ends the stream and resets it (RFC 9113
    /// §8.1), which looks like a body that broke off.
    pub(super) fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Holds `gauge` until the body ends.
    pub(super) fn counted(mut self, gauge: GaugeGuard) -> Self {
        if self.incoming.is_some() {
            self.gauge = Some(gauge);
        }
        self
    }

    /// Counts the exchange in the load of its server until the body ends.
    pub(in crate::upstream) fn with_load(mut self, load: InUse) -> Self {
        self.load = self.incoming.is_some().then_some(load);
        self
    }

    /// Notes the key of the API server that sends it.
    pub(in crate::upstream) fn sent_by(mut self, server: u64) -> Self {
        self.server = Some(server);
        self
    }

    /// Returns the key of the API server that sends it.
    pub(in crate::upstream) fn server(&self) -> Option<u64> {
        self.server
    }

    /// Counts the bytes of the body.
    pub(in crate::upstream) fn received_by(mut self, bytes: &IntCounter) -> Self {
        self.received = self.incoming.is_some().then(|| bytes.clone());
        self
    }

    /// Reads the rest of the body if it is dropped, and limits its pauses over HTTP/1.1, if it is
    /// of a class whose bodies end: a watch has no end to read to, and is silent for long.
    pub(super) fn with_class(mut self, class: TrafficClass, options: &SendOptions) -> Self {
        let ends = class == TrafficClass::Request;
        self.drain = ends;
        let max = options.answer_timeout.filter(|_| ends && matches!(self.lease, Lease::Http1(_)));
        self.pause = max.map(|max| Pause { max, end: None });
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
        self.load = None;
        std::mem::replace(&mut self.lease, Lease::None).complete();
    }

    /// Returns whether the body has ended for hyper, but not by an END_STREAM of the peer.
    fn is_truncated(&self) -> bool {
        self.strict && self.incoming.as_ref().is_some_and(|incoming| !incoming.is_end_stream())
    }

    /// Ends an exchange that failed. An HTTP/2 stream that the peer ended needs no reset. An
    /// HTTP/1.1 connection cannot be reused.
    fn fail(&mut self) {
        self.incoming = None;
        self.gauge = None;
        self.load = None;
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
        let Poll::Ready(polled) = Pin::new(incoming).poll_frame(context) else {
            let Some(pause) = &mut self.pause else { return Poll::Pending };
            std::task::ready!(pause.poll_end(context));
            let max = pause.max;
            self.fail();
            return Poll::Ready(Some(Err(BodyError::Silent(max))));
        };
        if let Some(pause) = &mut self.pause {
            pause.end = None;
        }
        match &polled {
            Some(Ok(frame)) => {
                if let Some((received, data)) = self.received.as_ref().zip(frame.data_ref()) {
                    received.inc_by(data.len() as u64);
                }
                self.complete_at_end();
            }
            Some(Err(_)) => self.fail(),
            None if self.is_truncated() => {
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

/// Leaves out the content.
impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("ended", &self.incoming.is_none()).finish_non_exhaustive()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.complete_at_end();
        let Some(incoming) = self.incoming.take() else { return };
        let too_long = incoming.size_hint().lower() > DRAIN_MAX_BYTES as u64;
        if !self.drain || too_long {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let lease = std::mem::replace(&mut self.lease, Lease::None);
        runtime.spawn(async move {
            if let Ok(true) = tokio::time::timeout(DRAIN_TIMEOUT, drain(incoming)).await {
                lease.complete();
            }
        });
    }
}

/// Reads a body to its end, and returns whether it ended within [`DRAIN_MAX_BYTES`].
async fn drain(mut incoming: Incoming) -> bool {
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
