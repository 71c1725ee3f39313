//! Frames of watches in JSON and in protobuf, parsed by a parser that is independent of Weir's.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::progress::field;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// `ADDED` and so on.
    pub(crate) event: String,
    /// The object's resourceVersion; 0 if it has none.
    pub(crate) revision: u64,
    /// Whether it is the bookmark that ends the initial state.
    pub(crate) ends_state: bool,
    /// `namespace/name`, which is the order of lists.
    pub(crate) key: String,
    /// The rest of the frame after its type: the object in its envelope.
    pub(crate) object: Bytes,
    /// The frame with its framing, for messages and for errors.
    pub(crate) bytes: Bytes,
}

/// Splits the body of a watch into frames. A cut connection counts as a clean end; a partial frame
/// is dropped.
pub(crate) struct Frames {
    body: Incoming,
    buffer: Vec<u8>,
    protobuf: bool,
}

impl Frames {
    pub(crate) fn new(response: Response<Incoming>) -> Self {
        let form = response.headers().get("content-type").map(|value| value.as_bytes().to_vec());
        let protobuf =
            form.is_some_and(|form| form.starts_with(b"application/vnd.kubernetes.proto"));
        Self { body: response.into_body(), buffer: Vec::new(), protobuf }
    }

    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(length) = self.whole() {
                let frame: Bytes = self.buffer.drain(..length).collect::<Vec<_>>().into();
                return Some(if self.protobuf { protobuf(frame) } else { json(frame) });
            }
            let data = self.body.frame().await?.ok()?;
            self.buffer.extend_from_slice(data.data_ref().unwrap_or(&Bytes::new()));
        }
    }

    /// Returns the length of the first frame, if it is complete.
    fn whole(&self) -> Option<usize> {
        if !self.protobuf {
            return Some(self.buffer.iter().position(|byte| *byte == b'\n')? + 1);
        }
        let length = u32::from_be_bytes(*self.buffer.first_chunk::<4>()?) as usize + 4;
        (self.buffer.len() >= length).then_some(length)
    }
}

fn json(bytes: Bytes) -> Frame {
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    let metadata = &value["object"]["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
    let event = value["type"].as_str().unwrap().to_owned();
    let object = bytes.slice(format!("{{\"type\":\"{event}\"").len()..);
    Frame {
        event,
        revision: text("resourceVersion").parse().unwrap_or(0),
        ends_state: metadata["annotations"][END] == "true",
        key: format!("{}/{}", text("namespace"), text("name")),
        object,
        bytes,
    }
}

/// `WatchEvent{type, RawExtension{"k8s\0" Unknown{TypeMeta, object}}}` (docs/semantics.md §5.3).
fn protobuf(bytes: Bytes) -> Frame {
    let (_, event, rest) = field(&bytes[4..]).unwrap();
    let event = String::from_utf8(event.to_vec()).unwrap();
    let object = Bytes::copy_from_slice(rest);
    let (_, extension, _) = field(rest).unwrap();
    let (_, envelope, _) = field(extension).unwrap();
    let unknown = envelope.strip_prefix(b"k8s\0").expect("an envelope");
    let (_, _, rest) = field(unknown).unwrap();
    let (_, raw, _) = field(rest).unwrap();
    let metadata = field(raw).map(|(_, metadata, _)| metadata).unwrap_or_default();
    let text = |number: u8| find(metadata, number).map(String::from_utf8_lossy).unwrap_or_default();
    Frame {
        revision: text(6).parse().unwrap_or(0),
        ends_state: memchr::memmem::find(metadata, END.as_bytes()).is_some(),
        key: format!("{}/{}", text(3), text(1)),
        event,
        object,
        bytes,
    }
}

/// Returns a string field of ObjectMeta. The fields in question stand before the first number, or
/// between numbers of one byte.
fn find(mut message: &[u8], number: u8) -> Option<&[u8]> {
    while !message.is_empty() {
        if let Some((tag, value, rest)) = field(message) {
            if tag == number << 3 | 2 {
                return Some(value);
            }
            message = rest;
        } else {
            // A varint: its tag, and bytes up to the first without the high bit.
            let end = message.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 2;
            message = message.get(end..)?;
        }
    }
    None
}

const END: &str = "k8s.io/initial-events-end";
