//! Writes the answer to a review, with the bytes of the API server.

use std::io::{self, Write};

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use serde_json::value::RawValue;

use crate::api::media_type::Encoding;
use crate::auth::user::User;
use crate::codec::protobuf::wire::push_head;
use crate::codec::protobuf::{UNKNOWN_RAW_TAG, UNKNOWN_TAIL, envelope_head};
use crate::server::reviews::kind::ReviewKind;
use crate::server::reviews::messages::{
    AccessReview, AccessStatus, ExtraValue, FieldsV1, ManagedFields, NonResourceAttributes,
    ObjectMeta, ResourceAttributes, SelfReview, SelfStatus, Spec, Time, UserInfo, is_empty,
};

/// What an answer has besides its review and its status.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerContext<'a> {
    pub(super) kind: ReviewKind,
    pub(super) encoding: Encoding,
    /// The namespace of the request; empty for none.
    pub(super) namespace: &'a str,
    /// The manager of the fields: the client's name.
    pub(super) manager: &'a str,
    /// The time, in seconds after 1970.
    pub(super) now: i64,
    /// Whether a zero `creationTimestamp` is absent in JSON.
    pub(super) omits_zero_times: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonReview<'a, T> {
    kind: &'static str,
    api_version: &'static str,
    metadata: JsonMeta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a Spec>,
    status: &'a T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonMeta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    /// `Some(None)` is `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Option<String>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    managed_fields: &'a [JsonManagedFields<'a>],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonManagedFields<'a> {
    manager: &'a str,
    operation: &'static str,
    api_version: &'static str,
    time: String,
    fields_type: &'static str,
    fields_v1: &'a RawValue,
}

/// Writes an access review that is allowed for this reason.
pub(super) fn allowed(context: &AnswerContext<'_>, spec: &Spec, reason: &str) -> Option<Vec<u8>> {
    let AnswerContext { kind, namespace, manager, now, .. } = *context;
    let fields = managed_fields(spec);
    let status = AccessStatus {
        allowed: Some(true),
        reason: Some(reason.to_owned()),
        evaluation_error: Some(String::new()),
        denied: Some(false),
    };
    if context.encoding == Encoding::Json {
        let managed = JsonManagedFields {
            manager,
            operation: UPDATE,
            api_version: kind.api_version(),
            time: rfc3339(now)?,
            fields_type: FIELDS_V1,
            fields_v1: &RawValue::from_string(fields).ok()?,
        };
        let metadata = JsonMeta {
            namespace,
            creation_timestamp: (!context.omits_zero_times).then_some(None),
            managed_fields: &[managed],
        };
        return json(kind, metadata, Some(spec), &status);
    }
    let text = |text: &str| Some(text.to_owned());
    let managed = ManagedFields {
        manager: text(manager),
        operation: text(UPDATE),
        api_version: text(kind.api_version()),
        time: Some(Time::new(now)),
        fields_type: text(FIELDS_V1),
        fields_v1: Some(FieldsV1 { raw: Some(Bytes::from(fields)) }),
        subresource: text(""),
    };
    let metadata = ObjectMeta { managed_fields: vec![managed], ..ObjectMeta::new(namespace, None) };
    let (metadata, spec) = (Some(metadata), Some(with_empty_fields(kind, spec)));
    Some(envelope(kind, &AccessReview { metadata, spec, status: Some(status) }))
}

/// Writes the review that names its sender.
pub(super) fn self_subject(context: &AnswerContext<'_>, user: &User) -> Option<Vec<u8>> {
    let AnswerContext { kind, now, .. } = *context;
    let extra = user.extra.iter().map(|(key, values)| {
        let items = values.clone();
        (key.clone(), ExtraValue { items })
    });
    let user_info = UserInfo {
        username: Some(user.name.clone()),
        uid: Some(user.uid.clone()),
        groups: user.groups.clone(),
        extra: extra.collect(),
    };
    let status = SelfStatus { user_info: Some(user_info) };
    if context.encoding == Encoding::Json {
        let created = Some(Some(rfc3339(now)?));
        let metadata = JsonMeta { namespace: "", creation_timestamp: created, managed_fields: &[] };
        return json(kind, metadata, None, &status);
    }
    let metadata = Some(ObjectMeta::new("", Some(now)));
    Some(envelope(kind, &SelfReview { metadata, status: Some(status) }))
}

fn json<T: Serialize>(
    kind: ReviewKind,
    metadata: JsonMeta<'_>,
    spec: Option<&Spec>,
    status: &T,
) -> Option<Vec<u8>> {
    let (kind, api_version) = (kind.name(), kind.api_version());
    let review = JsonReview { kind, api_version, metadata, spec, status };
    let mut out = Vec::with_capacity(JSON_BYTES);
    review.serialize(&mut Serializer::with_formatter(&mut out, GoFormatter)).ok()?;
    Some(out)
}

fn envelope(kind: ReviewKind, review: &impl Message) -> Vec<u8> {
    let raw = review.encode_to_vec();
    let mut out = envelope_head(kind.api_version(), kind.name());
    push_head(&mut out, UNKNOWN_RAW_TAG, raw.len());
    out.extend_from_slice(&raw);
    out.extend_from_slice(UNKNOWN_TAIL);
    out
}

/// Returns a spec in which each text that its kind has is present, as the API server encodes it.
fn with_empty_fields(kind: ReviewKind, spec: &Spec) -> Spec {
    let text = |text: &Option<String>| Some(text.clone().unwrap_or_default());
    let Spec { resource_attributes, non_resource_attributes, user, groups, extra, uid } = spec;
    let resource_attributes = resource_attributes.as_ref().map(|attributes| ResourceAttributes {
        namespace: text(&attributes.namespace),
        verb: text(&attributes.verb),
        group: text(&attributes.group),
        version: text(&attributes.version),
        resource: text(&attributes.resource),
        subresource: text(&attributes.subresource),
        name: text(&attributes.name),
    });
    let non_resource_attributes = non_resource_attributes.as_ref().map(|attributes| {
        NonResourceAttributes { path: text(&attributes.path), verb: text(&attributes.verb) }
    });
    let has_user = kind != ReviewKind::SelfSubjectAccess;
    Spec {
        resource_attributes,
        non_resource_attributes,
        user: text(user).filter(|_| has_user),
        groups: groups.clone(),
        extra: extra.clone(),
        uid: text(uid).filter(|_| has_user),
    }
}

/// Returns `fieldsV1`: which fields of its spec the sender has set (structured-merge-diff,
/// `fieldpath/serialize.go`). They stand in the order of their names.
fn managed_fields(spec: &Spec) -> String {
    let Spec { resource_attributes, non_resource_attributes, user, groups, extra, uid } = spec;
    let leaf = |is_set: bool| is_set.then(|| "{}".to_owned());
    let fields = [
        ("extra", (!extra.is_empty()).then(|| set(extra.keys().map(String::as_str)))),
        ("groups", leaf(!groups.is_empty())),
        ("nonResourceAttributes", non_resource_attributes.as_ref().map(of_path)),
        ("resourceAttributes", resource_attributes.as_ref().map(of_resource)),
        ("uid", leaf(!is_empty(uid))),
        ("user", leaf(!is_empty(user))),
    ];
    let fields = fields.iter().filter_map(|(name, fields)| {
        let fields = fields.as_ref()?;
        Some(format!(r#""f:{name}":{fields}"#))
    });
    let fields = fields.collect::<Vec<_>>().join(",");
    format!(r#"{{"f:spec":{{{fields}}}}}"#)
}

fn of_resource(attributes: &ResourceAttributes) -> String {
    let fields = [
        ("group", &attributes.group),
        ("name", &attributes.name),
        ("namespace", &attributes.namespace),
        ("resource", &attributes.resource),
        ("subresource", &attributes.subresource),
        ("verb", &attributes.verb),
        ("version", &attributes.version),
    ];
    set(fields.into_iter().filter(|(_, text)| !is_empty(text)).map(|(name, _)| name))
}

fn of_path(attributes: &NonResourceAttributes) -> String {
    let fields = [("path", &attributes.path), ("verb", &attributes.verb)];
    set(fields.into_iter().filter(|(_, text)| !is_empty(text)).map(|(name, _)| name))
}

/// Returns the set of an object and these fields of it, in order. An object without fields is a
/// leaf. The names need no escape in JSON.
fn set<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let fields: String = names.map(|name| format!(r#","f:{name}":{{}}"#)).collect();
    if fields.is_empty() { "{}".to_owned() } else { format!(r#"{{".":{{}}{fields}}}"#) }
}

fn rfc3339(seconds: i64) -> Option<String> {
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// Writes compact JSON with the escapes of Go's encoder
/// ([`json_string`](crate::api::json_string)).
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let special = |character| matches!(character, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
        for part in fragment.split_inclusive(special) {
            let last = part.chars().next_back().filter(|last| special(*last));
            let Some(last) = last else {
                writer.write_all(part.as_bytes())?;
                continue;
            };
            let plain = part.strip_suffix(last).unwrap_or_default();
            write!(writer, "{plain}\\u{:04x}", u32::from(last))?;
        }
        Ok(())
    }
}

const UPDATE: &str = "Update";
const FIELDS_V1: &str = "FieldsV1";
/// More than most answers take.
const JSON_BYTES: usize = 1024;
