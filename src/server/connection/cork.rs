//! Gathers what an HTTP/2 connection writes in one turn of its task, so that the frames of many streams share TLS records and system calls.
//!
//! h2 writes and flushes each DATA frame on its own: of fifty watches that get one event, each frame would be a record and a write of its own. So while
//! several requests are open on a connection, what a turn of its task writes is gathered, and written when the turn ends, whatever it came to. No byte
//! waits for a timer or for another turn, unless the socket is full. One turn ([`crate::streams`]) collects what all its streams have to say.
//!
//! It stands above TLS: below it there would be as many records. A lone request and a whole frame go straight through, for there is nothing to join
//! and a copy to lose; and so does HTTP/1.1, with all that it is upgraded to.
//!
//! A full socket is felt as before: once [`GATHERED_BYTES_MAX`] lie here, writes are `Pending`; the write that waits is the socket's own, so that
//! [`crate::server::connection::permits`] sees it stall; and an error of the last write of a turn ends the connection at once. An idle connection holds no buffer.
//!
//! Locks: the connection's, for one poll; nobody contends for it. A thread's spare buffer is taken and given back under it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client's connection; see the module. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Cork<I>(Arc<Mutex<Gathering<I>>>);

impl<I> Clone for Cork<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Gathering<I> {
    io: I,
    /// Whether several requests share the connection.
    shared: bool,
    gathered: Vec<u8>,
    /// So much of `gathered` was written.
    written: usize,
    /// Whether the last flush is still to be finished.
    unflushed: bool,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Cork<I> {
    /// Over `io`.
    pub(crate) fn new(io: I) -> Self {
        let (gathered, written, unflushed) = (Vec::new(), 0, false);
        Self(Arc::new(Mutex::new(Gathering { io, shared: false, gathered, written, unflushed })))
    }

    /// Tells whether several requests share the connection from now on.
    pub(crate) fn share(&self, shared: bool) {
        self.0.lock().shared = shared;
    }

    /// To be called with what a turn of the connection's task came to. The error is one of the last write of the turn.
    pub(crate) fn end_turn<T>(
        &self,
        polled: Poll<T>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        match (polled, self.0.lock().drain(context)) {
            (Poll::Ready(output), _) => Poll::Ready(Ok(output)),
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}

impl<I: AsyncWrite + Unpin> Gathering<I> {
    /// Writes all that was gathered.
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.gathered.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.unflushed = true;
            let written = ready!(Pin::new(&mut self.io).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        give_back(std::mem::take(&mut self.gathered));
        self.written = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn gather(&mut self, buffers: &[IoSlice<'_>]) {
        if self.gathered.capacity() == 0 {
            self.gathered = take_spare();
        }
        for buffer in buffers {
            self.gathered.extend_from_slice(buffer);
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Cork<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Cork<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self.0.lock();
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let straight = length >= STRAIGHT_BYTES_MIN || !this.shared;
        if straight || this.gathered.len() + length > GATHERED_BYTES_MAX {
            ready!(this.drain(context))?;
        }
        if straight {
            return Pin::new(&mut this.io).poll_write_vectored(context, buffers);
        }
        this.gather(buffers);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().io.is_write_vectored()
    }

    /// What is gathered is flushed when the turn ends.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.lock();
        if !this.gathered.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.io).poll_flush(context))?;
        this.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.lock();
        ready!(this.drain(context))?;
        Pin::new(&mut this.io).poll_shutdown(context)
    }
}

thread_local! {
    /// An empty buffer of [`GATHERED_BYTES_MAX`]: a turn is over before the thread begins another, so that one serves all its connections whose sockets
    /// are not full, and stays in the processor's cache.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn take_spare() -> Vec<u8> {
    let spare = SPARE.take();
    if spare.capacity() == 0 { Vec::with_capacity(GATHERED_BYTES_MAX) } else { spare }
}

fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// What a connection may hold here while its socket is full: four TLS records, as much as rustls takes at once and buffers itself.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// A whole frame and TLS record by itself.
const STRAIGHT_BYTES_MIN: usize = 16 << 10;

#[cfg(test)]
mod tests;
