//! Lists: taken apart when they come from the upstream, spliced together for a client.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::api::resource::{ApiResource, Shape};
use crate::api::resource_version::ResourceVersion;
use crate::codec::json::{self, IngestError};
use crate::codec::object::Object;

/// A list's metadata and its objects.
#[derive(Debug)]
pub struct ListPage {
    /// The list's resourceVersion.
    pub resource_version: ResourceVersion,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// The objects, each in an allocation of its own.
    pub objects: Vec<Object>,
}

/// Takes a whole JSON list body apart. The order of its keys does not matter.
pub fn parse(body: &[u8], resource: &ApiResource) -> Result<ListPage, IngestError> {
    let raw: RawList<'_> = serde_json::from_slice(body).map_err(|_| IngestError::Malformed)?;
    let resource_version = ResourceVersion::parse(&raw.metadata.resource_version)
        .ok_or(IngestError::ResourceVersion)?;
    let objects = raw
        .items
        .iter()
        .map(|item| json::list_item(item.get().as_bytes(), resource))
        .collect::<Result<_, _>>()?;
    Ok(ListPage { resource_version, continue_token: raw.metadata.continue_token, objects })
}

/// What a list says of itself (semantics.md §3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The list's resourceVersion.
    pub resource_version: ResourceVersion,
    /// The token for the next page; empty on the last.
    pub continue_token: String,
    /// How many objects follow this page; only with a token and without selectors.
    pub remaining_item_count: Option<u64>,
}

/// Splices a compact JSON list with its trailing newline, exactly as the upstream writes it for the
/// resource's shape (semantics.md §3.6), gathered into chunks of about [`CHUNK_BYTES`].
pub fn encode(resource: &ApiResource, meta: &ListMeta, objects: &[Arc<Object>]) -> Vec<Bytes> {
    let (head, tail) = envelope(resource, meta);
    let total: usize = objects.iter().map(|object| object.body.len() + 1).sum();
    let mut chunks = Vec::with_capacity(total / CHUNK_BYTES + 1);
    let mut chunk = Vec::with_capacity((head.len() + total + tail.len()).min(CHUNK_BYTES * 2));
    chunk.extend_from_slice(head.as_bytes());
    for (index, object) in objects.iter().enumerate() {
        if chunk.len() >= CHUNK_BYTES {
            chunks.push(Bytes::from(std::mem::take(&mut chunk)));
            chunk.reserve(CHUNK_BYTES + object.body.len() + 2);
        }
        if index > 0 {
            chunk.push(b',');
        }
        let (lead, rest) = object.list_item();
        chunk.extend_from_slice(lead);
        chunk.extend_from_slice(rest);
    }
    chunk.extend_from_slice(tail.as_bytes());
    chunks.push(Bytes::from(chunk));
    chunks
}

/// What stands before the first object and after the last.
fn envelope(resource: &ApiResource, meta: &ListMeta) -> (String, String) {
    // A token is base64url: nothing in it needs an escape.
    let ListMeta { resource_version, continue_token, remaining_item_count } = meta;
    let remaining = remaining_item_count
        .map_or_else(String::new, |count| format!(r#","remainingItemCount":{count}"#));
    let api_version = resource.gvr.api_version();
    let list_kind = &resource.list_kind;
    match resource.shape {
        Shape::BuiltIn => {
            let token = if continue_token.is_empty() {
                String::new()
            } else {
                format!(r#","continue":"{continue_token}""#)
            };
            (
                format!(
                    r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{resource_version}"{token}{remaining}}},"items":["#
                ),
                "]}\n".to_owned(),
            )
        }
        Shape::Custom => (
            format!(r#"{{"apiVersion":"{api_version}","items":["#),
            format!(
                r#"],"kind":"{list_kind}","metadata":{{"continue":"{continue_token}"{remaining},"resourceVersion":"{resource_version}"}}}}{}"#,
                '\n'
            ),
        ),
    }
}

#[derive(Default)]
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
        let mut list = RawList::default();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                "metadata" => list.metadata = map.next_value()?,
                "items" => list.items = map.next_value::<Option<_>>()?.unwrap_or_default(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(list)
    }
}

/// Large enough that a list of thousands of objects is few writes, small enough that the first bytes leave soon.
pub const CHUNK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json::tests::{config_maps, widgets};

    #[test]
    fn a_built_in_list_goes_through_unchanged() {
        let text = concat!(
            r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"232"},"items":["#,
            r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v"}},"#,
            r#"{"metadata":{"name":"b","namespace":"n","resourceVersion":"10"}}]}"#,
            "\n"
        );
        let page = parse(text.as_bytes(), &config_maps()).unwrap();
        assert_eq!(page.resource_version, ResourceVersion(232));
        assert_eq!(page.continue_token, "");
        let first = &page.objects[0];
        assert_eq!(
            first.body,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v"}}"#
        );
        assert_eq!(joined(&config_maps(), page), text);
    }

    #[test]
    fn a_custom_list_keeps_its_sorted_keys() {
        let text = concat!(
            r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","#,
            r#""metadata":{"name":"w","namespace":"n","resourceVersion":"5"},"spec":{"color":"red"}}],"#,
            r#""kind":"WidgetList","metadata":{"continue":"","resourceVersion":"262"}}"#,
            "\n"
        );
        let page = parse(text.as_bytes(), &widgets()).unwrap();
        assert_eq!(joined(&widgets(), page), text);
    }

    #[test]
    fn an_empty_list_has_empty_items() {
        let page = parse(br#"{"metadata":{"resourceVersion":"7"},"items":null}"#, &config_maps());
        let text = joined(&config_maps(), page.unwrap());
        assert_eq!(
            text,
            "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[]}\n"
        );
    }

    #[test]
    fn a_page_keeps_its_token() {
        let page = parse(
            br#"{"metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[]}"#,
            &config_maps(),
        );
        assert_eq!(page.unwrap().continue_token, "abc");
    }

    #[test]
    fn a_list_without_a_numeric_resource_version_is_refused() {
        for text in [r#"{"items":[]}"#, r#"{"metadata":{"resourceVersion":"x"},"items":[]}"#] {
            let refused = parse(text.as_bytes(), &config_maps()).unwrap_err();
            assert_eq!(refused, IngestError::ResourceVersion);
        }
        assert_eq!(parse(b"<html>", &config_maps()).unwrap_err(), IngestError::Malformed);
    }

    #[test]
    fn large_lists_come_in_chunks() {
        let item = |n: usize| {
            format!(
                r#"{{"metadata":{{"name":"n{n}","namespace":"x","resourceVersion":"{n}"}},"data":"{}"}}"#,
                "x".repeat(9_000)
            )
        };
        let items: Vec<_> = (1..100).map(item).collect();
        let text = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"100"}},"items":[{}]}}{}"#,
            items.join(","),
            "\n"
        );
        let page = parse(text.as_bytes(), &config_maps()).unwrap();
        let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
        let meta = ListMeta { resource_version: page.resource_version, ..ListMeta::default() };
        let chunks = encode(&config_maps(), &meta, &objects);
        assert!(chunks.len() > 2);
        assert!(chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK_BYTES));
        assert_eq!(chunks.concat(), text.as_bytes());
    }

    fn joined(resource: &ApiResource, page: ListPage) -> String {
        let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
        let meta = ListMeta { resource_version: page.resource_version, ..ListMeta::default() };
        String::from_utf8(encode(resource, &meta, &objects).concat()).unwrap()
    }
}
