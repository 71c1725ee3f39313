//! Reads from the upstream's answers what a comparison needs: the resourceVersion of a list or an
//! object, and the key and the resourceVersion of a watch's events. Pure; any bytes are accepted.

use std::borrow::Cow;

use bytes::Bytes;
use prost::Message;
use serde::Deserialize;

use crate::api::media_type::Encoding;
use crate::api::resource_version::ResourceVersion;
use crate::codec::frame::{FrameSplitter, RawFrame};
use crate::codec::object::Key;
use crate::codec::protobuf::wire::Fields;
use crate::codec::protobuf::{ListMeta, decode_envelope, is_protobuf};

/// The key and the resourceVersion of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identified {
    pub(crate) key: Key,
    pub(crate) at: ResourceVersion,
}

#[derive(Deserialize)]
struct JsonBody<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

/// Returns the resourceVersion of a list.
pub(crate) fn list_version(body: &Bytes) -> Option<ResourceVersion> {
    if !is_protobuf(body) {
        return ResourceVersion::parse(&json(body)?.resource_version);
    }
    let (_, raw) = decode_envelope(body)?;
    let meta = Fields::new(&raw).map_while(Result::ok).find(|field| field.number == META)?;
    let meta = ListMeta::decode(meta.bytes().ok()?).ok()?;
    ResourceVersion::parse(&meta.resource_version?)
}

/// Returns the key and the resourceVersion of an object.
pub(crate) fn identify(body: &Bytes) -> Option<Identified> {
    if !is_protobuf(body) {
        let JsonMeta { name, namespace, resource_version } = json(body)?;
        let at = ResourceVersion::parse(&resource_version)?;
        return Some(Identified { key: Key::new(&namespace, &name), at });
    }
    let (_, raw) = decode_envelope(body)?;
    let meta = Fields::new(&raw).map_while(Result::ok).find(|field| field.number == META)?;
    let (mut name, mut namespace, mut at) = ("", "", None);
    for field in Fields::new(meta.bytes().ok()?) {
        let field = field.ok()?;
        match field.number {
            NAME => name = field.text().ok()?,
            NAMESPACE => namespace = field.text().ok()?,
            RESOURCE_VERSION => at = ResourceVersion::parse(field.text().ok()?),
            _ => {}
        }
    }
    Some(Identified { key: Key::new(namespace, name), at: at? })
}

fn json(body: &[u8]) -> Option<JsonMeta<'_>> {
    serde_json::from_slice::<JsonBody<'_>>(body).ok().map(|body| body.metadata)
}

/// Cuts a watch's body into frames, each with its framing.
#[derive(Debug)]
pub(crate) struct FrameCutter {
    encoding: Encoding,
    partial: Vec<u8>,
}

/// The end of a frame is not found, or the frame is longer than any object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotFrames;

impl FrameCutter {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self { encoding, partial: Vec::new() }
    }

    /// Adds a chunk, and returns the frames that it completes.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<Bytes>, NotFrames> {
        self.partial.extend_from_slice(chunk);
        let (mut frames, mut from) = (Vec::new(), 0);
        while let Some(rest) = self.partial.get(from..) {
            let Some(length) = frame_len(self.encoding, rest) else { break };
            let Some(frame) = rest.get(..length).filter(|frame| !frame.is_empty()) else { break };
            frames.push(Bytes::copy_from_slice(frame));
            from += length;
        }
        self.partial.drain(..from);
        if self.partial.len() > FRAME_BYTES_MAX { Err(NotFrames) } else { Ok(frames) }
    }
}

/// Returns the length of the first frame with its framing, if that is known.
fn frame_len(encoding: Encoding, bytes: &[u8]) -> Option<usize> {
    match encoding {
        Encoding::Json => memchr::memchr(b'\n', bytes).map(|end| end + 1),
        Encoding::Protobuf => {
            let length = u32::from_be_bytes(*bytes.first_chunk()?);
            usize::try_from(length).ok()?.checked_add(size_of::<u32>())
        }
    }
}

/// Reads one frame.
pub(crate) fn parse_frame(encoding: Encoding, frame: Bytes) -> Option<RawFrame> {
    let mut frames = Vec::new();
    FrameSplitter::new(encoding, FRAME_BYTES_MAX).push(frame, &mut frames).ok()?;
    frames.pop().filter(|_| frames.is_empty())
}

const META: u32 = 1;
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const RESOURCE_VERSION: u32 = 6;
/// etcd holds no object of more than some megabytes.
const FRAME_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::protobuf::envelope_head;
    use crate::codec::protobuf::wire::push_head;

    fn field(tag: u8, value: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        push_head(&mut field, tag, value.len());
        field.extend_from_slice(value);
        field
    }

    fn enveloped(raw: &[u8]) -> Bytes {
        [envelope_head("v1", "Pod"), field(0x12, raw)].concat().into()
    }

    #[test]
    fn reads_lists_and_objects_in_both_encodings() {
        let list = Bytes::from_static(br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12","continue":"x"},"items":[{"a":1}]}"#);
        assert_eq!(list_version(&list), Some(ResourceVersion(12)));
        let pod = Bytes::from_static(
            br#"{"kind":"Pod","metadata":{"name":"p","namespace":"n","resourceVersion":"7"}}"#,
        );
        let expected = Identified { key: Key::new("n", "p"), at: ResourceVersion(7) };
        assert_eq!(identify(&pod), Some(expected.clone()));
        let list = enveloped(&field(0x0a, &[field(0x0a, b""), field(0x12, b"12")].concat()));
        assert_eq!(list_version(&list), Some(ResourceVersion(12)));
        let meta = [field(0x0a, b"p"), field(0x1a, b"n"), field(0x32, b"7")].concat();
        assert_eq!(identify(&enveloped(&field(0x0a, &meta))), Some(expected));
        assert_eq!(list_version(&Bytes::from_static(b"{}")), None);
    }

    proptest! {
        #[test]
        fn frames_are_cut_wherever_chunks_end(
            bodies in prop::collection::vec("[a-z]{1,40}", 0..12),
            size in 1..17_usize,
            is_json in any::<bool>(),
        ) {
            let encoding = if is_json { Encoding::Json } else { Encoding::Protobuf };
            let frames: Vec<Vec<u8>> = bodies
                .iter()
                .map(|body| match encoding {
                    Encoding::Json => format!("{body}\n").into_bytes(),
                    Encoding::Protobuf => {
                        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
                        [&length, body.as_bytes()].concat()
                    }
                })
                .collect();
            let mut cutter = FrameCutter::new(encoding);
            let cut: Vec<Bytes> = frames
                .concat()
                .chunks(size)
                .flat_map(|chunk| cutter.push(chunk).unwrap())
                .collect();
            prop_assert_eq!(cut, frames);
        }

        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let body = Bytes::from(bytes);
            drop((list_version(&body), identify(&body)));
            for encoding in [Encoding::Json, Encoding::Protobuf] {
                drop((FrameCutter::new(encoding).push(&body), parse_frame(encoding, body.clone())));
            }
        }
    }
}
