//! Buffered requests, so that they can be sent again.
//!
//! HTTP marks some requests as not processed, for instance one that crosses a GOAWAY of the API
//! server, which it sends with every response to an anonymous or unauthenticated request
//! (`docs/semantics.md` §8.8), on a connection that other requests share. Go's clients repeat such
//! a request, writes included. Therefore the head of each request is kept, and its body is buffered
//! while it is read, up to [`BUFFER_MAX_BYTES`], until the response arrives. A longer body cannot
//! be repeated: the sender then gets an error (`docs/decisions/request-retries.md`).
//!
//! Only the body of the newest attempt can be read. The body of an earlier attempt, which its
//! connection may still hold, returns an error.
//!
//! Lock: that of the buffer, held for one poll of the body and not contended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;

use crate::upstream::request_body::{RequestBody, empty_body};

/// The most that is buffered of one body. Most writes are objects of a few kilobytes. 1,440
/// requests, the most that the connections carry at once, buffer 90 MiB at most.
const BUFFER_MAX_BYTES: usize = 64 * 1024;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A request that can be repeated. Dropping it discards the buffered body.
pub(super) struct Replay {
    head: Request<()>,
    body: Option<Arc<Mutex<ReplayBuffer>>>,
}

impl Replay {
    /// Returns the request to send first, and the replay that repeats it.
    pub(super) fn new(request: Request<RequestBody>) -> (Request<RequestBody>, Self) {
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        head.headers_mut().clone_from(request.headers());
        if request.body().is_end_stream() {
            return (request, Self { head, body: None });
        }
        let (parts, source) = request.into_parts();
        let buffer =
            ReplayBuffer { source, chunks: Vec::new(), bytes: 0, is_complete: true, attempts: 1 };
        let buffer = Arc::new(Mutex::new(buffer));
        let body =
            ReplayBody { buffer: Arc::clone(&buffer), attempt: 1, chunks_read: 0 }.boxed_unsync();
        (Request::from_parts(parts, body), Self { head, body: Some(buffer) })
    }

    /// Returns the request again, or `None` if a part of its body was read and not buffered.
    pub(super) fn next_request(&self) -> Option<Request<RequestBody>> {
        let body = match &self.body {
            None => empty_body(),
            Some(buffer) => {
                let attempt = buffer.lock().next_attempt()?;
                ReplayBody { buffer: Arc::clone(buffer), attempt, chunks_read: 0 }.boxed_unsync()
            }
        };
        Some(self.head.clone().map(|()| body))
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if let Some(buffer) = &self.body {
            buffer.lock().discard();
        }
    }
}

/// A body, and the chunks that were read from it.
struct ReplayBuffer {
    source: RequestBody,
    chunks: Vec<Bytes>,
    bytes: usize,
    /// Whether `chunks` holds everything that was read.
    is_complete: bool,
    /// The number of attempts to send the body. Only the newest may read.
    attempts: usize,
}

impl ReplayBuffer {
    fn next_attempt(&mut self) -> Option<usize> {
        self.attempts += 1;
        self.is_complete.then_some(self.attempts)
    }

    fn discard(&mut self) {
        self.is_complete = false;
        self.chunks = Vec::new();
    }

    fn push(&mut self, frame: &Frame<Bytes>) {
        match frame.data_ref() {
            Some(data) if self.bytes + data.len() <= BUFFER_MAX_BYTES => {
                self.bytes += data.len();
                self.chunks.push(data.clone());
            }
            // The body is too long, or has trailers, which no client sends to an API server.
            _ => self.discard(),
        }
    }
}

