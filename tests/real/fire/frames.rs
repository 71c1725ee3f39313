//! The frames of a watch: as much of them as the checks need.

use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;

use super::client::Metadata;
use super::reference::{Change, Kind};

/// One frame.
pub(super) enum Frame {
    Event(Change),
    Bookmark {
        at: u64,
        /// Whether it ends the initial events.
        ends_initial: bool,
    },
    /// The code of the Status.
    Error(u16),
}

/// Splits a body into frames. A broken connection counts as a clean end, and a partial frame is
/// dropped, as at any client.
pub(super) struct Frames {
    resource: usize,
    body: Pin<Box<dyn Stream<Item = Result<Bytes, kube::Error>> + Send>>,
    buffer: Vec<u8>,
}

impl Frames {
    pub(super) fn new(resource: usize, response: Response<Body>) -> Self {
        let body = Box::pin(response.into_body().into_data_stream());
        Self { resource, body, buffer: Vec::new() }
    }

    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(self.parse(&line));
            }
            self.buffer.extend_from_slice(&self.body.next().await?.ok()?);
        }
    }

    fn parse(&self, line: &[u8]) -> Frame {
        let message: Message = serde_json::from_slice(line).expect("a frame is JSON");
        let metadata = &message.object.metadata;
        let kind = match &*message.kind {
            "ADDED" => Kind::Added,
            "MODIFIED" => Kind::Modified,
            "DELETED" => Kind::Deleted,
            "BOOKMARK" => {
                let ends_initial = metadata.annotations.contains_key("k8s.io/initial-events-end");
                return Frame::Bookmark { at: metadata.version(), ends_initial };
            }
            _ => return Frame::Error(message.object.code),
        };
        let key = format!("{}/{}/{}", self.resource, metadata.namespace, metadata.name).into();
        Frame::Event(Change { revision: metadata.version(), kind, key })
    }
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    code: u16,
}
