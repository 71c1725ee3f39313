//! The envelope of every object: `runtime.Unknown` after four magic bytes.

use bytes::Bytes;
use prost::Message;

/// Whether `bytes` are an object in protobuf.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the bytes of the envelope before the tag of the raw object.
pub fn envelope_head(api_version: &str, kind: &str) -> Vec<u8> {
    let type_meta =
        TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) };
    let unknown = Unknown { type_meta: Some(type_meta), ..Unknown::default() };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

/// Decodes an envelope. Returns its type and the object in it without a copy; `None` if the bytes
/// are not an envelope.
pub fn decode_envelope(bytes: &Bytes) -> Option<(TypeMeta, Bytes)> {
    let message = bytes.strip_prefix(MAGIC)?;
    let unknown = Unknown::decode(bytes.slice_ref(message)).ok()?;
    Some((unknown.type_meta?, unknown.raw.unwrap_or_default()))
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
