//! The end of a connection whose client may still send.
//!
//! A socket that is closed while bytes of its client lie unread resets the connection, and the
//! client may lose the response that says why. Go's server waits half a second before it closes
//! such a connection (`closeWriteAndWait`); here the bytes are read meanwhile, so that a client
//! that sends more than its socket holds comes to read the response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

/// Discards what a client sends after its response, for a moment.
#[derive(Debug)]
pub(crate) struct Linger(Pin<Box<Sleep>>);

impl Linger {
    pub(crate) fn new() -> Self {
        Self(Box::pin(tokio::time::sleep(LINGER)))
    }

    /// Completes when the client has closed its side, or after a moment.
    pub(crate) fn poll<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        for _ in 0..READS_MAX {
            let mut bytes = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.0.as_mut().poll(context),
            }
        }
        context.waker().wake_by_ref();
        self.0.as_mut().poll(context)
    }
}

/// The longest time of lingering, as in Go's server (`rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);
/// Reads in one poll; other connections have their turn between.
const READS_MAX: usize = 16;
const READ_BYTES: usize = 8 << 10;
