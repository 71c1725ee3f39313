//! How long a client may take: over the head of a request, over doing nothing on HTTP/2, and over taking or sending what it owes.
//!
//! hyper's own time-out does not run while the first bytes do not yet tell which protocol comes, and later it counts an idle
//! connection like a head that never ends: a bound that is right for the one is wrong for the other. So the bytes are
//! watched as they are read: from the first of a head to its last a client has little time, and between two requests much.
//!
//! HTTP/2 is let be once its preface is complete, and told to go when it had no request for long.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What a connection is busy with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Head(Arc<Use>);

/// The requests of a connection, of whatever protocol.
#[derive(Debug)]
struct Use {
    phase: Mutex<Phase>,
    /// Whether the phase is HTTP/2, which it stays: with each read and request this is looked at, and the lock let be.
    http2: AtomicBool,
    open: AtomicUsize,
    accepted: Instant,
    /// When the last request ended, in milliseconds since then. Written before `open` is.
    ended: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// So many bytes of HTTP/2's preface have come; anything else begins a head of HTTP/1.1.
    Opening { matched: usize, since: Instant },
    /// A head is coming. `whole` says whether what was read last ends like one.
    Head { since: Instant, whole: bool },
    /// A request is being answered. `more` says whether bytes of the next one came with its head.
    Busy { more: bool },
    /// Between two requests.
    Idle,
    /// HTTP/2.
    Http2,
}

impl Head {
    /// Of a connection that was just accepted.
    pub(crate) fn new() -> Self {
        let accepted = Instant::now();
        Self(Arc::new(Use {
            phase: Mutex::new(Phase::Opening { matched: 0, since: accepted }),
            http2: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            accepted,
            ended: AtomicU64::new(0),
        }))
    }

    /// A head is complete. The request goes on until what is returned is dropped.
    pub(crate) fn request(&self, has_body: bool) -> Request {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        if !self.is_http2() {
            let mut phase = self.0.phase.lock();
            let more = matches!(*phase, Phase::Head { whole: false, .. }) && !has_body;
            *phase = Phase::Busy { more };
        }
        Request { head: self.clone() }
    }

    fn is_http2(&self) -> bool {
        self.0.http2.load(Ordering::Relaxed)
    }

