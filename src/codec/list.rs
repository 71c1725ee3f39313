//! Lists: taken apart when they come from the upstream, spliced together for a client.

mod encode;
mod reader;
mod spliced;

use std::fmt;

use bytes::Bytes;
use prost::Message;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use self::encode::encode;
pub use self::reader::{ListError, ListReader};
pub use self::spliced::{ItemFormat, Pieces, SplicedList};
use crate::api::media_type::Encoding;
use crate::api::resource::{ApiResource, Representation};
use crate::api::resource_version::ResourceVersion;
use crate::codec::ingest::{self, IngestError};
use crate::codec::object::Object;
use crate::codec::protobuf;
use crate::codec::protobuf::wire::Fields;

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

/// Takes a whole list body apart. The order of its keys or fields does not matter, but one that is not known does: it would be lost.
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

fn parse_json(
    body: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    let raw: RawList<'_> = serde_json::from_slice(body).map_err(|_| IngestError::Malformed)?;
    let resource_version = ResourceVersion::parse(&raw.metadata.resource_version)
        .ok_or(IngestError::ResourceVersion)?;
    let objects = raw
        .items
        .iter()
        .map(|item| ingest::list_item(item.get().as_bytes(), resource, representation))
        .collect::<Result<_, _>>()?;
    Ok(ListPage { resource_version, continue_token: raw.metadata.continue_token, objects })
}

fn parse_protobuf(
    body: &Bytes,
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    let (_, raw) = protobuf::decode_envelope(body).ok_or(IngestError::Malformed)?;
    let mut meta = None;
    let mut objects = Vec::new();
    for field in Fields::new(&raw) {
        let field = field?;
        match field.number {
            LIST_META if meta.is_none() => {
                let read = protobuf::ListMeta::decode(field.bytes()?);
                meta = Some(read.map_err(|_| IngestError::Malformed)?);
            }
            ITEMS => {
                objects.push(ingest::list_item(field.bytes()?, resource, representation)?);
            }
            _ => return Err(IngestError::Malformed),
        }
    }
    let meta = meta.unwrap_or_default();
    let resource_version = ResourceVersion::parse(&meta.resource_version.unwrap_or_default())
        .ok_or(IngestError::ResourceVersion)?;
    let continue_token = meta.continue_token.unwrap_or_default();
    Ok(ListPage { resource_version, continue_token, objects })
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
        let (mut metadata, mut items) = (None, None);
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                "metadata" if metadata.is_none() => metadata = Some(map.next_value()?),
                "items" if items.is_none() => {
                    items = Some(map.next_value::<Option<_>>()?.unwrap_or_default());
                }
                "kind" | "apiVersion" => {
                    map.next_value::<IgnoredAny>()?;
                }
                // What a list made here would lack.
                _ => return Err(A::Error::custom("not a member of a list")),
            }
        }
        Ok(RawList { metadata: metadata.unwrap_or_default(), items: items.unwrap_or_default() })
    }
}

