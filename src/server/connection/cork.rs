//! Coalesces what an HTTP/2 connection writes in one poll of its task, so that the frames of many
//! streams share TLS records and system calls.
//!
//! h2 writes and flushes each DATA frame separately: an event for fifty watches of one connection
//! would make fifty TLS records and fifty writes. So while several requests are open on a
//! connection, the writes of one poll of its task are buffered, and are written when the poll ends,
//! whatever its result. No byte waits for a timer or for another poll, unless the socket is full.
//! One poll of [`crate::streams`] collects the output of all streams.
//!
//! The cork stands above TLS: below it there would be as many records as before. A single request
//! and a whole frame bypass the buffer, since there is nothing to join and a copy to save. So does
//! HTTP/1.1, with every protocol that it is upgraded to (`docs/decisions/socket-writes.md`). If
//! ALPN selected HTTP/2, rustls keeps the records of a poll, and one write of the socket takes them
//! when the poll ends, or when a write follows four whole frames.
//!
//! Back-pressure works as without a cork: once [`BUFFER_BYTES_MAX`] are buffered, or rustls is
//! full, writes are `Pending`. The pending write is the socket's own, so that the stall time-out of
//! [`crate::server::connection::permitted_io`] sees it. An error of the last write of a poll ends
//! the connection at once. An idle connection holds no buffer.
//!
//! Reads pass through [`Inbound`]. The cork writes nothing long while [`ConnActivity`] says that a
//! large response of HTTP/1.1 waits for its turn ([`crate::server::lanes`]).
//!
//! Lock: that of the connection, held during one I/O call and never contended. The lock of
//! [`ConnActivity`] is taken under it, and a thread's spare buffer is taken and returned under it.

use std::cell::Cell;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use crate::server::connection::activity::ConnActivity;
use crate::server::connection::wire::inbound::Inbound;

/// The byte stream of a client connection, with coalesced writes. Cheap to clone: clones share the
/// stream.
#[derive(Debug)]
pub(crate) struct Cork<I>(Arc<Mutex<CorkedIo<I>>>);

