//! Statuses in protobuf.

use bytes::Bytes;
use prost::Message;

use super::envelope::{MAGIC, TypeMeta, Unknown, decode_envelope};
use super::messages::{ListMeta, Status, StatusDetails};
use weir_api::status;

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
