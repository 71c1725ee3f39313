//! Each view without managed fields equals that of an object that never had any.

use bytes::{Buf as _, Bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use serde_json::json;

use super::*;
use crate::frame::{self, EventType};
use crate::ingest;
use crate::json;
use crate::json::tests::{POD, config_maps, pods, widgets};
use crate::list::{self, ListMeta};
use crate::object::Object;
use crate::protobuf::{UNKNOWN_RAW_TAG, UNKNOWN_TAIL, envelope_head, wire};
use crate::rope::RopeBuilder;
use weir_api::media_type::{Form, View};
use weir_api::resource::Representation;
use weir_api::resource_version::ResourceVersion;

const VIEWS: [View; 2] = [View::Full, View::Metadata];

/// Asserts that `object` without managed fields equals `bare`, which has none, in every form.
fn assert_same(object: Object, bare: Object) {
    let (object, bare) = (std::sync::Arc::new(object), std::sync::Arc::new(bare));
    for view in VIEWS {
        let without = view.without_managed_fields();
        assert_eq!(text(&object.in_view(without).to_vec()), text(&bare.in_view(view).to_vec()));
        assert_eq!(object.list_item(without).to_vec(), bare.list_item(view).to_vec());
        assert_eq!(bare.in_view(without).to_vec(), bare.in_view(view).to_vec());
        assert_eq!(object.dropped(view).length, 0);
        let saved = object.body().len() - object.dropped(without).length as usize;
        // In protobuf the lengths before the metadata may take fewer bytes as well.
        assert!((saved - bare.body().len()) < 8, "{saved}, {}", bare.body().len());
        let frame = |object: &Object, view| frame::encode(EventType::Modified, object, view);
        assert_eq!(frame(&object, without), frame(&bare, view));
        let appended = |object: &Object, view| {
            let mut builder = RopeBuilder::default();
            frame::append(&mut builder, EventType::Added, object, view);
            let mut rope = builder.finish();
            rope.copy_to_bytes(rope.remaining())
        };
        assert_eq!(appended(&object, without), appended(&bare, view));
        let at = ResourceVersion(1 << 40);
        let left = |object: &Object, view| frame::encode_left_selector(object, at, view);
        assert_eq!(left(&object, without), left(&bare, view));
        let form = Form { encoding: object.layout.encoding, view, pretty: false };
        let meta = ListMeta { resource_version: at, ..ListMeta::default() };
        let list = |object, view| {
            let items = vec![std::sync::Arc::clone(object), std::sync::Arc::clone(object)];
            list::encode(&config_maps(), Form { view, ..form }, &meta, items)
        };
        let (short, expected) = (list(&object, without), list(&bare, view));
        assert_eq!(short.len(), expected.len());
        assert_eq!(short.concat(), expected.concat());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_pod_loses_its_managed_fields_and_nothing_else() {
    let (before, rest) = POD.split_once(r#","managedFields""#).unwrap();
    let (_, after) = rest.split_once(r#"},"spec""#).unwrap();
    let bare = format!(r#"{before}}},"spec"{after}"#);
    let read = |text: &str| json::object(text.as_bytes(), &pods()).unwrap();
    assert_eq!(text(&read(POD).in_view(View::FullWithoutManagers).to_vec()), bare);
    assert_same(read(POD), read(&bare));
}

/// No API server writes such objects, and Weir does not guess.
#[test]
fn odd_objects_keep_their_managed_fields() {
    for metadata in [
        r#"{"name":"a","resourceVersion":"1","managedFields": []}"#,
        r#"{"name":"a","resourceVersion":"1" ,"managedFields":[]}"#.replace(" ,", ", ").as_str(),
        r#"{"name":"a","resourceVersion":"1","managedFields":[],"managedFields":[]}"#,
        r#"{"name":"a","resourceVersion":"1","managed\u0046ields":[]}"#,
        r#"{"name":"a","resourceVersion":"1","annotations":{"managedFields":"x"}}"#,
    ] {
        let text = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#);
        let Ok(object) = json::object(text.as_bytes(), &cluster_scoped()) else { continue };
        let view_bytes = object.in_view(View::FullWithoutManagers).to_vec();
        assert_eq!(String::from_utf8(view_bytes).unwrap(), text);
    }
}

fn cluster_scoped() -> weir_api::resource::ApiResource {
    weir_api::resource::ApiResource { namespaced: false, ..config_maps() }
}

/// The part of `ObjectMeta` that matters here.
#[derive(Clone, PartialEq, Message)]
struct Meta {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: std::collections::BTreeMap<String, String>,
    #[prost(bytes = "vec", repeated, tag = "17")]
    managed_fields: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Config {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    data: Option<Vec<u8>>,
}

fn protobuf(metadata: Meta, data: &[u8]) -> Object {
    let raw = Config { metadata: Some(metadata), data: Some(data.to_vec()) }.encode_to_vec();
    let mut body = envelope_head("v1", "ConfigMap");
    wire::push_head(&mut body, UNKNOWN_RAW_TAG, raw.len());
    body.extend_from_slice(&raw);
    body.extend_from_slice(UNKNOWN_TAIL);
    ingest::object(&Bytes::from(body), &config_maps(), Representation::Protobuf).unwrap()
}

#[test]
fn fields_of_protobuf_that_are_not_together_stay() {
    let metadata =
        Meta { name: Some("a".into()), managed_fields: vec![vec![1]], ..Meta::default() };
    let apart = [metadata.encode_to_vec(), metadata.encode_to_vec()].concat();
    assert_eq!(find_fields(&apart), None);
    assert_eq!(find_fields(&[0x88, 0x01, 0x01]), None);
    assert!(find_fields(&metadata.encode_to_vec()).is_some());
}

proptest! {
    /// The model removes the member from a list of members, and from the parsed value.
    #[test]
    fn json_equals_the_object_without_the_member(
        at in 0..6_usize,
        managers in vec("[ -~]{0,40}", 0..4),
        annotation in "[ -~é]{0,3000}",
        is_custom in any::<bool>(),
    ) {
        let managed: Vec<_> = managers
            .iter()
            .map(|manager| json!({"manager": manager, "fieldsV1": {"f:metadata": {manager: {}}}}))
            .collect();
        let member = format!(r#""managedFields":{}"#, serde_json::to_string(&managed).unwrap());
        let annotations = json!({ "a,\"managedFields\":[]": annotation });
        let bare = [
            format!(r#""annotations":{annotations}"#),
            r#""name":"a""#.to_owned(),
            r#""namespace":"n""#.to_owned(),
            r#""ownerReferences":[{"managedFields":[]}]"#.to_owned(),
            r#""resourceVersion":"7""#.to_owned(),
        ];
        let mut with = bare.to_vec();
        with.insert(at.min(bare.len()), member);
        let whole = |members: &[String]| {
            let metadata = members.join(",");
            let text = match is_custom {
                true => format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{{metadata}}},"spec":{{"managedFields":1}}}}"#),
                false => format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{{metadata}}},"data":{{"managedFields":"1"}}}}"#),
            };
            let resource = if is_custom { widgets() } else { config_maps() };
            json::object(text.as_bytes(), &resource).unwrap()
        };
        let (object, bare) = (whole(&with), whole(&bare));
        let mut value: serde_json::Value = serde_json::from_slice(object.body()).unwrap();
        value["metadata"].as_object_mut().unwrap().remove("managedFields").unwrap();
        let view_bytes = object.in_view(View::FullWithoutManagers).to_vec();
        prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&view_bytes).unwrap(), value);
        assert_same(object, bare);
    }

    /// The model encodes the message without the fields.
    #[test]
    fn protobuf_equals_the_message_without_the_fields(
        managers in vec(vec(any::<u8>(), 0..300), 0..4),
        annotation in "[ -~]{0,3000}",
        data in vec(any::<u8>(), 0..20_000),
    ) {
        let bare = Meta {
            name: Some("a".to_owned()),
            namespace: Some("n".to_owned()),
            resource_version: Some("7".to_owned()),
            annotations: [("a".to_owned(), annotation)].into(),
            managed_fields: Vec::new(),
        };
        let with = Meta { managed_fields: managers, ..bare.clone() };
        assert_same(protobuf(with, &data), protobuf(bare, &data));
    }

    /// Nothing that a peer sends is cut outside of the metadata.
    #[test]
    fn any_bytes_are_cut_within_the_metadata(
        body in vec(any::<u8>(), 0..200),
        start in 0..250_usize,
        length in 0..250_usize,
        is_json in any::<bool>(),
    ) {
        let encoding = if is_json { Encoding::Json } else { Encoding::Protobuf };
        let metadata = Span::new(start, length).unwrap();
        let span = find(&body, Layout { encoding, metadata, ..Layout::default() });
        if span.length > 0 {
            prop_assert!(span.start >= metadata.start && span.end() <= metadata.end());
        }
    }
}
