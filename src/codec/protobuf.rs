//! Kubernetes' protobuf (semantics.md §5.3): the envelope around every object, and the few messages that Weir
//! decodes or writes itself.
//!
//! The messages are declared as the upstream's encoder treats them: of proto2, where a field that is no pointer in Go is written
//! even if it is empty. So each is `optional` here, and `Some` of an empty value where Weir writes one. Objects are never decoded into
//! messages: [`object`] finds the few fields that the cache needs with the reader in [`wire`].

pub mod object;
pub mod wire;

use bytes::Bytes;
use prost::Message;

use crate::api::status;
use crate::codec::list::ListMeta as ListMetaOfLists;

/// What leads every object.
pub const MAGIC: &[u8] = b"k8s\0";
/// What ends every object: empty `contentEncoding` and `contentType` of [`Unknown`].
pub const UNKNOWN_TAIL: &[u8] = &[0x1a, 0x00, 0x22, 0x00];
/// The tag of [`Unknown::raw`].
pub const UNKNOWN_RAW_TAG: u8 = 0x12;

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

/// `runtime.Unknown`: the envelope's message.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Unknown {
    /// What `raw` is.
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

/// `metav1.ListMeta`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListMeta {
    /// Always empty.
    #[prost(string, optional, tag = "1")]
    pub self_link: Option<String>,
    /// The list's resourceVersion.
    #[prost(string, optional, tag = "2")]
    pub resource_version: Option<String>,
    /// The token for the next page.
    #[prost(string, optional, tag = "3")]
    pub continue_token: Option<String>,
    /// A pointer in Go: absent where there is none.
    #[prost(int64, optional, tag = "4")]
    pub remaining_item_count: Option<i64>,
}

/// `metav1.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Status {
    /// Empty.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    /// `Failure`.
    #[prost(string, optional, tag = "2")]
    pub status: Option<String>,
    /// For people.
    #[prost(string, optional, tag = "3")]
    pub message: Option<String>,
    /// For programs.
    #[prost(string, optional, tag = "4")]
    pub reason: Option<String>,
    /// What it is about.
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetails>,
    /// The HTTP status.
    #[prost(int32, optional, tag = "6")]
    pub code: Option<i32>,
}

/// `metav1.StatusDetails`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusDetails {
    /// The object's name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The resource's group.
    #[prost(string, optional, tag = "2")]
    pub group: Option<String>,
    /// The resource's kind.
    #[prost(string, optional, tag = "3")]
    pub kind: Option<String>,
    /// Why, one by one.
    #[prost(message, repeated, tag = "4")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which a retry may help.
    #[prost(int32, optional, tag = "5")]
    pub retry_after_seconds: Option<i32>,
    /// The object's uid.
    #[prost(string, optional, tag = "6")]
    pub uid: Option<String>,
}

/// `metav1.StatusCause`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusCause {
    /// The kind of cause.
    #[prost(string, optional, tag = "1")]
    pub reason: Option<String>,
    /// For people.
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    /// The field that caused it.
    #[prost(string, optional, tag = "3")]
    pub field: Option<String>,
}

/// Whether these bytes are an object in protobuf.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// What stands in the envelope before the tag of the raw object.
pub fn envelope_head(api_version: &str, kind: &str) -> Vec<u8> {
    let type_meta =
        TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) };
    let unknown = Unknown { type_meta: Some(type_meta), ..Unknown::default() };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

/// Reads an envelope: its kind, and the object in it without a copy; `None` if it is none.
pub fn decode_envelope(bytes: &Bytes) -> Option<(TypeMeta, Bytes)> {
    let message = bytes.strip_prefix(MAGIC)?;
    let unknown = Unknown::decode(bytes.slice_ref(message)).ok()?;
    Some((unknown.type_meta?, unknown.raw.unwrap_or_default()))
}

/// A Status as the upstream encodes it, in its envelope.
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

/// Reads a Status in its envelope.
pub fn decode_status(bytes: &[u8]) -> Option<Status> {
    let (type_meta, raw) = decode_envelope(&Bytes::copy_from_slice(bytes))?;
    if type_meta.kind.as_deref() != Some("Status") {
        return None;
    }
    Status::decode(raw).ok()
}

/// A list's metadata as the upstream encodes it.
pub fn encode_list_meta(meta: &ListMetaOfLists) -> Vec<u8> {
    let message = ListMeta {
        self_link: Some(String::new()),
        resource_version: Some(meta.resource_version.to_string()),
        continue_token: Some(meta.continue_token.clone()),
        remaining_item_count: meta
            .remaining_item_count
            .map(|count| i64::try_from(count).unwrap_or(i64::MAX)),
    };
    message.encode_to_vec()
}

#[cfg(test)]
pub(crate) mod tests;
