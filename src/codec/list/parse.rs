//! Parses lists as a whole.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use prost::Message;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::page::{ListPage, ListedObjects};
use super::reader::{ListError, ListReader};
use crate::api::media_type::Encoding;
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::codec::ingest::{self, IngestError};
use crate::codec::protobuf;
use crate::codec::protobuf::wire::Fields;

/// Parses the whole body of a list. The order of its keys or fields does not matter. An unknown key
/// or field is an error, since Weir would lose it.
pub fn parse(
    body: &Bytes,
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    match representation.encoding() {
        Encoding::Json => parse_json(body, resource, representation),
        Encoding::Protobuf => parse_protobuf(body, resource, representation),
    }
}

pub(super) fn parse_json(
    body: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    let (mut reader, mut listed) = (ListReader::new(usize::MAX), ListedObjects::default());
    let read = reader.push(body, resource, representation, |object| listed.push(object));
    let page = read.and_then(|()| reader.finish()).map_err(|error| match error {
        ListError::Ingest(error) => error,
        ListError::TooLong(_) => IngestError::Malformed,
    })?;
    let ListedObjects { objects, unreadable } = listed;
    Ok(ListPage { objects, unreadable, ..page })
}

/// Parses a list without its items.
pub(super) fn parse_envelope(envelope: &[u8]) -> Result<ListPage, IngestError> {
    let raw: RawList<'_> = serde_json::from_slice(envelope).map_err(|_| IngestError::Malformed)?;
    // Items here would be from an array that was not `items`.
    if !raw.items.is_empty() {
        return Err(IngestError::Malformed);
    }
    let resource_version = ResourceVersion::parse(&raw.metadata.resource_version)
        .ok_or(IngestError::ResourceVersion)?;
    let RawListMeta { continue_token, remaining_item_count, .. } = raw.metadata;
    let (objects, unreadable) = (Vec::new(), Vec::new());
    Ok(ListPage { resource_version, continue_token, remaining_item_count, objects, unreadable })
}

fn parse_protobuf(
    body: &Bytes,
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    let (_, raw) = protobuf::decode_envelope(body).ok_or(IngestError::Malformed)?;
    let mut meta = None;
    let mut listed = ListedObjects::default();
    for field in Fields::new(&raw) {
        let field = field?;
        match field.number {
            LIST_META if meta.is_none() => {
                let read = protobuf::ListMeta::decode(field.bytes()?);
                meta = Some(read.map_err(|_| IngestError::Malformed)?);
            }
            ITEMS => {
                listed.push(ingest::any_list_item(field.bytes()?, resource, representation)?);
            }
            _ => return Err(IngestError::Malformed),
        }
    }
    let meta = meta.unwrap_or_default();
    let resource_version = ResourceVersion::parse(&meta.resource_version.unwrap_or_default())
        .ok_or(IngestError::ResourceVersion)?;
    let continue_token = meta.continue_token.unwrap_or_default();
    let remaining_item_count =
        meta.remaining_item_count.and_then(|count| u64::try_from(count).ok());
    let ListedObjects { objects, unreadable } = listed;
    Ok(ListPage { resource_version, continue_token, remaining_item_count, objects, unreadable })
}

struct RawList<'a> {
    metadata: RawListMeta,
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RawListMeta {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
    #[serde(default, rename = "remainingItemCount")]
    remaining_item_count: Option<u64>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawListVisitor)
    }
}

struct RawListVisitor;

impl<'de> Visitor<'de> for RawListVisitor {
    type Value = RawList<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut metadata, mut items) = (None, None);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "metadata" if metadata.is_none() => metadata = Some(map.next_value()?),
                "items" if items.is_none() => {
                    items = Some(map.next_value::<Option<_>>()?.unwrap_or_default());
                }
                "kind" | "apiVersion" => {
                    map.next_value::<IgnoredAny>()?;
                }
                // Weir would lose it.
                _ => return Err(A::Error::custom("not a member of a list")),
            }
        }
        Ok(RawList { metadata: metadata.unwrap_or_default(), items: items.unwrap_or_default() })
    }
}

/// The fields of every list that Weir requests.
const LIST_META: u32 = 1;
const ITEMS: u32 = 2;
