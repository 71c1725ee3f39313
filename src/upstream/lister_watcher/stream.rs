//! Decodes the body of a watch into events, or the body of a list in JSON, while it arrives, into
//! events like the initial events of a watch.
//!
//! A task reads the body, splits it into frames or list items, and ingests them into a buffer,
//! independently of the reflector: h2 ends a connection with too many small unread frames. The
//! buffer is bounded in bytes; when it is full, the stream's flow control stops the upstream.
//!
//! Lock: that of the buffer, held for a few instructions.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::list_watch::{Answer, UpstreamEvent, WatchStream};
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::codec::frame::{FrameSplitter, FrameType, RawFrame};
use crate::codec::gzip::MembersReader;
use crate::codec::list::ListReader;
use crate::codec::{bookmark, ingest};
use crate::upstream::bounded::is_gzip;
use crate::upstream::endpoints::ApiServer;
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::pool;
use crate::upstream::status::status_error;

/// The largest object. etcd accepts 1.5 MiB by default and is often configured for 3 MiB; escaping
/// in JSON makes six bytes of one.
const OBJECT_MAX_BYTES: usize = 32 * 1024 * 1024;
/// The most ingested bytes that wait for the reflector. The initial events of a large collection
/// arrive faster than they are applied.
const BUFFER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most bytes that are ingested before the events are passed on.
const BATCH_MAX_BYTES: usize = 1024 * 1024;

/// The events of a watch or list. Dropping it cancels the request.
pub(super) struct HttpWatch {
    buffer: Arc<Buffer>,
    task: AbortHandle,
    /// The API server, if the watch should leave it when it shuts down.
    server: Option<Arc<ApiServer>>,
    /// When the first of the events that were returned last was read.
    received: Option<Instant>,
    /// Whether the body is compressed; `None` if it was not asked for.
    is_compressed: Option<bool>,
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
    /// When the first of them was read.
    received: Option<Instant>,
    bytes: usize,
    end: Option<Result<(), UpstreamError>>,
}

impl HttpWatch {
    /// Reads a watch, which may be compressed. `accepts_gzip` says whether that was asked for.
    pub(super) fn watch(
        response: Response<pool::Body>,
        resource: Arc<ApiResource>,
        representation: Representation,
        accepts_gzip: bool,
    ) -> Self {
        let splitter = FrameSplitter::new(representation.encoding(), OBJECT_MAX_BYTES);
        let format = BodyFormat::Watch(splitter, Vec::new());
        let is_compressed = accepts_gzip.then(|| is_gzip(response.headers()));
        let mut watch = Self::start(response, resource, representation, format);
        watch.is_compressed = is_compressed;
        watch
    }

    /// Ends the watch when it should leave `server`, after the events that have arrived.
    pub(super) fn leaving(mut self, server: Option<Arc<ApiServer>>) -> Self {
        self.server = server;
        self
    }

    /// Reads a list in JSON, which may be compressed.
    pub(super) fn list(response: Response<pool::Body>, resource: Arc<ApiResource>) -> Self {
        let format = BodyFormat::List(ListReader::new(OBJECT_MAX_BYTES));
        Self::start(response, resource, Representation::Json, format)
    }

    fn start(
        response: Response<pool::Body>,
        resource: Arc<ApiResource>,
        representation: Representation,
        format: BodyFormat,
    ) -> Self {
        let buffer = Arc::new(Buffer::default());
        let members = is_gzip(response.headers()).then(MembersReader::default);
        let body = response.into_body();
        let decoder = Decoder { members, resource, representation, format };
        let task = tokio::spawn(run(body, decoder, buffer.clone())).abort_handle();
        Self { buffer, task, server: None, received: None, is_compressed: None }
    }
}

