//! Copies an answer while it is relayed. The client's bytes are not touched and do not wait: a copy
//! shares them, is bounded, and is dropped where there is no room.
//!
//! A copy ends with the answer. That of a watch is read while the watch goes on.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use tokio::sync::mpsc;

use crate::server::shadow::Shadow;
use crate::server::shadow::ledger::WATCH;
use crate::server::shadow::outcome::Cause;
use crate::server::shadow::request::{AnswerHead, Comparison, Copied, CopiedChunk, ShadowRequest};

pub(crate) struct AnswerCopy {
    shadow: Arc<Shadow>,
    /// `None` once the comparison has it.
    request: Option<Box<ShadowRequest>>,
    head: Option<AnswerHead>,
    chunks: Vec<CopiedChunk>,
    bytes: usize,
    stream: Option<ChunkStream>,
}

struct ChunkStream {
    sender: mpsc::Sender<CopiedChunk>,
    /// The room for the news that a chunk was lost.
    lost: mpsc::OwnedPermit<CopiedChunk>,
}

impl ChunkStream {
    fn open() -> (Option<Self>, mpsc::Receiver<CopiedChunk>) {
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let lost = sender.clone().try_reserve_owned().ok();
        (lost.map(|lost| Self { sender, lost }), receiver)
    }

    /// Sends a chunk. Returns `None` if nothing can follow.
    fn send(self, chunk: CopiedChunk) -> Option<Self> {
        match self.sender.try_send(chunk) {
            Ok(()) => Some(self),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lose();
                None
            }
            Err(mpsc::error::TrySendError::Closed(_)) => None,
        }
    }

    /// Ends the comparison of the watch, which then knows why.
    fn lose(self) {
        self.lost.send(CopiedChunk { bytes: Bytes::new(), claim: None });
    }
}

impl AnswerCopy {
    pub(crate) fn new(shadow: Arc<Shadow>, request: Box<ShadowRequest>) -> Self {
        Self {
            shadow,
            request: Some(request),
            head: None,
            chunks: Vec::new(),
            bytes: 0,
            stream: None,
        }
    }

    pub(crate) fn begin<B: Body>(&mut self, response: &Response<B>) {
        let Some(request) = &self.request else { return };
        let head = AnswerHead { status: response.status(), headers: response.headers().clone() };
        let is_watch = request.kind.verb == WATCH && head.status == StatusCode::OK;
        if is_watch && let Some(request) = self.request.take() {
            let (stream, receiver) = ChunkStream::open();
            self.stream = stream;
            let answer = Copied::Watch(head, receiver);
            self.shadow.submit(Comparison { request, answer });
            return;
        }
        self.head = Some(head);
        if response.body().is_end_stream() {
            self.end();
        }
    }

    /// Copies what a poll of the body returned.
    pub(crate) fn observe<E>(
        &mut self,
        polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
        is_ended: bool,
    ) {
        match polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => {}
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.copy(data);
                }
                if is_ended {
                    self.end();
                }
            }
        }
    }

    fn copy(&mut self, data: &Bytes) {
        if self.request.is_none() && self.stream.is_none() {
            return;
        }
        let Some(claim) = self.shadow.claim(data.len()) else {
            if let Some(stream) = self.stream.take() {
                stream.lose();
            }
            self.give_up(Cause::Busy);
            return;
        };
        let chunk = CopiedChunk { bytes: data.clone(), claim: Some(claim) };
        if let Some(stream) = self.stream.take() {
            self.stream = stream.send(chunk);
            return;
        }
        self.bytes += data.len();
        self.chunks.push(chunk);
        if self.bytes > COPY_BYTES_MAX {
            self.give_up(Cause::TooLarge);
        }
    }

    fn end(&mut self) {
        self.stream = None;
        let (Some(head), Some(request)) = (self.head.take(), self.request.take()) else { return };
        let chunks = std::mem::take(&mut self.chunks);
        let answer = Copied::Whole(head, chunks);
        self.shadow.submit(Comparison { request, answer });
    }

    fn give_up(&mut self, cause: Cause) {
        self.chunks = Vec::new();
        if let Some(request) = self.request.take() {
            self.shadow.count(&request, cause.into());
        }
    }
}

impl Drop for AnswerCopy {
    fn drop(&mut self) {
        let cause = if self.head.is_some() { Cause::Cut } else { Cause::UpstreamError };
        self.give_up(cause);
    }
}

/// The most chunks of a watch that wait for its comparison.
const CHUNKS_MAX: usize = 4096;

/// The longest copy: a list of some thousand pods.
pub(crate) const COPY_BYTES_MAX: usize = 32 << 20;
