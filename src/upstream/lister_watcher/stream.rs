//! An upstream watch as events, and a list in JSON as it comes, which reads like the initial events of one.
//!
//! A task of its own reads the body, splits it into frames or items and ingests them into a buffer, whatever the reflector is
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
use crate::codec::list::ListReader;
use crate::codec::{bookmark, ingest};
use crate::upstream::error::{UpstreamError, chain};
use crate::upstream::pool;
use crate::upstream::status::status_error;

/// etcd takes objects of up to 1.5 MiB and is often set to 3 MiB; escaped as JSON they grow a few times over.
const OBJECT_MAX_BYTES: usize = 16 * 1024 * 1024;
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
    /// Reads a watch.
    pub(super) fn watch(
        body: pool::Body,
        resource: Arc<ApiResource>,
        representation: Representation,
    ) -> Self {
        let splitter = FrameSplitter::new(representation.encoding(), OBJECT_MAX_BYTES);
        Self::start(body, resource, representation, Form::Watch(splitter, Vec::new()))
    }

    /// Reads a list in JSON.
    pub(super) fn list(body: pool::Body, resource: Arc<ApiResource>) -> Self {
        let form = Form::List(ListReader::new(OBJECT_MAX_BYTES));
        Self::start(body, resource, Representation::Json, form)
    }

    fn start(
        body: pool::Body,
        resource: Arc<ApiResource>,
        representation: Representation,
        form: Form,
    ) -> Self {
        let buffer = Arc::new(Buffer::default());
        let reader = Reader { resource, representation, form };
        let reader = tokio::spawn(run(body, reader, buffer.clone())).abort_handle();
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

/// Turns a body's chunks into events.
struct Reader {
    resource: Arc<ApiResource>,
    representation: Representation,
    form: Form,
}

/// What a body is.
enum Form {
    /// A watch; what was split and is not read yet.
    Watch(FrameSplitter, Vec<RawFrame>),
    /// A list in JSON.
    List(ListReader),
}

async fn run(body: pool::Body, reader: Reader, buffer: Arc<Buffer>) {
    let ending = Ending(buffer.clone());
    let end = read(body, reader, &buffer).await;
    ending.set(end);
}

async fn read(
    mut body: pool::Body,
    mut reader: Reader,
    buffer: &Buffer,
) -> Result<(), UpstreamError> {
    let mut events = Vec::new();
    loop {
        let mut next = body.frame().await;
        let mut bytes = 0;
        // All that is there already goes into the same batch.
        let outcome = loop {
            let chunk = match next {
                Some(Ok(frame)) => frame.into_data().unwrap_or_else(|_| Bytes::new()),
                Some(Err(error)) => break Some(Err(UpstreamError::Lost(chain(&error)))),
                None => break Some(reader.finish(&mut events)),
            };
            bytes += chunk.len();
            if let Err(error) = reader.push(chunk, &mut events) {
                break Some(Err(error));
            }
            if bytes >= BATCH_MAX_BYTES {
                break None;
            }
            match body.frame().now_or_never() {
                Some(more) => next = more,
                None => break None,
            }
        };
        buffer.put(&mut events, bytes);
        if let Some(end) = outcome {
            return end;
        }
        while buffer.state.lock().bytes >= BUFFER_MAX_BYTES {
            buffer.emptied.notified().await;
        }
    }
}

impl Buffer {
    /// Hands over what was read, if it is anything.
    fn put(&self, events: &mut Vec<UpstreamEvent>, bytes: usize) {
        if events.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.events.append(events);
        state.bytes += bytes;
        drop(state);
        self.filled.notify_one();
    }
}

impl Reader {
    /// Appends the events of a chunk, up to the first that can't be read.
    fn push(&mut self, chunk: Bytes, events: &mut Vec<UpstreamEvent>) -> Result<(), UpstreamError> {
        let Self { resource, representation, form } = self;
        match form {
            Form::Watch(splitter, frames) => {
                let split = splitter.push(chunk, frames);
                for frame in frames.drain(..) {
                    events.push(event(&frame, resource, *representation)?);
                }
                split.map_err(|error| malformed(&error))
            }
            Form::List(reader) => {
                let take = |object| events.push(UpstreamEvent::Upsert(object));
                reader.push(&chunk, resource, take).map_err(|error| malformed(&error))
            }
        }
    }

    /// Ends the body, a list by the event that says so.
    fn finish(&self, events: &mut Vec<UpstreamEvent>) -> Result<(), UpstreamError> {
        match &self.form {
            Form::Watch(splitter, _) => splitter.finish().map_err(|error| malformed(&error)),
            Form::List(reader) => {
                let page = reader.finish(&self.resource).map_err(|error| malformed(&error))?;
                if !page.continue_token.is_empty() {
                    return Err(malformed(&"a page of a list, though all of it was asked for"));
                }
                let resource_version = page.resource_version;
                let object = Bytes::new();
                events.push(UpstreamEvent::Bookmark {
                    resource_version,
                    initial_events_end: true,
                    object,
                });
                Ok(())
            }
        }
    }
}

fn malformed(error: &dyn std::fmt::Display) -> UpstreamError {
    UpstreamError::Malformed(error.to_string())
}

/// What a frame says.
fn event(
    frame: &RawFrame,
    resource: &ApiResource,
    representation: Representation,
) -> Result<UpstreamEvent, UpstreamError> {
    let object = || {
        ingest::object(&frame.object, resource, representation).map_err(|error| malformed(&error))
    };
    match &*frame.event {
        "ADDED" | "MODIFIED" => object().map(UpstreamEvent::Upsert),
        "DELETED" => object().map(UpstreamEvent::Delete),
        "BOOKMARK" => {
            let (resource_version, initial_events_end) =
                bookmark::read(&frame.object).ok_or_else(|| malformed(&"a bookmark"))?;
            // Copied: a slice would keep the whole chunk that it came in.
            let object = Bytes::copy_from_slice(&frame.object);
            Ok(UpstreamEvent::Bookmark { resource_version, initial_events_end, object })
        }
        "ERROR" => {
            Ok(UpstreamEvent::Error(status_error(&frame.object, StatusCode::INTERNAL_SERVER_ERROR)))
        }
        _ => Err(malformed(&"a watch event of an unknown type")),
    }
}