/// The fields of every list, but of one kind that is never asked for upstream.
const LIST_META: u32 = 1;
const ITEMS: u32 = 2;

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::media_type::{Form, View};
    use crate::codec::json::tests::{config_maps, widgets};

    fn parse_as(
        body: &[u8],
        resource: &ApiResource,
        representation: Representation,
    ) -> Result<ListPage, IngestError> {
        parse(&Bytes::copy_from_slice(body), resource, representation)
    }

    #[test]
    fn a_built_in_list_goes_through_unchanged() {
        let text = concat!(
            r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"232"},"items":["#,
            r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v"}},"#,
            r#"{"metadata":{"name":"b","namespace":"n","resourceVersion":"10"}}]}"#,
            "\n"
        );
        let page = parse_as(text.as_bytes(), &config_maps(), Representation::Json).unwrap();
        assert_eq!(page.resource_version, ResourceVersion(232));
        assert_eq!(page.continue_token, "");
        let first = &page.objects[0];
        assert_eq!(
            first.body,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v"}}"#
        );
        assert_eq!(joined(&config_maps(), page), text);
    }

    /// As custom resources are listed: keys in order, so that the list's metadata stands at its end.
    pub(super) const WIDGET_LIST: &str = concat!(
        r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget","#,
        r#""metadata":{"name":"w","namespace":"n","resourceVersion":"5"},"spec":{"color":"red"}}],"#,
        r#""kind":"WidgetList","metadata":{"continue":"","resourceVersion":"262"}}"#,
        "\n"
    );

    #[test]
    fn a_custom_list_keeps_its_sorted_keys() {
        let text = WIDGET_LIST;
        let page = parse_as(text.as_bytes(), &widgets(), Representation::Json).unwrap();
        assert_eq!(joined(&widgets(), page), text);
    }

    #[test]
    fn an_empty_list_has_empty_items() {
        let page = parse_as(
            br#"{"metadata":{"resourceVersion":"7"},"items":null}"#,
            &config_maps(),
            Representation::Json,
        );
        let text = joined(&config_maps(), page.unwrap());
        assert_eq!(
            text,
            "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[]}\n"
        );
    }

    #[test]
    fn metadata_lists_are_typed_whatever_the_resource() {
        let item = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w","namespace":"n","resourceVersion":"5"}}"#;
        let one = format!("[{item}]");
        for items in ["null", &one] {
            let body = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":{items}}}\n"
            );
            let page = parse_as(body.as_bytes(), &widgets(), Representation::MetadataJson).unwrap();
            let meta = ListMeta { resource_version: page.resource_version, ..ListMeta::default() };
            let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
            let form = Form { view: View::Metadata, ..Form::JSON };
            let encoded = encode(&widgets(), form, &meta, objects).concat();
            assert_eq!(String::from_utf8(encoded).unwrap(), body);
        }
    }

    #[test]
    fn a_page_keeps_its_token() {
        let page = parse_as(
            br#"{"metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[]}"#,
            &config_maps(),
            Representation::Json,
        );
        assert_eq!(page.unwrap().continue_token, "abc");
    }

    #[test]
    fn a_list_without_a_numeric_resource_version_is_refused() {
        for text in [r#"{"items":[]}"#, r#"{"metadata":{"resourceVersion":"x"},"items":[]}"#] {
            let refused =
                parse_as(text.as_bytes(), &config_maps(), Representation::Json).unwrap_err();
            assert_eq!(refused, IngestError::ResourceVersion);
        }
        for text in [
            "<html>",
            r#"{"metadata":{"resourceVersion":"7"},"items":[],"more":1}"#,
            r#"{"metadata":{"resourceVersion":"7"},"items":[],"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"7"},"metadata":{},"items":[]}"#,
        ] {
            let refused =
                parse_as(text.as_bytes(), &config_maps(), Representation::Json).unwrap_err();
            assert_eq!(refused, IngestError::Malformed, "{text}");
        }
    }

    /// A list's item whose name and resourceVersion are made of a number.
    pub(crate) fn config_map(encoding: Encoding, number: usize, data: &str) -> Arc<Object> {
        let (name, version) = (format!("n{number:06}"), (number + 1).to_string());
        let object = match encoding {
            Encoding::Json => {
                let text = format!(
                    r#"{{"metadata":{{"name":"{name}","namespace":"x","resourceVersion":"{version}"}},"data":{{"k":"{data}"}}}}"#
                );
                ingest::list_item(text.as_bytes(), &config_maps(), Representation::Json)
            }
            Encoding::Protobuf => {
                let item = protobuf::tests::config_map_item(&name, &version, data);
                ingest::list_item(&item, &config_maps(), Representation::Protobuf)
            }
        };
        Arc::new(object.unwrap())
    }

    fn joined(resource: &ApiResource, page: ListPage) -> String {
        let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
        let meta = ListMeta { resource_version: page.resource_version, ..ListMeta::default() };
        String::from_utf8(encode(resource, Form::JSON, &meta, objects).concat()).unwrap()
    }
}
