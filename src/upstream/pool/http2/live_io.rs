//! The bytes of a connection, which note when some arrive and fail when the connection is dead.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use super::liveness::Liveness;
use crate::upstream::connect::{Io, delegate_writes};

/// An open connection that is closed when it is dead.
///
/// The connection's task always waits for bytes, so that it checks the connection right after it
/// has read all that arrived.
pub(super) struct LiveIo {
    io: Io,
    liveness: Arc<Liveness>,
    check_timer: Pin<Box<Sleep>>,
}

impl LiveIo {
    pub(super) fn new(io: Io, liveness: Arc<Liveness>) -> Self {
        let check_timer = Box::pin(sleep_until(liveness.next_check()));
        Self { io, liveness, check_timer }
    }

    fn poll_check(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let next = self.liveness.next_check();
            if next < self.check_timer.deadline() {
                self.check_timer.as_mut().reset(next);
            }
            ready!(self.check_timer.as_mut().poll(context));
            self.liveness.check()?;
            self.check_timer.as_mut().reset(self.liveness.next_check());
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
            return self.poll_check(context);
        }
        if buffer.filled().len() > before {
            self.liveness.heard();
        }
        polled
    }
}

delegate_writes!(io, LiveIo);
