//! The envelope of every object: `runtime.Unknown` after four magic bytes; and Statuses in it.

use bytes::Bytes;
use prost::Message;

use super::messages::{ListMeta, Status, StatusDetails};
use super::wire::{field_len, push_head};
use weir_api::status;

/// Whether `bytes` are an object in protobuf.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the bytes of the envelope before the tag of the raw object.
pub fn envelope_head(api_version: &str, kind: &str) -> Vec<u8> {
    let type_meta = field_len(api_version.len()) + field_len(kind.len());
    // One allocation: each object that is read is compared with its head.
    let mut head = Vec::with_capacity(MAGIC.len() + field_len(type_meta));
    head.extend_from_slice(MAGIC);
    push_head(&mut head, TYPE_META_TAG, type_meta);
    for (tag, text) in [(API_VERSION_TAG, api_version), (KIND_TAG, kind)] {
        push_head(&mut head, tag, text.len());
        head.extend_from_slice(text.as_bytes());
    }
    head
}

/// Decodes an envelope. Returns its type and the object in it without a copy; `None` if the bytes
/// are not an envelope.
pub fn decode_envelope(bytes: &Bytes) -> Option<(TypeMeta, Bytes)> {
    let message = bytes.strip_prefix(MAGIC)?;
    let unknown = Unknown::decode(bytes.slice_ref(message)).ok()?;
    Some((unknown.type_meta?, unknown.raw.unwrap_or_default()))
}

/// Encodes a Status in its envelope, as the API server does.
pub fn encode_status(status: &status::Status) -> Bytes {
    let empty = || Some(String::new());
    let seconds = status.retry_after_seconds.filter(|seconds| *seconds > 0);
    let details = (status.details.is_some() || seconds.is_some()).then(|| {
        let about = status.details.clone().unwrap_or_default();
        StatusDetails {
            name: Some(about.name),
            group: Some(about.group),
            kind: Some(about.kind),
            causes: Vec::new(),
            retry_after_seconds: Some(i32::try_from(seconds.unwrap_or(0)).unwrap_or(i32::MAX)),
            uid: empty(),
        }
    });
    let message = Status {
        metadata: Some(ListMeta {
            self_link: empty(),
            resource_version: empty(),
            continue_token: empty(),
            remaining_item_count: None,
            shard_info: None,
        }),
        status: Some("Failure".to_owned()),
        message: Some(status.message.clone()),
        reason: Some(status.reason.to_owned()),
        details,
        code: Some(i32::from(status.code.as_u16())),
    };
    let type_meta =
        TypeMeta { api_version: Some("v1".to_owned()), kind: Some("Status".to_owned()) };
    let unknown = Unknown {
        type_meta: Some(type_meta),
        raw: Some(message.encode_to_vec().into()),
        content_encoding: empty(),
        content_type: empty(),
    };
    [MAGIC, &unknown.encode_to_vec()].concat().into()
}

/// Decodes a Status in its envelope.
pub fn decode_status(bytes: &[u8]) -> Option<Status> {
    let (type_meta, raw) = decode_envelope(&Bytes::copy_from_slice(bytes))?;
    if type_meta.kind.as_deref() != Some("Status") {
        return None;
    }
    Status::decode(raw).ok()
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TypeMeta {
    /// `apiVersion`.
    #[prost(string, optional, tag = "1")]
    pub api_version: Option<String>,
    /// `kind`.
    #[prost(string, optional, tag = "2")]
    pub kind: Option<String>,
}

/// `runtime.Unknown`, the message of the envelope.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Unknown {
    /// The type of `raw`.
    #[prost(message, optional, tag = "1")]
    pub type_meta: Option<TypeMeta>,
    /// The encoded object.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub raw: Option<Bytes>,
    /// Always empty.
    #[prost(string, optional, tag = "3")]
    pub content_encoding: Option<String>,
    /// Always empty.
    #[prost(string, optional, tag = "4")]
    pub content_type: Option<String>,
}

/// The first bytes of every object.
pub const MAGIC: &[u8] = b"k8s\0";
/// The last bytes of every object: empty `contentEncoding` and `contentType` of [`Unknown`].
pub const UNKNOWN_TAIL: &[u8] = &[0x1a, 0x00, 0x22, 0x00];
/// The tag of [`Unknown::raw`].
pub const UNKNOWN_RAW_TAG: u8 = 0x12;
/// The tag of `Unknown.typeMeta`, and those of its fields.
const TYPE_META_TAG: u8 = 0x0a;
const API_VERSION_TAG: u8 = 0x0a;
const KIND_TAG: u8 = 0x12;
