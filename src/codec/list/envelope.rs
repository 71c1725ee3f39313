//! Parses what a list in JSON has around its items.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::page::ListPage;
use crate::ingest::IngestError;
use weir_api::resource_version::ResourceVersion;

/// Parses a list without its items.
pub(super) fn parse(envelope: &[u8]) -> Result<ListPage, IngestError> {
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
