//! Reads the body of a review, if Weir reads it exactly as the API server does. A body for which
//! the API server would write a warning or an error is not read.

use bytes::Bytes;
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::media_type::Encoding;
use crate::codec::protobuf::{MAGIC, Unknown};
use crate::server::reviews::kind::ReviewKind;
use crate::server::reviews::messages::{
    AccessReview, AccessStatus, ObjectMeta, SelfReview, SelfSpec, SelfStatus, Spec, UserInfo,
    is_empty, object,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound = "S: DeserializeOwned")]
struct JsonReview<S> {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(default, deserialize_with = "object")]
    metadata: Option<JsonMeta>,
    #[serde(default, deserialize_with = "object")]
    spec: Option<S>,
    #[serde(default, deserialize_with = "object")]
    status: Option<AccessStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonSelfReview {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(default, deserialize_with = "object")]
    metadata: Option<JsonMeta>,
    #[serde(default, deserialize_with = "object")]
    status: Option<SelfStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonMeta {
    namespace: Option<String>,
    /// Clients before 1.34 write `null`.
    #[serde(rename = "creationTimestamp")]
    _creation_timestamp: Option<()>,
}

/// Reads a review of a kind; one of [`ReviewKind::SelfSubject`] has an empty spec. `namespace` is
/// that of the request.
pub(super) fn decode(
    kind: ReviewKind,
    encoding: Encoding,
    namespace: &str,
    body: &Bytes,
) -> Option<Spec> {
    let spec = match (encoding, kind) {
        (Encoding::Json, ReviewKind::SelfSubject) => {
            let review: JsonSelfReview = whole_object(body)?;
            let JsonSelfReview { kind: name, api_version, metadata, status } = review;
            check_type(kind, [&name, &api_version])?;
            check_json_meta(metadata, namespace)?;
            is_empty_user(status.as_ref()).then(Spec::default)?
        }
        (Encoding::Json, ReviewKind::SelfSubjectAccess) => {
            decode_json::<SelfSpec>(kind, namespace, body)?.into()
        }
        (Encoding::Json, _) => decode_json::<Spec>(kind, namespace, body)?,
        (Encoding::Protobuf, ReviewKind::SelfSubject) => {
            let review: SelfReview = decode_exact(&raw(kind, body)?)?;
            check_meta(review.metadata.as_ref(), namespace)?;
            is_empty_user(review.status.as_ref()).then(Spec::default)?
        }
        (Encoding::Protobuf, _) => {
            let review: AccessReview = decode_exact(&raw(kind, body)?)?;
            check_meta(review.metadata.as_ref(), namespace)?;
            is_undecided(review.status.as_ref()).then_some(review.spec)??
        }
    };
    kind.is_valid(&spec, namespace).then_some(spec)
}

fn decode_json<S: DeserializeOwned>(kind: ReviewKind, namespace: &str, body: &[u8]) -> Option<S> {
    let review: JsonReview<S> = whole_object(body)?;
    let JsonReview { kind: name, api_version, metadata, spec, status } = review;
    check_type(kind, [&name, &api_version])?;
    check_json_meta(metadata, namespace)?;
    spec.filter(|_| is_undecided(status.as_ref()))
}

/// Reads a JSON object with nothing behind it.
fn whole_object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = object(&mut json).ok()?;
    json.end().ok()?;
    read
}

/// An absent kind or version is that of the path.
fn check_type(kind: ReviewKind, [name, api_version]: [&Option<String>; 2]) -> Option<()> {
    let is = |text: &Option<String>, expected| text.as_ref().is_none_or(|text| text == expected);
    (is(name, kind.name()) && is(api_version, kind.api_version())).then_some(())
}

fn check_json_meta(metadata: Option<JsonMeta>, namespace: &str) -> Option<()> {
    let given = metadata.unwrap_or_default().namespace.unwrap_or_default();
    (given.is_empty() || given == namespace).then_some(())
}

/// Metadata may be absent, without any field, or with all fields as Go clients write them.
fn check_meta(metadata: Option<&ObjectMeta>, namespace: &str) -> Option<()> {
    let Some(metadata) = metadata.filter(|metadata| **metadata != ObjectMeta::default()) else {
        return Some(());
    };
    let is = |namespace| *metadata == ObjectMeta::new(namespace, None);
    (is("") || is(namespace)).then_some(())
}

fn is_undecided(status: Option<&AccessStatus>) -> bool {
    status.is_none_or(|AccessStatus { allowed, reason, evaluation_error, denied }| {
        let is_false = |value: &Option<bool>| *value != Some(true);
        is_false(allowed) && is_false(denied) && is_empty(reason) && is_empty(evaluation_error)
    })
}

fn is_empty_user(status: Option<&SelfStatus>) -> bool {
    let user = status.and_then(|status| status.user_info.as_ref());
    user.is_none_or(|UserInfo { username, uid, groups, extra }| {
        is_empty(username) && is_empty(uid) && groups.is_empty() && extra.is_empty()
    })
}

/// Returns the object in an envelope of this kind.
fn raw(kind: ReviewKind, body: &Bytes) -> Option<Bytes> {
    let unknown: Unknown = decode_exact(&body.slice_ref(body.strip_prefix(MAGIC)?))?;
    let Unknown { type_meta, raw, content_encoding, content_type } = unknown;
    let type_meta = type_meta?;
    let is = |text: &Option<String>, expected| text.as_deref() == Some(expected);
    let is_expected = is(&type_meta.kind, kind.name())
        && is(&type_meta.api_version, kind.api_version())
        && is_empty(&content_encoding)
        && is_empty(&content_type);
    raw.filter(|_| is_expected)
}

/// Decodes a message that has no field but its own, each once and in order: encoded again it is the
/// same.
fn decode_exact<M: Message + Default>(message: &Bytes) -> Option<M> {
    let decoded = M::decode(message.clone()).ok()?;
    (decoded.encode_to_vec() == *message).then_some(decoded)
}
