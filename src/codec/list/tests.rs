//! Tests of parsing and encoding whole lists, and objects for the tests of other modules.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::ingest::{self, IngestError};
use crate::json::tests::{config_maps, widgets};
use crate::object::Object;
use crate::protobuf;
use weir_api::media_type::{Encoding, Form, View};
use weir_api::resource::{ApiResource, Representation};
use weir_api::resource_version::ResourceVersion;

fn parse_as(
    body: &[u8],
    resource: &ApiResource,
    representation: Representation,
) -> Result<ListPage, IngestError> {
    parse(&Bytes::copy_from_slice(body), resource, representation)
}

#[test]
fn a_built_in_list_is_encoded_unchanged() {
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
        first.body(),
        br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"9"},"data":{"k":"v"}}"#
    );
    assert_eq!(joined(&config_maps(), page), text);
}

/// The list of a custom resource: its keys are sorted, so that its metadata is at the end.
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
fn metadata_lists_are_typed_for_all_resources() {
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

/// As kube-apiserver 1.36.2 wrote them: only a list of built-in objects shows its shard selector.
#[test]
fn a_list_of_a_shard_shows_its_selector() {
    let shard = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    let meta = ListMeta {
        resource_version: ResourceVersion(7),
        continue_token: "abc".to_owned(),
        remaining_item_count: Some(3),
        shard_selector: shard.to_owned(),
    };
    let metadata = Form { view: View::Metadata, ..Form::JSON };
    let text = |resource: &ApiResource, form| {
        String::from_utf8_lossy(&encode(resource, form, &meta, Vec::new()).concat()).into_owned()
    };
    let whole = text(&config_maps(), Form::JSON);
    let shown = format!(
        r#""continue":"abc","remainingItemCount":3,"shardInfo":{{"selector":"{shard}"}}}},"#
    );
    assert!(whole.contains(&shown), "{whole}");
    let protobuf = Form { encoding: Encoding::Protobuf, ..Form::JSON };
    assert!(text(&config_maps(), protobuf).contains(&format!("\u{3}*M\nK{shard}")));
    for hidden in [
        text(&widgets(), Form::JSON),
        text(&config_maps(), metadata),
        text(&config_maps(), Form { encoding: Encoding::Protobuf, ..metadata }),
    ] {
        assert!(!hidden.contains("shard"), "{hidden}");
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
        let refused = parse_as(text.as_bytes(), &config_maps(), Representation::Json).unwrap_err();
        assert_eq!(refused, IngestError::ResourceVersion);
    }
    for text in [
        "<html>",
        r#"{"metadata":{"resourceVersion":"7"},"items":[],"more":1}"#,
        r#"{"metadata":{"resourceVersion":"7"},"items":[],"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"7"},"metadata":{},"items":[]}"#,
    ] {
        let refused = parse_as(text.as_bytes(), &config_maps(), Representation::Json).unwrap_err();
        assert_eq!(refused, IngestError::Malformed, "{text}");
    }
}

/// Returns a list item whose name and resourceVersion are made from a number.
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
