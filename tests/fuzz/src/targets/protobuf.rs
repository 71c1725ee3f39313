//! Parsers of the upstream's protobuf, and the output for clients.

use bytes::Bytes;
use http::StatusCode;
use prost::Message;

use super::{
    FRAME_BYTES_MAX, check_any, check_bookmark, check_list, check_object, pods, split_anyhow,
    widgets,
};
use crate::api::media_type::{Encoding, View};
use crate::api::resource::{ApiResource, Representation};
use crate::api::status::Status;
use crate::codec::frame::{self, FrameSplitter, FrameType};
use crate::codec::ingest;
use crate::codec::object::Object;
use crate::codec::protobuf::{self, Unknown};

/// The body of an object is the received bytes, its envelope that of its kind. Spliced forms parse
/// as intended, and an independent decoder of messages reads the same values.
pub fn object(data: &[u8]) {
    for resource in [pods(), widgets()] {
        for representation in [Representation::Protobuf, Representation::MetadataProtobuf] {
            check_any(data, &resource, representation);
            if let Ok(object) = ingest::object(data, &resource, representation) {
                assert_eq!(object.body(), data);
                check(&object, &resource, representation);
            }
            if let Ok(item) = ingest::list_item(data, &resource, representation) {
                assert_eq!(item.list_item(View::Full).to_vec(), data);
                check(&item, &resource, representation);
            }
        }
    }
}

fn check(object: &Object, resource: &ApiResource, representation: Representation) {
    check_object(object, resource, representation);
    let item = object.list_item(View::Full).to_vec();
    let again = ingest::list_item(&item, resource, representation).expect("as it is in lists");
    assert_eq!(again.body(), object.body());
    let body = Bytes::copy_from_slice(object.body());
    let (kind, raw) = protobuf::decode_envelope(&body).expect("an envelope");
    let expected = match representation {
        Representation::Protobuf => &*resource.kind,
        _ => "PartialObjectMetadata",
    };
    assert_eq!((kind.kind.as_deref(), raw), (Some(expected), item.into()));
    // The decoder knows the types of fields that Weir never reads, and so rejects more.
    if let Ok(decoded) = Pod::decode(object.layout.item.slice(object.body()))
        && representation == Representation::Protobuf
    {
        let metadata = decoded.metadata.unwrap_or_default();
        assert_eq!(metadata.name.unwrap_or_default(), object.key.name());
        assert_eq!(metadata.namespace.unwrap_or_default(), object.key.namespace());
        let version = metadata.resource_version.unwrap_or_default();
        assert_eq!(version, object.resource_version.to_string());
        let labels = metadata.labels.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        assert!(labels.eq(object.attrs().labels()));
        let spec = decoded.spec.unwrap_or_default();
        for (source, value) in resource.selectable.sources().iter().zip(object.attrs().fields()) {
            match &*source.label {
                "spec.nodeName" => {
                    assert_eq!(value, spec.node_name.as_deref().unwrap_or_default().as_bytes());
                }
                "spec.hostNetwork" => {
                    assert_eq!(value, spec.host_network.unwrap_or_default().to_string().as_bytes());
                }
                _ => {}
            }
        }
    }
}

/// A list that was parsed and written again parses to the same, and its bytes are a fixed point.
pub fn list(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    for resource in [pods(), widgets()] {
        for representation in [Representation::Protobuf, Representation::MetadataProtobuf] {
            check_list(body.clone(), &resource, representation);
        }
    }
}

/// Frames an event (docs/semantics.md §5.3).
#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, optional, tag = "1")]
    event: Option<String>,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", optional, tag = "1")]
    raw: Option<Bytes>,
}

/// Frames are the same wherever the stream is cut, and parse to the same after they were written
/// again.
pub fn frames(data: &[u8]) {
    let frames = split_anyhow(Encoding::Protobuf, data);
    let mut joined = Vec::new();
    for frame in &frames {
        let object = Some(RawExtension { raw: Some(frame.object.clone()) });
        let event = WatchEvent { event: Some(frame.event.as_str().to_owned()), object }.encode_to_vec();
        joined.extend_from_slice(&u32::try_from(event.len()).expect("it is small").to_be_bytes());
        joined.extend_from_slice(&event);
    }
    let mut again = Vec::new();
    // The canonical form is never the longer one.
    let mut splitter = FrameSplitter::new(Encoding::Protobuf, FRAME_BYTES_MAX);
    assert_eq!(splitter.push(joined.into(), &mut again).and_then(|()| splitter.finish()), Ok(()));
    assert_eq!(again, frames);
}

/// A Status that was parsed and written again parses to the same; Weir's own Status parses to its
/// values, in both encodings.
pub fn status(data: &[u8]) {
    if let Some(status) = protobuf::decode_status(data) {
        let mut envelope = protobuf::envelope_head("v1", "Status");
        envelope.extend(
            Unknown { raw: Some(status.encode_to_vec().into()), ..Unknown::default() }
                .encode_to_vec(),
        );
        assert_eq!(protobuf::decode_status(&envelope), Some(status));
    }
    let Some((seconds, message)) = data.split_first_chunk() else { return };
    let status = Status {
        code: StatusCode::GONE,
        reason: "Expired",
        message: String::from_utf8_lossy(message).into_owned(),
        details: None,
        retry_after_seconds: Some(u32::from_be_bytes(*seconds)),
    };
    let read = protobuf::decode_status(&protobuf::encode_status(&status))
        .expect("what Weir writes, it reads");
    let json: serde_json::Value =
        serde_json::from_slice(&status.to_json()).expect("so it is in JSON");
    assert_eq!(read.message.as_deref(), Some(&*status.message));
    assert_eq!(
        read.message.as_deref().unwrap_or_default(),
        json["message"].as_str().unwrap_or_default()
    );
    assert_eq!((read.code, json["code"].as_i64()), (Some(410), Some(410)));
    assert_eq!(
        (read.reason.as_deref(), json["reason"].as_str()),
        (Some("Expired"), Some("Expired"))
    );
    let seconds = read.details.and_then(|details| details.retry_after_seconds).map(i64::from);
    let expected = json["details"]["retryAfterSeconds"].as_i64();
    assert_eq!(seconds, expected.map(|seconds| seconds.min(i32::MAX.into())));
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let mut frames = Vec::new();
        let mut splitter = FrameSplitter::new(encoding, usize::MAX);
        assert_eq!(splitter.push(frame::encode_error(&status, encoding), &mut frames), Ok(()));
        assert!(frames.iter().all(|frame| frame.event == FrameType::Error) && frames.len() == 1);
    }
}

/// A learnt template writes bookmarks that parse to the intended values.
pub fn bookmark(data: &[u8]) {
    if protobuf::is_protobuf(data) {
        check_bookmark(data, Representation::Protobuf);
    }
}

/// The parts that Weir reads, for a decoder that is not Weir's.
#[derive(Clone, PartialEq, Message)]
struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<PodSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSpec {
    #[prost(string, optional, tag = "10")]
    node_name: Option<String>,
    #[prost(bool, optional, tag = "11")]
    host_network: Option<bool>,
}
