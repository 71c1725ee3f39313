//! Reads from the upstream's answers what a comparison needs: the resourceVersion of a list or an
//! object, and the key and the resourceVersion of a watch's events. Pure; any bytes are accepted.

use std::borrow::Cow;

use bytes::Bytes;
use prost::Message;
use serde::Deserialize;

use crate::api::media_type::Encoding;
use crate::api::resource_version::ResourceVersion;
use crate::codec::frame::FrameSplitter;
use crate::codec::object::Key;
use crate::codec::protobuf::wire::Fields;
use crate::codec::protobuf::{ListMeta, decode_envelope, is_protobuf};

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
pub(crate) fn identify(body: &Bytes) -> Option<(Key, ResourceVersion)> {
    if !is_protobuf(body) {
        let JsonMeta { name, namespace, resource_version } = json(body)?;
        let at = ResourceVersion::parse(&resource_version)?;
        return Some((Key::new(&namespace, &name), at));
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
    Some((Key::new(namespace, name), at?))
}

fn json(body: &[u8]) -> Option<JsonMeta<'_>> {
    serde_json::from_slice::<JsonBody<'_>>(body).ok().map(|body| body.metadata)
}

pub(super) fn splitter(encoding: Encoding) -> FrameSplitter {
    FrameSplitter::new(encoding, FRAME_BYTES_MAX)
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
        let expected = (Key::new("n", "p"), ResourceVersion(7));
        assert_eq!(identify(&pod), Some(expected.clone()));
        let list = enveloped(&field(0x0a, &[field(0x0a, b""), field(0x12, b"12")].concat()));
        assert_eq!(list_version(&list), Some(ResourceVersion(12)));
        let meta = [field(0x0a, b"p"), field(0x1a, b"n"), field(0x32, b"7")].concat();
        assert_eq!(identify(&enveloped(&field(0x0a, &meta))), Some(expected));
        assert_eq!(list_version(&Bytes::from_static(b"{}")), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let body = Bytes::from(bytes);
            drop((list_version(&body), identify(&body)));
        }
    }
}