impl WatchStream for HttpWatch {
    fn next(&mut self) -> Answer<'_, Option<Vec<UpstreamEvent>>> {
        Box::pin(async move {
            loop {
                {
                    let mut state = self.buffer.state.lock();
                    if !state.events.is_empty() {
                        state.bytes = 0;
                        self.received = state.received.take();
                        self.buffer.emptied.notify_one();
                        return Ok(Some(std::mem::take(&mut state.events)));
                    }
                    match &state.end {
                        Some(Ok(())) => return Ok(None),
                        Some(Err(error)) => return Err(error.clone()),
                        None => {}
                    }
                }
                // `Notify` keeps a notification that came after the lock was released. There is
                // only one waiter.
                let filled = self.buffer.filled.notified();
                let Some(server) = &self.server else {
                    filled.await;
                    continue;
                };
                tokio::select! {
                    biased;
                    () = filled => {}
                    () = server.until_departed() => return Ok(None),
                }
            }
        })
    }

    fn received(&self) -> Option<Instant> {
        self.received
    }

    fn is_compressed(&self) -> Option<bool> {
        self.is_compressed
    }
}

impl Drop for HttpWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sets the end of the stream, even if the task panics or is aborted.
struct EndGuard(Arc<Buffer>);

impl EndGuard {
    fn set(&self, end: Result<(), UpstreamError>) {
        self.0.state.lock().end.get_or_insert(end);
        self.0.filled.notify_one();
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.set(Err(UpstreamError::Lost("the task that reads it stopped".to_owned())));
    }
}

/// Decodes the chunks of a body into events.
struct Decoder {
    /// Set if the body is compressed.
    members: Option<MembersReader>,
    resource: Arc<ApiResource>,
    representation: Representation,
    format: BodyFormat,
}

enum BodyFormat {
    /// A watch, and the frames that are not decoded yet.
    Watch(FrameSplitter, Vec<RawFrame>),
    /// A list in JSON.
    List(ListReader),
}

async fn run(body: pool::Body, decoder: Decoder, buffer: Arc<Buffer>) {
    let guard = EndGuard(buffer.clone());
    let end = read(body, decoder, &buffer).await;
    guard.set(end);
}

async fn read(
    mut body: pool::Body,
    mut decoder: Decoder,
    buffer: &Buffer,
) -> Result<(), UpstreamError> {
    let mut events = Vec::new();
    loop {
        let mut next = body.frame().await;
        let mut received = Instant::now();
        let mut bytes = 0;
        // Everything that has already arrived goes into the same batch.
        let end = 'batch: loop {
            let mut chunk = match next {
                Some(Ok(frame)) => frame.into_data().unwrap_or_else(|_| Bytes::new()),
                Some(Err(error)) => break Some(Err(UpstreamError::Lost(chain(&error)))),
                None => break Some(decoder.finish(&mut events)),
            };
            while !chunk.is_empty() {
                match decoder.take_piece(&mut chunk, &mut events) {
                    Ok(plain) => bytes += plain,
                    Err(error) => break 'batch Some(Err(error)),
                }
                if bytes >= BATCH_MAX_BYTES {
                    buffer.put(&mut events, std::mem::take(&mut bytes), received).await;
                    // The reflector may wait for this thread.
                    tokio::task::yield_now().await;
                    received = Instant::now();
                }
            }
            match body.frame().now_or_never() {
                Some(more) => next = more,
                None => break None,
            }
        };
        buffer.put(&mut events, bytes, received).await;
        if let Some(end) = end {
            return end;
        }
    }
}

impl Buffer {
    /// Appends `events`, if there are any, which were read at `received`, and wakes the reflector.
    /// Waits while the buffer is full.
    async fn put(&self, events: &mut Vec<UpstreamEvent>, bytes: usize, received: Instant) {
        if !events.is_empty() {
            let mut state = self.state.lock();
            state.events.append(events);
            state.bytes += bytes;
            state.received.get_or_insert(received);
            drop(state);
            self.filled.notify_one();
        }
        while self.state.lock().bytes >= BUFFER_MAX_BYTES {
            self.emptied.notified().await;
        }
    }
}