/// The request body of one attempt: the buffered chunks, then the rest of the source.
struct ReplayBody {
    buffer: Arc<Mutex<ReplayBuffer>>,
    attempt: usize,
    /// The number of buffered chunks that were returned.
    chunks_read: usize,
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let buffer = &mut *this.buffer.lock();
        if this.attempt != buffer.attempts {
            return Poll::Ready(Some(Err("the request is sent again".into())));
        }
        if let Some(chunk) = buffer.chunks.get(this.chunks_read) {
            this.chunks_read += 1;
            return Poll::Ready(Some(Ok(Frame::data(chunk.clone()))));
        }
        let polled = ready!(Pin::new(&mut buffer.source).poll_frame(context));
        match &polled {
            Some(Ok(frame)) if buffer.is_complete => {
                buffer.push(frame);
                this.chunks_read = buffer.chunks.len();
            }
            Some(Err(_)) => buffer.discard(),
            _ => {}
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        let buffer = self.buffer.lock();
        self.chunks_read >= buffer.chunks.len() && buffer.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let buffer = self.buffer.lock();
        let left: usize = buffer.chunks.iter().skip(self.chunks_read).map(Bytes::len).sum();
        let source = buffer.source.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(source.lower() + left as u64);
        if let Some(upper) = source.upper() {
            hint.set_upper(upper + left as u64);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;

    use super::*;

    fn request(chunks: &[usize]) -> (Request<RequestBody>, Vec<u8>) {
        let chunks: Vec<_> = chunks.iter().map(|length| vec![*length as u8; *length]).collect();
        let whole = chunks.concat();
        let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(Bytes::from(chunk))));
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        (Request::post("/x").header("a", "b").body(body).unwrap(), whole)
    }

    async fn rest(request: Request<RequestBody>) -> Vec<u8> {
        request.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_body_is_replayed_however_much_of_it_was_read() {
        for read in 0..=4 {
            let (first, whole) = request(&[10, 1, 300, 7]);
            let (mut first, replay) = Replay::new(first);
            for _ in 0..read {
                first.body_mut().frame().await.unwrap().unwrap();
            }
            drop(replay.next_request().unwrap());
            let second = replay.next_request().unwrap();
            // The first attempt's body still exists, but can no longer be read.
            assert!(first.body_mut().frame().await.unwrap().is_err());
            assert_eq!((second.uri().path(), second.headers()["a"].as_bytes()), ("/x", &b"b"[..]));
            assert_eq!(rest(second).await, whole, "{read}");
        }
    }

    #[tokio::test]
    async fn a_replayed_body_has_its_whole_length() {
        let (mut first, replay) = Replay::new(
            Request::put("/x").body(crate::upstream::request_body::full_body("hello")).unwrap(),
        );
        assert_eq!(first.body().size_hint().exact(), Some(5));
        first.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(first.body().size_hint().exact(), Some(0));
        assert!(first.body().is_end_stream());
        drop(first);
        let second = replay.next_request().unwrap();
        assert_eq!(
            (second.body().size_hint().exact(), second.body().is_end_stream()),
            (Some(5), false)
        );
        assert_eq!(rest(second).await, b"hello");
    }

    #[tokio::test]
    async fn a_long_body_is_sent_whole_and_not_buffered() {
        let (first, whole) = request(&[BUFFER_MAX_BYTES, 1, 5]);
        let (mut first, replay) = Replay::new(first);
        first.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(replay.body.as_ref().unwrap().lock().chunks.len(), 1);
        assert_eq!(rest(first).await, whole[BUFFER_MAX_BYTES..]);
        assert!(replay.body.as_ref().unwrap().lock().chunks.is_empty());
        assert!(replay.next_request().is_none());
    }

    #[tokio::test]
    async fn a_dropped_replay_discards_the_buffer() {
        let (first, whole) = request(&[10, 20]);
        let (mut first, replay) = Replay::new(first);
        first.body_mut().frame().await.unwrap().unwrap();
        let buffer = Arc::clone(replay.body.as_ref().unwrap());
        drop(replay);
        assert!(buffer.lock().chunks.is_empty());
        assert_eq!(rest(first).await, whole[10..]);
        assert!(buffer.lock().chunks.is_empty());
    }

    #[tokio::test]
    async fn a_body_that_fails_is_not_replayed() {
        let frames = [Ok(Frame::data(Bytes::from("half"))), Err("a test error".into())];
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let (first, replay) = Replay::new(Request::post("/x").body(body).unwrap());
        assert!(first.into_body().collect().await.is_err());
        assert!(replay.next_request().is_none());
    }
}
