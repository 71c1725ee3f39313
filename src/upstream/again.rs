//! What it takes to send a request a second time.
//!
//! HTTP says of some requests that they were not processed: one that an API server's GOAWAY overtook, for instance, which it sends with every answer to an
//! anonymous or unauthenticated request (semantics.md §8.8), on a connection that others share. Go's clients send such a request again, writes too; so
//! the head of each is kept, and its body as it is read, up to [`KEPT_BYTES_MAX`], until there is an answer. A longer body can't be had again, and then the
//! request's sender is told.
//!
//! Of its readers only the last may read: whoever sent the first one may still look at it, and is told that it broke off.
//!
//! Lock: that of the body kept, for one poll of it; nobody contends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;

use crate::upstream::{RequestBody, empty_body};

/// Most writes are objects of some kilobytes. As many requests as the connections carry at once (1,440) keep 90 MiB at most.
const KEPT_BYTES_MAX: usize = 64 * 1024;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A request as it was, to be made anew. Dropping it lets go of what was kept.
pub(super) struct Again {
    head: Request<()>,
    body: Option<Arc<Mutex<Kept>>>,
}

impl Again {
    /// The request to be sent, and what makes it anew.
    pub(super) fn of(request: Request<RequestBody>) -> (Request<RequestBody>, Self) {
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        head.headers_mut().clone_from(request.headers());
        if request.body().is_end_stream() {
            return (request, Self { head, body: None });
        }
        let (parts, source) = request.into_parts();
        let kept = Kept { source, chunks: Vec::new(), bytes: 0, is_whole: true, readers: 1 };
        let kept = Arc::new(Mutex::new(kept));
        let body = Keeping { kept: Arc::clone(&kept), reader: 1, given: 0 }.boxed_unsync();
        (Request::from_parts(parts, body), Self { head, body: Some(kept) })
    }

    /// The same request from its beginning, if all that was read of its body is still there.
    pub(super) fn request(&self) -> Option<Request<RequestBody>> {
        let body = match &self.body {
            None => empty_body(),
            Some(kept) => {
                let reader = kept.lock().next_reader()?;
                Keeping { kept: Arc::clone(kept), reader, given: 0 }.boxed_unsync()
            }
        };
        Some(self.head.clone().map(|()| body))
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        if let Some(kept) = &self.body {
            kept.lock().let_go();
        }
    }
}

/// A body, and what was read of it.
struct Kept {
    source: RequestBody,
    chunks: Vec<Bytes>,
    bytes: usize,
    /// Whether `chunks` is all that was read.
    is_whole: bool,
    /// How many have begun to read it; the last one may.
    readers: usize,
}

impl Kept {
    fn next_reader(&mut self) -> Option<usize> {
        self.readers += 1;
        self.is_whole.then_some(self.readers)
    }

    fn let_go(&mut self) {
        self.is_whole = false;
        self.chunks = Vec::new();
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        match frame.data_ref() {
            Some(data) if self.bytes + data.len() <= KEPT_BYTES_MAX => {
                self.bytes += data.len();
                self.chunks.push(data.clone());
            }
            // Too much, or trailers, which no client sends to an API server.
            _ => self.let_go(),
        }
    }
}

/// Reads a body that is kept, from its beginning.
struct Keeping {
    kept: Arc<Mutex<Kept>>,
    reader: usize,
    /// So many chunks were given.
    given: usize,
}

impl Body for Keeping {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let kept = &mut *this.kept.lock();
        if this.reader != kept.readers {
            return Poll::Ready(Some(Err("it is sent again".into())));
        }
        if let Some(chunk) = kept.chunks.get(this.given) {
            this.given += 1;
            return Poll::Ready(Some(Ok(Frame::data(chunk.clone()))));
        }
        let polled = ready!(Pin::new(&mut kept.source).poll_frame(context));
        match &polled {
            Some(Ok(frame)) if kept.is_whole => {
                kept.keep(frame);
                this.given = kept.chunks.len();
            }
            Some(Err(_)) => kept.let_go(),
            _ => {}
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        let kept = self.kept.lock();
        self.given >= kept.chunks.len() && kept.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.kept.lock();
        let left: usize = kept.chunks.iter().skip(self.given).map(Bytes::len).sum();
        let source = kept.source.size_hint();
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
    async fn a_body_is_had_again_from_wherever_it_was_left() {
        for read in 0..=4 {
            let (first, whole) = request(&[10, 1, 300, 7]);
            let (mut first, again) = Again::of(first);
            for _ in 0..read {
                first.body_mut().frame().await.unwrap().unwrap();
            }
            drop(again.request().unwrap());
            let second = again.request().unwrap();
            // It is not gone, and takes nothing any more.
            assert!(first.body_mut().frame().await.unwrap().is_err());
            assert_eq!((second.uri().path(), second.headers()["a"].as_bytes()), ("/x", &b"b"[..]));
            assert_eq!(rest(second).await, whole, "{read}");
        }
    }

    #[tokio::test]
    async fn its_length_is_told_anew() {
        let (mut first, again) =
            Again::of(Request::put("/x").body(crate::upstream::full_body("hello")).unwrap());
        assert_eq!(first.body().size_hint().exact(), Some(5));
        first.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(first.body().size_hint().exact(), Some(0));
        assert!(first.body().is_end_stream());
        drop(first);
        let second = again.request().unwrap();
        assert_eq!(
            (second.body().size_hint().exact(), second.body().is_end_stream()),
            (Some(5), false)
        );
        assert_eq!(rest(second).await, b"hello");
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_kept_and_passes_whole() {
        let (first, whole) = request(&[KEPT_BYTES_MAX, 1, 5]);
        let (mut first, again) = Again::of(first);
        first.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(again.body.as_ref().unwrap().lock().chunks.len(), 1);
        assert_eq!(rest(first).await, whole[KEPT_BYTES_MAX..]);
        assert!(again.body.as_ref().unwrap().lock().chunks.is_empty());
        assert!(again.request().is_none());
    }

    #[tokio::test]
    async fn nothing_is_kept_once_there_is_an_answer() {
        let (first, whole) = request(&[10, 20]);
        let (mut first, again) = Again::of(first);
        first.body_mut().frame().await.unwrap().unwrap();
        let kept = Arc::clone(again.body.as_ref().unwrap());
        drop(again);
        assert!(kept.lock().chunks.is_empty());
        assert_eq!(rest(first).await, whole[10..]);
        assert!(kept.lock().chunks.is_empty());
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_not_sent_again() {
        let frames = [Ok(Frame::data(Bytes::from("half"))), Err("of a test".into())];
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let (first, again) = Again::of(Request::post("/x").body(body).unwrap());
        assert!(first.into_body().collect().await.is_err());
        assert!(again.request().is_none());
    }
}