    /// Resolves when a head has been coming for longer than this.
    pub(crate) async fn late(&self, timeout: Duration) {
        loop {
            let now = Instant::now();
            let until = match *self.0.phase.lock() {
                Phase::Http2 => break,
                Phase::Opening { since, .. } | Phase::Head { since, .. } => since + timeout,
                // A head that begins from now on is not late any sooner.
                Phase::Busy { .. } | Phase::Idle => now + timeout,
            };
            if until <= now {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
        std::future::pending().await
    }

    /// Resolves when an HTTP/2 connection has had no request for so long.
    pub(crate) async fn unused(&self, timeout: Duration) {
        loop {
            let now = Instant::now();
            let open = self.0.open.load(Ordering::Acquire);
            let since =
                self.0.accepted + Duration::from_millis(self.0.ended.load(Ordering::Relaxed));
            let until = if open == 0 { since + timeout } else { now + timeout };
            if until > now {
                tokio::time::sleep_until(until).await;
            } else if self.is_http2() {
                return;
            } else {
                // HTTP/1.1 has a bound of its own.
                tokio::time::sleep(timeout).await;
            }
        }
    }

    /// Takes note of bytes that were read.
    fn read(&self, bytes: &[u8]) {
        if self.is_http2() {
            return;
        }
        let mut phase = self.0.phase.lock();
        let whole = bytes.ends_with(HEAD_END);
        *phase = match *phase {
            Phase::Opening { matched, since } => {
                let expected = PREFACE.get(matched..).unwrap_or_default();
                let length = expected.len().min(bytes.len());
                if expected.get(..length) != bytes.get(..length) {
                    Phase::Head { since, whole }
                } else if length == expected.len() {
                    self.0.http2.store(true, Ordering::Relaxed);
                    Phase::Http2
                } else {
                    Phase::Opening { matched: matched + length, since }
                }
            }
            Phase::Head { since, .. } => Phase::Head { since, whole },
            Phase::Idle => Phase::Head { since: Instant::now(), whole },
            other => other,
        };
    }
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Request {
    head: Head,
}

impl Request {
    /// Holds on to a response's body until that ends.
    pub(crate) fn until_end_of<B>(self, body: B) -> Answering<B> {
        Answering { body, _request: self }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let used = &*self.head.0;
        let ended = u64::try_from(used.accepted.elapsed().as_millis()).unwrap_or(u64::MAX);
        used.ended.store(ended, Ordering::Relaxed);
        used.open.fetch_sub(1, Ordering::Release);
        if self.head.is_http2() {
            return;
        }
        let mut phase = used.phase.lock();
        if let Phase::Busy { more } = *phase {
            *phase = if more {
                Phase::Head { since: Instant::now(), whole: false }
            } else {
                Phase::Idle
            };
        }
    }
}

/// The body of a response, and the request that it answers.
#[derive(Debug)]
pub(crate) struct Answering<B> {
    body: B,
    _request: Request,
}

impl<B: Body<Data: Buf> + Unpin> Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A client's connection whose bytes are watched.
#[derive(Debug)]
pub(crate) struct Watched<I> {
    io: I,
    head: Head,
}

impl<I> Watched<I> {
    /// Tells `head` of what is read.
    pub(crate) fn new(io: I, head: Head) -> Self {
        Self { io, head }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if let Some(bytes) = buffer.filled().get(before..)
            && !bytes.is_empty()
        {
            self.head.read(bytes);
        }
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// Ends what a client owes and does not do: the time-out runs while nothing moves.
#[derive(Debug)]
pub(crate) struct Stall {
    timeout: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// A client did nothing of what it owes for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client neither took nor sent what it owes for too long")]
pub(crate) struct Stalled;

impl Stall {
    /// For something that may pause for so long.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, sleep: None }
    }

    /// Hands on what a poll came to, or an error if that has been `Pending` for too long. The task is woken at that time.
    pub(crate) fn judge<T>(
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

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Of HTTP/1.1.
const HEAD_END: &[u8] = b"\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(32);

    /// Whether a head is late after so long.
    async fn late_after(head: &Head, wait: Duration) -> bool {
        tokio::time::timeout(wait, head.late(TIMEOUT)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn what_begins_must_end_and_what_is_idle_may_stay() {
        let just_over = TIMEOUT + Duration::from_millis(1);
        for begun in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"PUT /", b"GET / HT"] {
            let head = Head::new();
            if !begun.is_empty() {
                head.read(begun);
            }
            assert!(late_after(&head, just_over).await, "{begun:?}");
        }
        let head = Head::new();
        head.read(&PREFACE[..10]);
        head.read(&PREFACE[10..]);
        assert!(!late_after(&head, TIMEOUT * 9).await, "HTTP/2");

        let head = Head::new();
        head.read(b"GET / HTTP/1.1\r\n\r\n");
        let request = head.request(false);
        assert!(!late_after(&head, TIMEOUT * 9).await, "a slow answer");
        drop(request);
        assert!(!late_after(&head, TIMEOUT * 9).await, "idle");
        // A byte now and then does not put it off.
        head.read(b"G");
        tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        head.read(b"E");
        assert!(late_after(&head, Duration::from_secs(2)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_came_with_the_head_before_are_a_head_too() {
        let just_over = TIMEOUT + Duration::from_millis(1);
        let head = Head::new();
        head.read(b"GET / HTTP/1.1\r\n\r\nGET /ver");
        drop(head.request(false));
        assert!(late_after(&head, just_over).await);

        let head = Head::new();
        head.read(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
        drop(head.request(true));
        assert!(!late_after(&head, just_over).await);
    }

    #[tokio::test(start_paused = true)]
    async fn http2_without_a_request_is_unused() {
        let unused_after = async |head: &Head, wait| {
            tokio::time::timeout(wait, head.unused(TIMEOUT)).await.is_ok()
        };
        let just_over = TIMEOUT + Duration::from_millis(1);
        let head = Head::new();
        head.read(PREFACE);
        let (one, two) = (head.request(false), head.request(false));
        drop(one);
        assert!(!unused_after(&head, TIMEOUT * 9).await, "a watch");
        drop(two);
        assert!(!unused_after(&head, TIMEOUT - Duration::from_secs(1)).await);
        assert!(unused_after(&head, Duration::from_secs(2)).await);

        let head = Head::new();
        head.read(b"GET / HTTP/1.1\r\n\r\n");
        drop(head.request(false));
        assert!(!unused_after(&head, just_over * 9).await, "HTTP/1.1");
    }
}
