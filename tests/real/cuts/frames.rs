//! Frames of watches as received, and the items of lists in the same form.

use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// One frame as received.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) event: String,
    pub(super) resource_version: u64,
    pub(super) initial_events_end: bool,
    pub(super) bytes: Bytes,
}

/// Splits the body of a watch into frames. A cut connection counts as a clean end; a partial frame
/// is dropped.
pub(super) struct Frames {
    body: std::pin::Pin<Box<dyn futures::Stream<Item = Result<Bytes, kube::Error>> + Send>>,
    buffer: Vec<u8>,
}

impl Frames {
    pub(super) fn new(response: Response<Body>) -> Self {
        Self { body: Box::pin(response.into_body().into_data_stream()), buffer: Vec::new() }
    }

    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(Frame::read(line.into()));
            }
            self.buffer.extend_from_slice(&self.body.next().await?.ok()?);
        }
    }
}

impl Frame {
    pub(super) fn read(bytes: Bytes) -> Self {
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        let metadata = &value["object"]["metadata"];
        let digits = metadata["resourceVersion"].as_str().unwrap_or("0");
        Self {
            event: value["type"].as_str().unwrap().to_owned(),
            resource_version: digits.parse().unwrap(),
            initial_events_end: metadata["annotations"]["k8s.io/initial-events-end"] == "true",
            bytes,
        }
    }
}

/// Returns the items of a list as the ADDED frames with which a watch would begin.
pub(super) fn items(resource: usize, list: &[u8]) -> Vec<Frame> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let list: List<'_> = serde_json::from_slice(list).unwrap();
    let lead = LEADS[resource];
    let frame = |item: &&RawValue| {
        let members = item.get().strip_prefix('{').unwrap();
        let frame = format!("{{\"type\":\"ADDED\",\"object\":{{{lead}{members}}}\n");
        Frame::read(frame.into())
    };
    list.items.iter().map(frame).collect()
}

pub(super) fn assert_same(what: &str, seen: &[Frame], expected: &[Frame]) {
    if seen == expected {
        return;
    }
    let short = |frame: Option<&Frame>| {
        frame.map(|frame| {
            format!("{} {} {}", frame.event, frame.resource_version, text(&frame.bytes))
        })
    };
    let differs = (0..).find(|n| seen.get(*n) != expected.get(*n)).unwrap();
    let versions = |frames: &[Frame]| -> Vec<_> {
        frames.iter().map(|frame| format!("{}{}", frame.event, frame.resource_version)).collect()
    };
    panic!(
        "{what}: number {differs} differs\nseen     {:?}\nexpected {:?}\nseen     {:?}\nexpected {:?}",
        short(seen.get(differs)),
        short(expected.get(differs)),
        versions(seen),
        versions(expected)
    );
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The fields at the start of a watch's objects, which a list's items lack.
const LEADS: [&str; 3] =
    [r#""kind":"ConfigMap","apiVersion":"v1","#, r#""kind":"Pod","apiVersion":"v1","#, ""];
