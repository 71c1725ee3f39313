//! Watch frames in JSON: one event a line (semantics.md §5.2).

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::media_type::View;
use crate::api::resource_version::ResourceVersion;
use crate::codec::object::Object;

/// The type of a watch event that carries an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object is new to the watcher.
    Added,
    /// The object changed and was known to the watcher.
    Modified,
    /// The object is gone, or left the watcher's selector.
    Deleted,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A frame with the object's body as it is.
pub fn encode(event: EventType, object: &Object, _view: View) -> Bytes {
    frame(event.as_str(), &object.body)
}

/// Appends such a frame to a buffer, for many in one write.
pub fn encode_into(buffer: &mut Vec<u8>, event: EventType, object: &Object, _view: View) {
    frame_into(buffer, event.as_str(), &object.body);
}

/// A DELETED frame of an object that left a selector: the old body, the event's resourceVersion.
pub fn encode_left(object: &Object, resource_version: ResourceVersion, _view: View) -> Bytes {
    frame(EventType::Deleted.as_str(), &object.body_with_resource_version(resource_version))
}

/// An ERROR frame around a Status in compact JSON.
pub fn encode_error(status: &[u8]) -> Bytes {
    frame("ERROR", status)
}

pub(crate) fn frame(event: &str, object: &[u8]) -> Bytes {
    let mut buffer = Vec::with_capacity(object.len() + FRAME_OVERHEAD_BYTES);
    frame_into(&mut buffer, event, object);
    buffer.into()
}

fn frame_into(buffer: &mut Vec<u8>, event: &str, object: &[u8]) {
    buffer.extend_from_slice(br#"{"type":""#);
    buffer.extend_from_slice(event.as_bytes());
    buffer.extend_from_slice(br#"","object":"#);
    buffer.extend_from_slice(object);
    buffer.extend_from_slice(b"}\n");
}

/// One event as the upstream framed it. `Debug` shows no part of the object.
#[derive(Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`, or anything a future upstream may send.
    pub event: Box<str>,
    /// The bytes of `object`; a slice of the line, to be copied by whoever keeps it.
    pub object: Bytes,
}

impl std::fmt::Debug for RawFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawFrame").field("event", &self.event).finish_non_exhaustive()
    }
}

/// Why a stream of frames cannot be read on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// A line is not a watch event.
    #[error("the upstream sent a watch frame that cannot be read")]
    Malformed,
    /// A line is longer than the limit.
    #[error("the upstream sent a watch frame of more than {0} bytes")]
    TooLong(usize),
    /// The stream ended within a line.
    #[error("the upstream's watch ended within a frame")]
    Truncated,
}

/// Splits a byte stream into frames, wherever the stream's chunks may be cut.
#[derive(Debug)]
pub struct FrameSplitter {
    max_bytes: usize,
    /// The beginning of a line whose end has not come yet.
    partial: BytesMut,
}

impl FrameSplitter {
    /// One that refuses lines of more than `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, partial: BytesMut::new() }
    }

    /// Takes the next chunk and appends the frames that it completes.
    pub fn push(&mut self, mut chunk: Bytes, frames: &mut Vec<RawFrame>) -> Result<(), FrameError> {
        while let Some(end) = memchr::memchr(b'\n', &chunk) {
            let tail = chunk.split_to(end + 1);
            let line = if self.partial.is_empty() {
                tail
            } else {
                self.partial.extend_from_slice(&tail);
                self.partial.split().freeze()
            };
            self.check(line.len())?;
            if !line.trim_ascii().is_empty() {
                frames.push(read(&line)?);
            }
        }
        self.partial.extend_from_slice(&chunk);
        self.check(self.partial.len())
    }

    /// Ends the stream: an error if it ended within a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.partial.trim_ascii().is_empty() { Ok(()) } else { Err(FrameError::Truncated) }
    }

    fn check(&self, length: usize) -> Result<(), FrameError> {
        if length > self.max_bytes { Err(FrameError::TooLong(self.max_bytes)) } else { Ok(()) }
    }
}

fn read(line: &Bytes) -> Result<RawFrame, FrameError> {
    #[derive(Deserialize)]
    struct Frame<'a> {
        #[serde(rename = "type")]
        event: Box<str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let frame: Frame<'_> = serde_json::from_slice(line).map_err(|_| FrameError::Malformed)?;
    Ok(RawFrame { event: frame.event, object: line.slice_ref(frame.object.get().as_bytes()) })
}

/// `{"type":"MODIFIED","object":` and `}\n`, rounded up.
const FRAME_OVERHEAD_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_lines() {
        let object = crate::codec::json::tests::config_map("a", 9999);
        let body = String::from_utf8(object.body.to_vec()).unwrap();
        let frame = |event| format!("{{\"type\":\"{event}\",\"object\":{body}}}\n");
        assert_eq!(encode(EventType::Added, &object, View::Full), frame("ADDED"));
        assert_eq!(encode(EventType::Modified, &object, View::Full), frame("MODIFIED"));
        let left = encode_left(&object, ResourceVersion(10_000), View::Full);
        assert_eq!(left, frame("DELETED").replace("9999", "10000"));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let push = |text: &'static str| {
            FrameSplitter::new(64).push(Bytes::from_static(text.as_bytes()), &mut Vec::new())
        };
        assert_eq!(push("nonsense\n"), Err(FrameError::Malformed));
        assert_eq!(push("{\"type\":\"ADDED\"}\n"), Err(FrameError::Malformed));
        assert_eq!(push("\n\r\n"), Ok(()));
        let long = Bytes::from("x".repeat(65));
        assert_eq!(
            FrameSplitter::new(64).push(long, &mut Vec::new()),
            Err(FrameError::TooLong(64))
        );
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_says_so() {
        let mut splitter = FrameSplitter::new(64);
        splitter.push(Bytes::from_static(b"{\"type\":\"A"), &mut Vec::new()).unwrap();
        assert_eq!(splitter.finish(), Err(FrameError::Truncated));
    }

    proptest! {
        #[test]
        fn chunks_may_be_cut_anywhere(bodies in prop::collection::vec("[a-z\u{e9}]{0,9}", 1..9), cuts in prop::collection::vec(0usize..400, 0..9)) {
            let objects: Vec<_> = bodies.iter().map(|body| format!("{{\"k\":\"{body}\"}}")).collect();
            let stream: Vec<u8> =
                objects.iter().flat_map(|object| frame("MODIFIED", object.as_bytes()).to_vec()).collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut splitter = FrameSplitter::new(1024);
            let mut frames = Vec::new();
            for pair in cuts.windows(2) {
                splitter.push(Bytes::copy_from_slice(&stream[pair[0]..pair[1]]), &mut frames).unwrap();
            }
            splitter.finish().unwrap();
            let seen: Vec<_> = frames.iter().map(|frame| String::from_utf8(frame.object.to_vec()).unwrap()).collect();
            prop_assert_eq!(seen, objects);
            prop_assert!(frames.iter().all(|frame| &*frame.event == "MODIFIED"));
        }
    }
}