impl Decoder {
    /// Takes a piece of a chunk, all of it if it is not compressed. Appends its events, up to the
    /// first that cannot be decoded. Returns the length of the decompressed piece.
    fn take_piece(
        &mut self,
        chunk: &mut Bytes,
        events: &mut Vec<UpstreamEvent>,
    ) -> Result<usize, UpstreamError> {
        let plain = MembersReader::take_piece(&mut self.members, chunk)
            .map_err(|error| malformed(&error))?;
        let bytes = plain.len();
        self.decode(plain, events)?;
        Ok(bytes)
    }

    fn decode(
        &mut self,
        chunk: Bytes,
        events: &mut Vec<UpstreamEvent>,
    ) -> Result<(), UpstreamError> {
        let Self { resource, representation, format, .. } = self;
        match format {
            BodyFormat::Watch(splitter, frames) => {
                let split = splitter.push(chunk, frames);
                for frame in frames.drain(..) {
                    events.push(event(&frame, resource, *representation)?);
                }
                split.map_err(|error| malformed(&error))
            }
            BodyFormat::List(reader) => {
                let take = |object| events.push(UpstreamEvent::upsert(object));
                let pushed = reader.push(&chunk, resource, Representation::Json, take);
                pushed.map_err(|error| malformed(&error))
            }
        }
    }

    fn is_within_member(&self) -> bool {
        self.members.as_ref().is_some_and(|members| !members.is_between_members())
    }

    /// Checks that the body is complete. Appends a bookmark at the end of a list.
    fn finish(&self, events: &mut Vec<UpstreamEvent>) -> Result<(), UpstreamError> {
        match &self.format {
            // The connection was cut. The part of a frame that arrived says nothing of its object.
            BodyFormat::Watch(splitter, _) => {
                splitter.finish().map_err(|error| UpstreamError::Lost(error.to_string()))
            }
            BodyFormat::List(reader) if reader.is_within() || self.is_within_member() => {
                Err(UpstreamError::Lost("the list ended before its end".to_owned()))
            }
            BodyFormat::List(reader) => {
                let page = reader.finish().map_err(|error| malformed(&error))?;
                if !page.continue_token.is_empty() {
                    return Err(malformed(&"a page instead of the whole list"));
                }
                events.push(end_of_list(page.resource_version));
                Ok(())
            }
        }
    }
}

/// Returns the bookmark at the end of a list.
fn end_of_list(resource_version: ResourceVersion) -> UpstreamEvent {
    UpstreamEvent::Bookmark { resource_version, initial_events_end: true, object: Bytes::new() }
}

fn malformed(error: &dyn std::fmt::Display) -> UpstreamError {
    UpstreamError::Malformed(error.to_string())
}

/// Decodes a frame.
fn event(
    frame: &RawFrame,
    resource: &ApiResource,
    representation: Representation,
) -> Result<UpstreamEvent, UpstreamError> {
    let object = || {
        let read = ingest::any_object(&frame.object, resource, representation);
        read.map_err(|error| malformed(&error))
    };
    match frame.event {
        FrameType::Added | FrameType::Modified => object().map(UpstreamEvent::upsert),
        FrameType::Deleted => object().map(UpstreamEvent::delete),
        FrameType::Bookmark => {
            let (resource_version, initial_events_end) =
                bookmark::read(&frame.object).ok_or_else(|| malformed(&"a bookmark"))?;
            // Copied, because a slice would keep the whole chunk in memory.
            let object = Bytes::copy_from_slice(&frame.object);
            Ok(UpstreamEvent::Bookmark { resource_version, initial_events_end, object })
        }
        FrameType::Error => {
            Ok(UpstreamEvent::Error(status_error(&frame.object, StatusCode::INTERNAL_SERVER_ERROR)))
        }
    }
}
