//! Tests of protobuf, against an encoder of their own and the bytes of a real API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::frame::{self, EventType, FrameSplitter};
use crate::ingest::{self, IngestError};
use crate::json::tests::{config_maps, pods, widgets};
use crate::list;
use crate::object::Object;
use crate::splice;
use weir_api::media_type::{Encoding, Form, View};
use weir_api::resource::{ApiResource, Representation};
use weir_api::resource_version::ResourceVersion;
use weir_api::status;

/// The part of `ObjectMeta` that the tests need. Its maps are sorted, as the API server sorts them.
#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    generate_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    generation: Option<i64>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

/// A kind with data.
#[derive(Clone, PartialEq, Message)]
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
}

fn meta(name: &str, resource_version: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        generate_name: Some(String::new()),
        namespace: Some("n".to_owned()),
        resource_version: Some(resource_version.to_owned()),
        generation: Some(0),
        labels: BTreeMap::from([("app".to_owned(), "x".to_owned())]),
        annotations: BTreeMap::new(),
    }
}

fn config_map(metadata: ObjectMeta, data: &str) -> Vec<u8> {
    let data = BTreeMap::from([("k".to_owned(), data.to_owned())]);
    ConfigMap { metadata: Some(metadata), data }.encode_to_vec()
}

/// Returns a list item.
pub(crate) fn config_map_item(name: &str, resource_version: &str, data: &str) -> Vec<u8> {
    config_map(meta(name, resource_version), data)
}

/// Encodes an envelope as the API server does.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta =
        TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) };
    let unknown = Unknown {
        type_meta: Some(type_meta),
        raw: Some(Bytes::copy_from_slice(raw)),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

#[test]
fn the_head_of_an_envelope_is_its_beginning() {
    for api_version in ["v1", "apps/v1", &"g".repeat(200)] {
        let whole = envelope(api_version, "Kind", b"raw");
        let head = envelope_head(api_version, "Kind");
        assert_eq!(whole.strip_prefix(&head[..]), Some(&b"\x12\x03raw\x1a\0\x22\0"[..]));
    }
}

fn read(bytes: &[u8], resource: &ApiResource) -> Result<Object, IngestError> {
    ingest::object(bytes, resource, Representation::Protobuf)
}

#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, optional, tag = "1")]
    event: Option<String>,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", optional, tag = "1")]
    raw: Option<Bytes>,
}

