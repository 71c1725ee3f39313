//! The bytes of a connection, which note when some arrive and fail when the connection is dead.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use super::liveness::Liveness;
use crate::upstream::connect::Io;

/// An open connection that is closed when it is dead.
///
/// The connection's task always waits for bytes, so that it judges the connection right after it
/// has read all that arrived.
pub(super) struct LiveIo {
    io: Io,
    liveness: Arc<Liveness>,
    judgement: Pin<Box<Sleep>>,
}

impl LiveIo {
    pub(super) fn new(io: Io, liveness: Arc<Liveness>) -> Self {
        let judgement = Box::pin(sleep_until(liveness.next_judgement()));
        Self { io, liveness, judgement }
    }

    fn poll_judgement(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let next = self.liveness.next_judgement();
            if next < self.judgement.deadline() {
                self.judgement.as_mut().reset(next);
            }
            ready!(self.judgement.as_mut().poll(context));
            self.liveness.judge()?;
            self.judgement.as_mut().reset(self.liveness.next_judgement());
        }
    }
}

impl AsyncRead for LiveIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if polled.is_pending() {
            return self.poll_judgement(context);
        }
        if buffer.filled().len() > before {
            self.liveness.heard();
        }
        polled
    }
}

impl AsyncWrite for LiveIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
