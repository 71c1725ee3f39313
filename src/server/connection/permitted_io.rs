//! The socket of a client connection, with its permit and a time-out for stalled writes. Its reads
//! fail once the connection is closed to make room for others.
//!
//! A stall is detected where bytes leave: while the socket accepts none of the bytes that are
//! written, a timer runs, and a write after it has elapsed fails. A connection with nothing to
//! write, such as that of an idle watch, never stalls; nor does a spliced one. A single HTTP/2
//! stream whose window stays shut, on a connection that is alive, is not detected here but by
//! [`crate::server::connection::send_timeouts`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::server::connection::eviction::Eviction;

/// A client's socket, with the permits that it holds until it is closed.
#[derive(Debug)]
pub(crate) struct PermittedIo<I, P> {
    io: I,
    stall: StallTimeout,
    /// Removes the time-outs of the socket's own, once the connection is spliced.
    unlimit: Option<fn(&I)>,
    /// Whether it is closed to make room for others.
    eviction: Arc<Eviction>,
    _permits: P,
}

impl<I, P> PermittedIo<I, P> {
    /// Wraps `io`. Writes fail once the socket has accepted nothing for `stall_timeout`.
    /// `unlimit` removes the time-outs that the socket itself has.
    pub(crate) fn new(
        io: I,
        permits: P,
        eviction: Arc<Eviction>,
        (stall_timeout, unlimit): (Duration, fn(&I)),
    ) -> Self {
        let (stall, unlimit) = (StallTimeout::new(stall_timeout), Some(unlimit));
        Self { io, stall, unlimit, eviction, _permits: permits }
    }

    /// Completes when the connection is to be closed to make room, while nothing reads from it.
    pub(crate) async fn evicted(&self) {
        std::future::poll_fn(|context| self.eviction.poll_evicted(context)).await;
    }

    pub(crate) fn get_ref(&self) -> &I {
        &self.io
    }

    /// Replaces `Pending` by an error once the time-out has elapsed.
    fn check_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.eviction.is_spliced() {
            if let Some(unlimit) = self.unlimit.take() {
                unlimit(&self.io);
            }
            return polled;
        }
        match self.stall.check_timeout(context, polled) {
            Ok(polled) => polled,
            Err(stalled) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, stalled))),
        }
    }
}

impl<I: AsyncRead + Unpin, P: Unpin> AsyncRead for PermittedIo<I, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.eviction.poll_evicted(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin, P: Unpin> AsyncWrite for PermittedIo<I, P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.check_timeout(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(context, buffers);
        self.check_timeout(context, polled)
    }

    /// A socket has nothing to flush, so that a flush never shows a stall.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// Time-out for a stalled peer. The timer runs only while the operation is `Pending`; progress
/// resets it.
#[derive(Debug)]
pub(crate) struct StallTimeout {
    timeout: Duration,
    /// `None` while the operation makes progress.
    sleep: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client neither read nor sent any data within the stall time-out")]
pub(crate) struct Stalled;

impl StallTimeout {
    /// Creates a time-out for an operation that may be `Pending` for at most `timeout`.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, sleep: None }
    }

    /// Returns `polled`, or an error once the operation has been `Pending` for too long. The task
    /// is woken at that moment.
    pub(crate) fn check_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<T>,
    ) -> Result<Poll<T>, Stalled> {
        if polled.is_ready() {
            self.sleep = None;
            return Ok(polled);
        }
        let timeout = self.timeout;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        match sleep.as_mut().poll(context) {
            Poll::Ready(()) => Err(Stalled),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_stalled_client_is_disconnected_and_a_slow_one_is_not() {
        let (client, mut server) = tokio::io::duplex(8);
        let mut permitted = PermittedIo::new(client, (), Arc::default(), (TIMEOUT, |_| {}));
        permitted.write_all(b"12345678").await.unwrap();
        tokio::time::sleep(TIMEOUT * 9).await;
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
                server.read_u8().await.unwrap();
            }
            server
        });
        permitted.write_all(b"abcdefgh").await.unwrap();
        let _server = slow.await.unwrap();
        let started = Instant::now();
        let error = permitted.write_all(b"!").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_spliced_client_may_pause_for_as_long_as_it_likes() {
        let (client, mut server) = tokio::io::duplex(8);
        let eviction = Arc::new(Eviction::default());
        let limits: (_, fn(&_)) = (TIMEOUT, |_| {});
        let mut permitted = PermittedIo::new(client, (), Arc::clone(&eviction), limits);
        eviction.splice();
        let paused = tokio::spawn(async move {
            tokio::time::sleep(TIMEOUT * 60).await;
            let mut read = [0; 16];
            server.read_exact(&mut read).await.unwrap();
            read
        });
        permitted.write_all(b"0123456789abcdef").await.unwrap();
        assert_eq!(&paused.await.unwrap(), b"0123456789abcdef");
        assert!(permitted.unlimit.is_none(), "the socket has no time-out any more");
    }
}