fn watch_event(event: &str, object: Vec<u8>) -> Vec<u8> {
    let object = Some(RawExtension { raw: Some(object.into()) });
    let message = WatchEvent { event: Some(event.to_owned()), object }.encode_to_vec();
    [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
}

const METADATA: View = View::Metadata;

fn partial(metadata: &ObjectMeta) -> Vec<u8> {
    ConfigMap { metadata: Some(metadata.clone()), data: BTreeMap::new() }.encode_to_vec()
}

#[test]
fn a_list_item_and_an_event_parse_to_the_same_object() {
    let raw = config_map(meta("a", "9999"), "v");
    let body = envelope("v1", "ConfigMap", &raw);
    let object = read(&body, &config_maps()).unwrap();
    assert_eq!((object.key.as_str(), object.resource_version), ("n/a", ResourceVersion(9999)));
    assert_eq!(object.attrs().labels().collect::<Vec<_>>(), [(&b"app"[..], &b"x"[..])]);
    let item = ingest::list_item(&raw, &config_maps(), Representation::Protobuf).unwrap();
    assert_eq!((item.body(), item.layout), (object.body(), object.layout));
    assert_eq!(object.body(), body);
    assert_eq!(object.list_item(View::Full).to_vec(), raw);
    assert_eq!(
        object.in_view(METADATA).to_vec(),
        envelope("meta.k8s.io/v1", "PartialObjectMetadata", &partial(&meta("a", "9999")))
    );
    assert_eq!(object.list_item(METADATA).to_vec(), partial(&meta("a", "9999")));
}

/// The length of the number changes the lengths of all fields that contain it, also where they
/// cross the sizes of a length's own encoding.
#[test]
fn a_deleted_object_gets_the_events_resource_version() {
    for length in (0..200).chain(16_150..16_400) {
        let data = "x".repeat(length);
        let body = envelope("v1", "ConfigMap", &config_map(meta("a", "9999"), &data));
        let object = read(&body, &config_maps()).unwrap();
        for number in [1, 9998, 10_000, u64::MAX] {
            let number = ResourceVersion(number);
            let moved = meta("a", &number.to_string());
            let full = envelope("v1", "ConfigMap", &config_map(moved.clone(), &data));
            assert_eq!(
                frame::encode_left_selector(&object, number, View::Full),
                watch_event("DELETED", full.clone())
            );
            let metadata = envelope("meta.k8s.io/v1", "PartialObjectMetadata", &partial(&moved));
            let left = frame::encode_left_selector(&object, number, METADATA);
            assert_eq!(left, watch_event("DELETED", metadata));
            let (_, layout) = splice::with_resource_version(object.body(), object.layout, number);
            assert_eq!(layout, read(&full, &config_maps()).unwrap().layout);
        }
    }
}

#[test]
fn metadata_that_crosses_the_size_of_a_length_is_spliced() {
    for length in (0..130).chain(16_200..16_400) {
        let with = |number: &str| ObjectMeta {
            annotations: BTreeMap::from([("a".to_owned(), "y".repeat(length))]),
            ..meta("a", number)
        };
        let body = envelope("v1", "ConfigMap", &config_map(with("9999"), ""));
        let object = read(&body, &config_maps()).unwrap();
        let left = frame::encode_left_selector(&object, ResourceVersion(10_000), METADATA);
        let expected =
            envelope("meta.k8s.io/v1", "PartialObjectMetadata", &partial(&with("10000")));
        assert_eq!(left, watch_event("DELETED", expected));
        let left = frame::encode_left_selector(&object, ResourceVersion(10_000), View::Full);
        let expected = envelope("v1", "ConfigMap", &config_map(with("10000"), ""));
        assert_eq!(left, watch_event("DELETED", expected));
    }
}

#[test]
fn lists_are_encoded_unchanged() {
    // The example of `docs/semantics.md` §5.3.
    let empty = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dConfigMapList\x12\x0c\x0a\x0a\x0a\0\x12\x041234\x1a\0\x1a\0\x22\0";
    let pages: &[(&[u8], usize)] = &[(empty, 0), (&two(), 2)];
    for (body, count) in pages {
        let page =
            list::parse(&Bytes::copy_from_slice(body), &config_maps(), Representation::Protobuf)
                .unwrap();
        assert_eq!(page.objects.len(), *count);
        let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
        let meta = list::ListMeta {
            resource_version: page.resource_version,
            continue_token: page.continue_token,
            remaining_item_count: (*count > 0).then_some(7),
            ..list::ListMeta::default()
        };
        let form = Form { encoding: Encoding::Protobuf, ..Form::JSON };
        assert_eq!(list::encode(&config_maps(), form, &meta, objects).concat(), *body);
    }
}

fn two() -> Vec<u8> {
    let list_meta = ListMeta {
        self_link: Some(String::new()),
        resource_version: Some("12".to_owned()),
        continue_token: Some("token".to_owned()),
        remaining_item_count: Some(7),
        shard_info: None,
    };
    let raw = List {
        metadata: Some(list_meta),
        items: vec![config_map(meta("a", "9"), "v"), config_map(meta("b", "10"), "w")],
    };
    envelope("v1", "ConfigMapList", &raw.encode_to_vec())
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
}

#[test]
fn the_order_of_a_lists_fields_does_not_matter() {
    let item = config_map(meta("a", "9"), "v");
    let list_meta = ListMeta { resource_version: Some("12".to_owned()), ..ListMeta::default() };
    let mut raw = List { metadata: None, items: vec![item] }.encode_to_vec();
    raw.extend(List { metadata: Some(list_meta), items: Vec::new() }.encode_to_vec());
    let parse = |raw: &[u8]| {
        let body = envelope("v1", "ConfigMapList", raw).into();
        list::parse(&body, &config_maps(), Representation::Protobuf)
    };
    let page = parse(&raw).unwrap();
    assert_eq!((page.resource_version, page.objects.len()), (ResourceVersion(12), 1));
    // Weir would lose these: another field, and a second metadata field.
    for more in [&b"\x1a\x01x"[..], b"\x0a\x03\x1a\x01t"] {
        let refused = parse(&[&raw, more].concat()).unwrap_err();
        assert_eq!(refused, IngestError::Malformed);
    }
}

#[test]
fn metadata_lists_are_of_bare_objects() {
    let body = Bytes::from(two());
    let page = list::parse(&body, &config_maps(), Representation::Protobuf).unwrap();
    let objects: Vec<_> = page.objects.into_iter().map(Arc::new).collect();
    let meta_of_list =
        list::ListMeta { resource_version: ResourceVersion(12), ..list::ListMeta::default() };
    let form = Form { encoding: Encoding::Protobuf, view: METADATA, pretty: false };
    let encoded = list::encode(&config_maps(), form, &meta_of_list, objects).concat();
    let raw = List {
        metadata: Some(ListMeta {
            self_link: Some(String::new()),
            resource_version: Some("12".to_owned()),
            continue_token: Some(String::new()),
            remaining_item_count: None,
            shard_info: None,
        }),
        items: vec![partial(&meta("a", "9")), partial(&meta("b", "10"))],
    };
    let expected = envelope("meta.k8s.io/v1", "PartialObjectMetadataList", &raw.encode_to_vec());
    assert_eq!(encoded, expected);
    // The metadata of custom resources is read in this form.
    let read = list::parse(&encoded.into(), &widgets(), Representation::MetadataProtobuf).unwrap();
    assert_eq!(read.objects[0].in_view(METADATA).to_vec(), read.objects[0].body());
}

#[test]
fn objects_that_cannot_be_spliced_are_rejected() {
    let good = envelope("v1", "ConfigMap", &config_map(meta("a", "9"), "v"));
    assert!(read(&good, &config_maps()).is_ok());
    let refused = |bytes: &[u8]| read(bytes, &config_maps()).unwrap_err();
    assert_eq!(refused(&good[..good.len() - 1]), IngestError::Malformed);
    assert_eq!(refused(&good[4..]), IngestError::Malformed);
    let other = envelope("v1", "Secret", &config_map(meta("a", "9"), "v"));
    assert_eq!(refused(&other), IngestError::Malformed);
    let raw = config_map(meta("a", "9"), "v");
    let twice = envelope("v1", "ConfigMap", &[&raw[..], &raw].concat());
    assert_eq!(refused(&twice), IngestError::Malformed);
    // Fields between the kind and the object: another kind, and a field number that is invalid.
    let (head, rest) = good.split_at(envelope_head("v1", "ConfigMap").len());
    let other = Unknown { type_meta: Some(TypeMeta::default()), ..Unknown::default() };
    for between in [&other.encode_to_vec()[..], b"\x1a\0", b"\x80\x80\x80\x80\x20\0"] {
        assert_eq!(refused(&[head, between, rest].concat()), IngestError::Malformed);
    }
    // A length of two bytes where one suffices.
    let metadata = meta("a", "9").encode_to_vec();
    let long = [&[0x0a, 0x80 | metadata.len() as u8, 0][..], &metadata].concat();
    assert_eq!(refused(&envelope("v1", "ConfigMap", &long)), IngestError::Malformed);
    // Fields of the envelope between the kind and the object, known and unknown.
    for between in [&b"\x1a\0"[..], b"\x4a\x01x", b"\x0a\x04\x0a\x02v2"] {
        let mut body = [&envelope_head("v1", "ConfigMap"), between].concat();
        wire::push_head(&mut body, UNKNOWN_RAW_TAG, raw.len());
        let body = [&body, &raw[..], UNKNOWN_TAIL].concat();
        assert_eq!(refused(&body), IngestError::Malformed);
    }
    for (metadata, error) in [
        (ObjectMeta { resource_version: None, ..meta("a", "9") }, IngestError::ResourceVersion),
        (meta("a", "x"), IngestError::ResourceVersion),
        (meta("", "9"), IngestError::Name),
        (ObjectMeta { namespace: None, ..meta("a", "9") }, IngestError::Name),
    ] {
        let body = envelope("v1", "ConfigMap", &config_map(metadata, "v"));
        assert_eq!(refused(&body), error);
    }
}

#[test]
fn the_last_value_of_a_label_or_name_counts_and_a_second_resource_version_is_refused() {
    let pair = |key: &[u8], value: &[u8]| [text_field(1, key), text_field(2, value)].concat();
    let labels = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"a", b"4"), (b"c", b"5")];
    let metadata = |more: &[u8]| {
        let labels = labels.map(|(key, value)| text_field(11, &pair(key, value))).concat();
        let names = [text_field(1, b"x"), text_field(1, b"p"), text_field(3, b"n")].concat();
        let raw = [&names[..], &labels, &text_field(6, b"9"), more].concat();
        envelope("v1", "ConfigMap", &text_field(1, &raw))
    };
    let object = read(&metadata(b""), &config_maps()).unwrap();
    let expected = [(&b"a"[..], &b"4"[..]), (b"b", b"3"), (b"c", b"5")];
    assert_eq!(object.attrs().labels().collect::<Vec<_>>(), expected);
    assert_eq!(object.key.as_str(), "n/p");
    let twice = read(&metadata(&text_field(6, b"9")), &config_maps());
    assert_eq!(twice.unwrap_err(), IngestError::Malformed);
}

