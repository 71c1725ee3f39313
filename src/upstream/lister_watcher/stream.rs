//! An upstream watch as events.
//!
//! A task of its own reads the body, splits it into frames and ingests them into a buffer, whatever the reflector is
//! doing: small frames that nobody reads count against the whole connection (crates.md, pitfall 2). The buffer is bounded in bytes;
//! beyond that the stream's flow control holds the upstream back.
//!
//! Lock: the buffer's, for a few instructions.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{UpstreamEvent, WatchStream};
use crate::api::resource::{ApiResource, Representation};
use crate::codec::frame::{FrameSplitter, RawFrame};
use crate::codec::{bookmark, ingest};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::fetch::status_error;
use crate::upstream::pool;

/// etcd takes objects of up to 1.5 MiB and is often set to 3 MiB; escaped as JSON they grow a few times over.
const FRAME_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Ingested bytes that may wait for the reflector. The initial events of a large collection come faster than they are applied.
const BUFFER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most that is ingested before the events are handed over.
const BATCH_MAX_BYTES: usize = 1024 * 1024;

/// See the module. Dropping it cancels the watch.
pub struct HttpWatch {
    buffer: Arc<Buffer>,
    reader: AbortHandle,
}

#[derive(Default)]
struct Buffer {
    state: Mutex<State>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    events: Vec<UpstreamEvent>,
    bytes: usize,
    end: Option<Result<(), UpstreamError>>,
}

impl HttpWatch {
    pub(super) fn start(
        body: pool::Body,
        resource: Arc<ApiResource>,
        representation: Representation,
    ) -> Self {
        let buffer = Arc::new(Buffer::default());
        let ingest = Ingest { resource, representation };
        let reader = tokio::spawn(run(body, ingest, buffer.clone())).abort_handle();
        Self { buffer, reader }
    }
}

impl WatchStream for HttpWatch {
    async fn next(&mut self) -> Result<Option<Vec<UpstreamEvent>>, UpstreamError> {
        loop {
            {
                let mut state = self.buffer.state.lock();
                if !state.events.is_empty() {
                    state.bytes = 0;
                    self.buffer.emptied.notify_one();
                    return Ok(Some(std::mem::take(&mut state.events)));
                }
                match &state.end {
                    Some(Ok(())) => return Ok(None),
                    Some(Err(error)) => return Err(error.clone()),
                    None => {}
                }
            }
            // One reader: a notification that came since the lock was released is kept.
            self.buffer.filled.notified().await;
        }
    }
}

impl Drop for HttpWatch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Says how a watch ended even if its reader panics or is aborted.
struct Ending(Arc<Buffer>);

impl Ending {
    fn set(&self, end: Result<(), UpstreamError>) {
        self.0.state.lock().end.get_or_insert(end);
        self.0.filled.notify_one();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.set(Err(UpstreamError::Lost("its reader stopped".to_owned())));
    }
}

/// What the frames' objects are.
struct Ingest {
    resource: Arc<ApiResource>,
    representation: Representation,
}

async fn run(body: pool::Body, ingest: Ingest, buffer: Arc<Buffer>) {
    let ending = Ending(buffer.clone());
    let end = read(body, &ingest, &buffer).await;
    ending.set(end);
}

async fn read(mut body: pool::Body, ingest: &Ingest, buffer: &Buffer) -> Result<(), UpstreamError> {
    let mut splitter = FrameSplitter::new(ingest.representation.encoding(), FRAME_MAX_BYTES);
    let malformed = |error: &dyn std::fmt::Display| UpstreamError::Malformed(error.to_string());
    let mut frames = Vec::new();
    loop {
        let mut next = body.frame().await;
        let mut bytes = 0;
        // All that is there already goes into the same batch.
        let outcome = loop {
            let chunk = match next {
                Some(Ok(frame)) => frame.into_data().unwrap_or_else(|_| Bytes::new()),
                Some(Err(error)) => break Some(Err(UpstreamError::Lost(chain(&error)))),
                None => break Some(splitter.finish().map_err(|error| malformed(&error))),
            };
            bytes += chunk.len();
            if let Err(error) = splitter.push(chunk, &mut frames) {
                break Some(Err(malformed(&error)));
            }
            if bytes >= BATCH_MAX_BYTES {
                break None;
            }
            match body.frame().now_or_never() {
                Some(more) => next = more,
                None => break None,
            }
        };
        ingest.frames(&mut frames, buffer, bytes)?;
        if let Some(end) = outcome {
            return end;
        }
        while buffer.state.lock().bytes >= BUFFER_MAX_BYTES {
            buffer.emptied.notified().await;
        }
    }
}

impl Ingest {
    /// Turns frames into events and hands over those before the first that can't be read.
    fn frames(
        &self,
        frames: &mut Vec<RawFrame>,
        buffer: &Buffer,
        bytes: usize,
    ) -> Result<(), UpstreamError> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut events = Vec::with_capacity(frames.len());
        let mut failed = Ok(());
        for frame in frames.drain(..) {
            match self.event(&frame) {
                Ok(event) => events.push(event),
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        let mut state = buffer.state.lock();
        state.events.append(&mut events);
        state.bytes += bytes;
        drop(state);
        buffer.filled.notify_one();
        failed
    }

    fn event(&self, frame: &RawFrame) -> Result<UpstreamEvent, UpstreamError> {
        let object = || {
            ingest::object(&frame.object, &self.resource, self.representation)
                .map_err(|error| UpstreamError::Malformed(error.to_string()))
        };
        match &*frame.event {
            "ADDED" | "MODIFIED" => object().map(UpstreamEvent::Upsert),
            "DELETED" => object().map(UpstreamEvent::Delete),
            "BOOKMARK" => {
                let (resource_version, initial_events_end) = bookmark::read(&frame.object)
                    .ok_or_else(|| UpstreamError::Malformed("a bookmark".to_owned()))?;
                // Copied: a slice would keep the whole chunk that it came in.
                let object = Bytes::copy_from_slice(&frame.object);
                Ok(UpstreamEvent::Bookmark { resource_version, initial_events_end, object })
            }
            "ERROR" => Ok(UpstreamEvent::Error(status_error(
                &frame.object,
                StatusCode::INTERNAL_SERVER_ERROR,
            ))),
            _ => Err(UpstreamError::Malformed("a watch event of an unknown type".to_owned())),
        }
    }
}