impl<I> Clone for Cork<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct CorkedIo<I> {
    io: I,
    activity: ConnActivity,
    inbound: Inbound,
    /// Reads on after a refused request, once everything is written.
    linger: Option<Linger>,
    /// Whether several requests are open on the connection.
    shared: bool,
    /// Writes into TLS, which keeps the records until a flush.
    tls_writer: Option<TlsWriter<I>>,
    buffer: Vec<u8>,
    /// How many bytes of `buffer` were written.
    written: usize,
    /// Whether a flush must follow, or is still pending.
    needs_flush: bool,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Cork<I> {
    /// Wraps `io`, and reports what is read from it to `activity`. Heads of HTTP/1.1 of more than
    /// `head_bytes_max` are refused.
    pub(crate) fn new(io: I, activity: ConnActivity, head_bytes_max: usize) -> Self {
        let corked = CorkedIo {
            io,
            inbound: Inbound::new(activity.clone(), head_bytes_max),
            activity,
            linger: None,
            shared: false,
            tls_writer: None,
            buffer: Vec::new(),
            written: 0,
            needs_flush: false,
        };
        Self(Arc::new(Mutex::new(corked)))
    }

    /// Sets whether several requests are open on the connection. Only then are writes buffered.
    pub(crate) fn set_shared(&self, shared: bool) {
        self.0.lock().shared = shared;
    }

    /// From now on, TLS keeps what is written, until it is full or the poll ends. Only for a
    /// connection all of whose writes are followed by [`end_poll`](Self::end_poll).
    pub(crate) fn set_tls_writer(&self, writer: TlsWriter<I>) {
        self.0.lock().tls_writer = Some(writer);
    }

    /// Writes what was buffered or kept. Call this at the end of each poll of the connection's
    /// task, with its result. The error is that of the write.
    pub(crate) fn end_poll<T>(
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

impl<I: AsyncWrite + Unpin> CorkedIo<I> {
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_buffer(context))?;
        if self.needs_flush {
            ready!(Pin::new(&mut self.io).poll_flush(context))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn write_buffer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.buffer.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.needs_flush = true;
            let rest = [IoSlice::new(rest)];
            let written = ready!(write(&mut self.io, self.tls_writer, context, &rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        return_spare(std::mem::take(&mut self.buffer));
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn append(&mut self, slices: &[IoSlice<'_>]) {
        if self.buffer.capacity() == 0 {
            self.buffer = take_spare();
        }
        for slice in slices {
            self.buffer.extend_from_slice(slice);
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Cork<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let CorkedIo { io, inbound, .. } = &mut *self.0.lock();
        inbound.poll_read(io, context, buffer)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Cork<I> {
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
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self.0.lock();
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if length >= BYPASS_BYTES_MIN && this.activity.writes_wait() {
            return Poll::Pending;
        }
        let bypass = length >= BYPASS_BYTES_MIN || !this.shared;
        if bypass || this.buffer.len() + length > BUFFER_BYTES_MAX {
            ready!(this.write_buffer(context))?;
        }
        if bypass {
            this.needs_flush |= this.tls_writer.is_some();
            return write(&mut this.io, this.tls_writer, context, slices);
        }
        this.append(slices);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().io.is_write_vectored()
    }

    /// Flushes only if nothing is buffered or kept: the end of the poll flushes that.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.lock();
        if !this.buffer.is_empty() || (this.tls_writer.is_some() && this.needs_flush) {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.io).poll_flush(context))?;
        this.needs_flush = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.lock();
        if this.linger.is_none() {
            ready!(this.drain(context))?;
            ready!(Pin::new(&mut this.io).poll_shutdown(context))?;
        }
        if !this.inbound.is_refused() {
            return Poll::Ready(Ok(()));
        }
        this.linger.get_or_insert_with(Linger::new).poll(&mut this.io, context).map(Ok)
    }
}

/// Encrypts bytes and keeps the records. Returns the number of bytes taken: 0 if TLS is full.
pub(crate) type TlsWriter<I> = fn(&mut I, &[IoSlice<'_>]) -> io::Result<usize>;

/// The [`TlsWriter`] of rustls.
pub(crate) fn write_records<I>(
    stream: &mut TlsStream<I>,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    stream.get_mut().1.writer().write_vectored(slices)
}

/// Writes to the stream, or into TLS, which is flushed first if it is full.
fn write<I: AsyncWrite + Unpin>(
    io: &mut I,
    writer: Option<TlsWriter<I>>,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let Some(writer) = writer else {
        return Pin::new(io).poll_write_vectored(context, slices);
    };
    let kept = writer(io, slices)?;
    if kept > 0 {
        return Poll::Ready(Ok(kept));
    }
    ready!(Pin::new(&mut *io).poll_flush(context))?;
    Poll::Ready(writer(io, slices))
}

/// Discards what a client sends after its response, for a moment.
///
/// A socket that is closed while bytes of its client lie unread resets the connection, and the
/// client may lose the response that says why. Go's server waits half a second before it closes
/// such a connection (`closeWriteAndWait`); here the bytes are read meanwhile, so that a client
/// that sends more than its socket holds comes to read the response.
#[derive(Debug)]
struct Linger(Pin<Box<Sleep>>);

impl Linger {
    fn new() -> Self {
        Self(Box::pin(tokio::time::sleep(LINGER)))
    }

    /// Completes when the client has closed its side, or after a moment.
    fn poll<I: AsyncRead + Unpin>(&mut self, io: &mut I, context: &mut Context<'_>) -> Poll<()> {
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

thread_local! {
    /// An empty buffer with a capacity of [`BUFFER_BYTES_MAX`]. A thread ends one poll before it
    /// begins another, so one buffer serves all of its connections whose sockets are not full, and
    /// stays in the processor's cache.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn take_spare() -> Vec<u8> {
    let spare = SPARE.take();
    if spare.capacity() == 0 { Vec::with_capacity(BUFFER_BYTES_MAX) } else { spare }
}

fn return_spare(mut buffer: Vec<u8>) {
    if buffer.capacity() > 0 {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// The limit of what a connection buffers while its socket is full: four TLS records. rustls keeps
/// about as many bytes again.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// The limit of the records that rustls keeps of HTTP/2: four frames with their heads, in two
/// records each. A record of TLS 1.3 adds 22 bytes. TLS 1.2 adds 29; four frames fit as well, since
/// rustls compares the limit with the bytes before encryption.
pub(crate) const RECORDS_BYTES_MAX: usize = 4 * ((16 << 10) + 9 + 2 * 22);
/// A write of this size is a whole frame and fills a TLS record.
const BYPASS_BYTES_MIN: usize = 16 << 10;
/// The longest time of lingering, as in Go's server (`rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);
/// Reads in one poll; other connections have their turn between.
const READS_MAX: usize = 16;
const READ_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests;
