//! The messages of reviews: in protobuf as the API server encodes them
//! ([`codec::protobuf`](crate::codec::protobuf)), and the same fields in JSON.
//!
//! A review with any other field is not read: protobuf with one is not equal to what is encoded
//! again.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use prost::Message;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// `authorization.k8s.io/v1` SelfSubjectAccessReview, SubjectAccessReview and
/// LocalSubjectAccessReview.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AccessReview {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<AccessStatus>,
}

/// SubjectAccessReviewSpec. That of a SelfSubjectAccessReview has only the first two fields.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Spec {
    #[prost(message, optional, tag = "1")]
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub(super) resource_attributes: Option<ResourceAttributes>,
    #[prost(message, optional, tag = "2")]
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub(super) non_resource_attributes: Option<NonResourceAttributes>,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) user: Option<String>,
    #[prost(string, repeated, tag = "4")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[prost(btree_map = "string, message", tag = "5")]
    #[serde(default, deserialize_with = "unique", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra: BTreeMap<String, ExtraValue>,
    #[prost(string, optional, tag = "6")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) uid: Option<String>,
}

/// SelfSubjectAccessReviewSpec in JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SelfSpec {
    #[serde(default, deserialize_with = "object")]
    resource_attributes: Option<ResourceAttributes>,
    #[serde(default, deserialize_with = "object")]
    non_resource_attributes: Option<NonResourceAttributes>,
}

impl From<SelfSpec> for Spec {
    fn from(spec: SelfSpec) -> Self {
        let SelfSpec { resource_attributes, non_resource_attributes } = spec;
        Self { resource_attributes, non_resource_attributes, ..Self::default() }
    }
}

/// ResourceAttributes without selectors.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourceAttributes {
    #[prost(string, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) namespace: Option<String>,
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) verb: Option<String>,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) group: Option<String>,
    #[prost(string, optional, tag = "4")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) version: Option<String>,
    #[prost(string, optional, tag = "5")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) resource: Option<String>,
    #[prost(string, optional, tag = "6")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) subresource: Option<String>,
    #[prost(string, optional, tag = "7")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NonResourceAttributes {
    #[prost(string, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) path: Option<String>,
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) verb: Option<String>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ExtraValue {
    #[prost(string, repeated, tag = "1")]
    pub(super) items: Vec<String>,
}

/// SubjectAccessReviewStatus.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AccessStatus {
    #[prost(bool, optional, tag = "1")]
    pub(super) allowed: Option<bool>,
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) reason: Option<String>,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) evaluation_error: Option<String>,
    #[prost(bool, optional, tag = "4")]
    #[serde(skip_serializing)]
    pub(super) denied: Option<bool>,
}

/// `authentication.k8s.io/v1` SelfSubjectReview.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SelfReview {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) status: Option<SelfStatus>,
}

/// SelfSubjectReviewStatus.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SelfStatus {
    #[prost(message, optional, tag = "1")]
    #[serde(default, deserialize_with = "object")]
    pub(super) user_info: Option<UserInfo>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserInfo {
    #[prost(string, optional, tag = "1")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) username: Option<String>,
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) uid: Option<String>,
    #[prost(string, repeated, tag = "3")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[prost(btree_map = "string, message", tag = "4")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra: BTreeMap<String, ExtraValue>,
}

/// `metav1.ObjectMeta`, as far as a review has it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) generate_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) namespace: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) self_link: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(super) uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    pub(super) generation: Option<i64>,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<Time>,
    #[prost(message, repeated, tag = "17")]
    pub(super) managed_fields: Vec<ManagedFields>,
}

impl ObjectMeta {
    /// Returns metadata without managed fields. Those of a Go client that sets none have an empty
    /// `namespace` and no `created`.
    pub(super) fn new(namespace: &str, created: Option<i64>) -> Self {
        let empty = || Some(String::new());
        Self {
            name: empty(),
            generate_name: empty(),
            namespace: Some(namespace.to_owned()),
            self_link: empty(),
            uid: empty(),
            resource_version: empty(),
            generation: Some(0),
            creation_timestamp: Some(created.map_or(Time::default(), Time::new)),
            managed_fields: Vec::new(),
        }
    }
}

/// `metav1.Time`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    nanos: Option<i32>,
}

impl Time {
    pub(super) fn new(seconds: i64) -> Self {
        Self { seconds: Some(seconds), nanos: Some(0) }
    }
}

/// `metav1.ManagedFieldsEntry`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ManagedFields {
    #[prost(string, optional, tag = "1")]
    pub(super) manager: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) operation: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) api_version: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub(super) time: Option<Time>,
    #[prost(string, optional, tag = "6")]
    pub(super) fields_type: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub(super) fields_v1: Option<FieldsV1>,
    #[prost(string, optional, tag = "8")]
    pub(super) subresource: Option<String>,
}

/// `metav1.FieldsV1`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FieldsV1 {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) raw: Option<Bytes>,
}

/// Whether a text is absent or empty. The API server makes no difference.
pub(super) fn is_empty(text: &Option<String>) -> bool {
    text.as_ref().is_none_or(String::is_empty)
}

/// Reads an object or `null`. serde's own structs can be read from an array as well.
pub(super) fn object<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    from.deserialize_any(Object(PhantomData))
}

/// Reads a map that has no key twice, for which the API server would write a warning.
fn unique<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, ExtraValue>, D::Error> {
    struct Unique;
    impl<'de> Visitor<'de> for Unique {
        type Value = BTreeMap<String, ExtraValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut read = BTreeMap::new();
            while let Some((key, value)) = map.next_entry()? {
                if read.insert(key, value).is_some() {
                    return Err(A::Error::custom("a key is there twice"));
                }
            }
            Ok(read)
        }
    }
    from.deserialize_map(Unique)
}