#[derive(Clone, PartialEq, Message)]
struct Pod {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSpec {
    #[prost(string, optional, tag = "10")]
    node_name: Option<String>,
    #[prost(bool, optional, tag = "11")]
    host_network: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct PodStatus {
    #[prost(string, optional, tag = "1")]
    phase: Option<String>,
}

#[test]
fn selectable_fields_are_read() {
    let pod = Pod {
        metadata: Some(meta("p", "9")),
        spec: Some(PodSpec { node_name: Some("n1".to_owned()), host_network: Some(true) }),
        status: Some(PodStatus { phase: Some("Running".to_owned()) }),
    };
    let body = envelope("v1", "Pod", &pod.encode_to_vec());
    let object = read(&body, &pods()).unwrap();
    let value = |label: &str| {
        let sources = pods();
        let index = sources.selectable.sources().iter().position(|s| &*s.label == label).unwrap();
        String::from_utf8(object.attrs().field(index).to_owned()).unwrap()
    };
    assert_eq!(value("spec.nodeName"), "n1");
    assert_eq!(value("spec.hostNetwork"), "true");
    assert_eq!(value("status.phase"), "Running");
    assert_eq!(value("status.podIP"), "");
    assert_eq!(value("status.podIPs"), "");
}

/// A string of protobuf is the bytes that a client sent.
fn text_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    wire::push_head(&mut field, number << 3 | 2, bytes.len());
    [field, bytes.to_vec()].concat()
}

#[test]
fn only_names_must_be_utf8() {
    let pair = |key: &[u8], value: &[u8]| [text_field(1, key), text_field(2, value)].concat();
    let pod = |name: &[u8], node: &[u8]| {
        let metadata = [
            text_field(1, name),
            text_field(3, b"n"),
            text_field(5, b"u"),
            text_field(6, b"9"),
            text_field(11, &pair(b"app", b"x\xff")),
            text_field(12, &pair(b"odd", b"\xff\xfe")),
        ];
        let spec = text_field(10, node);
        [text_field(1, &metadata.concat()), text_field(2, &spec)].concat()
    };
    let raw = pod(b"p", b"n\xff");
    let object = read(&envelope("v1", "Pod", &raw), &pods()).unwrap();
    assert_eq!(object.attrs().label("app"), Some(&b"x\xff"[..]));
    let selectable = pods().selectable;
    let selects = |text: &str| {
        let selector = weir_api::selector::field::FieldSelector::parse(text, &selectable);
        selector.unwrap().matches(b"p", b"n", |number| object.attrs().field(number))
    };
    assert!(selects("spec.nodeName!=n") && !selects("spec.nodeName=n\u{fffd}"));
    let item = ingest::list_item(&raw, &pods(), Representation::Protobuf).unwrap();
    assert_eq!(item.body(), object.body());

    for name in [&b"p\xff"[..], "p\u{fffd}".as_bytes()] {
        let raw = pod(name, b"n");
        let body = envelope("v1", "Pod", &raw);
        assert_eq!(read(&body, &pods()).unwrap_err(), IngestError::Name);
        for any in [
            ingest::any_object(&body, &pods(), Representation::Protobuf),
            ingest::any_list_item(&raw, &pods(), Representation::Protobuf),
        ] {
            let Ok(ingest::Ingested::Unreadable(object)) = any else { panic!("{any:?}") };
            assert_eq!((object.names(), &*object.uid), (("n", "p\u{fffd}"), "u"));
        }
    }
}

#[test]
fn statuses_are_read_as_they_are_written() {
    let written = status::Status::initializing();
    let read = decode_status(&encode_status(&written)).unwrap();
    assert_eq!(read.code, Some(429));
    assert_eq!(read.message.as_deref(), Some(written.message.as_str()));
    assert_eq!(read.details.unwrap().retry_after_seconds, Some(1));
    assert_eq!(decode_status(b"{}"), None);
    // From kube-apiserver 1.36.
    let real = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12U\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x1bconfigmaps \"nope\" not found\x22\x08NotFound*\x18\x0a\x04nope\x12\0\x1a\x0aconfigmaps(\0\x32\0\x30\x94\x03\x1a\0\x22\0";
    let read = decode_status(real).unwrap();
    assert_eq!((read.code, read.reason.as_deref()), (Some(404), Some("NotFound")));
    assert_eq!(envelope("v1", "Status", &read.encode_to_vec()), real);
}

fn any_meta() -> impl Strategy<Value = ObjectMeta> {
    let pairs = || prop::collection::btree_map("[a-z/.]{0,9}", "\\PC{0,40}", 0..4);
    ("[a-z]{1,200}", any::<u64>(), pairs(), pairs()).prop_map(
        |(name, number, labels, annotations)| ObjectMeta {
            labels,
            annotations,
            ..meta(&name, &number.to_string())
        },
    )
}

proptest! {
    #[test]
    fn any_object_is_encoded_unchanged(metadata in any_meta(), data in "\\PC{0,300}", number in any::<u64>()) {
        let body = envelope("v1", "ConfigMap", &config_map(metadata.clone(), &data));
        let object = read(&body, &config_maps()).unwrap();
        prop_assert_eq!(object.body(), &body);
        let labels: BTreeMap<_, _> =
            object.attrs().labels().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let bytes = metadata.labels.iter().map(|(k, v)| (k.clone().into(), v.clone().into()));
        prop_assert_eq!(&labels, &bytes.collect::<BTreeMap<Vec<u8>, Vec<u8>>>());
        let moved = ObjectMeta { resource_version: Some(number.to_string()), ..metadata };
        let left = frame::encode_left_selector(&object, ResourceVersion(number), View::Full);
        let expected = envelope("v1", "ConfigMap", &config_map(moved, &data));
        prop_assert_eq!(&left[..], &watch_event("DELETED", expected)[..]);
        // The splitter returns the object of the frame.
        let mut frames = Vec::new();
        let mut splitter = FrameSplitter::new(Encoding::Protobuf, 1 << 20);
        let frame = frame::encode(EventType::Modified, &object, METADATA);
        for byte in &frame[..] {
            splitter.push(Bytes::copy_from_slice(&[*byte]), &mut frames).unwrap();
        }
        splitter.finish().unwrap();
        prop_assert_eq!(frames[0].event, frame::FrameType::Modified);
        let ingested =
            ingest::object(&frames[0].object, &config_maps(), Representation::MetadataProtobuf);
        prop_assert_eq!(ingested.unwrap().key, object.key);
    }

    #[test]
    fn broken_bytes_never_panic(metadata in any_meta(), cut in any::<prop::sample::Index>(), flip in any::<(prop::sample::Index, u8)>(), noise in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut body = envelope("v1", "ConfigMap", &config_map(metadata, "v"));
        prop_assert!(read(&body[..cut.index(body.len())], &config_maps()).is_err());
        let at = flip.0.index(body.len());
        body[at] = flip.1;
        for bytes in [&body[..], &noise, &[MAGIC, &noise].concat()] {
            drop(read(bytes, &config_maps()));
            drop(read(bytes, &pods()));
            drop(ingest::list_item(bytes, &pods(), Representation::Protobuf));
            drop(list::parse(&Bytes::copy_from_slice(bytes), &pods(), Representation::Protobuf));
            drop(decode_status(bytes));
            drop(crate::bookmark::BookmarkTemplate::from_bookmark(bytes));
        }
    }
}
