//! Parses what a list in JSON has around its items.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::page::ListPage;
use crate::ingest::IngestError;
use weir_api::resource_version::ResourceVersion;

/// Parses a list without its items.
pub(super) fn parse(envelope: &[u8]) -> Result<ListPage, IngestError> {
    // A derived struct would also be read from an array.
    if !envelope.trim_ascii_start().starts_with(b"{") {
        return Err(IngestError::Malformed);
    }
    let raw: RawList<'_> = serde_json::from_slice(envelope).map_err(|_| IngestError::Malformed)?;
    // Items here would be from an array that was not `items`.
    if raw.items.is_some_and(|items| !items.is_empty()) {
        return Err(IngestError::Malformed);
    }
    let resource_version = ResourceVersion::parse(&raw.metadata.resource_version)
        .ok_or(IngestError::ResourceVersion)?;
    let RawListMeta { continue_token, remaining_item_count, .. } = raw.metadata;
    let (objects, unreadable) = (Vec::new(), Vec::new());
    Ok(ListPage { resource_version, continue_token, remaining_item_count, objects, unreadable })
}

/// A list. Weir would lose any other member.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawList<'a> {
    #[serde(default)]
    metadata: RawListMeta,
    #[serde(default, borrow)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(default, rename = "kind")]
    _kind: IgnoredAny,
    #[serde(default, rename = "apiVersion")]
    _api_version: IgnoredAny,
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
