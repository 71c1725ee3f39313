//! Tests of reading objects in JSON, and the objects and resources for the tests of other modules.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use weir_api::media_type::View;
use weir_api::resource::{GroupVersionResource, built_in};
use weir_api::selectable::SelectableFields;

pub(crate) fn config_maps() -> ApiResource {
    built_in(GroupVersionResource::new("", "v1", "configmaps"), "ConfigMap")
}

pub(crate) fn pods() -> ApiResource {
    built_in(GroupVersionResource::new("", "v1", "pods"), "Pod")
}

pub(crate) fn widgets() -> ApiResource {
    let gvr = GroupVersionResource::new("example.com", "v1", "widgets");
    let selectable =
        SelectableFields::custom(true, &[".spec.color".to_owned(), ".spec.n".to_owned()]);
    ApiResource {
        shape: Shape::Custom,
        selectable: Arc::new(selectable),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        ..built_in(gvr, "Widget")
    }
}

pub(crate) fn config_map(name: &str, resource_version: u64) -> Object {
    let text = format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","resourceVersion":"{resource_version}"}}}}"#
    );
    object(text.as_bytes(), &config_maps()).unwrap()
}

pub(crate) const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"ns1","uid":"u","resourceVersion":"9999","labels":{"b":"2","a":"\u003c1\""},"managedFields":[{"fieldsV1":{"f:metadata":{"f:resourceVersion":{}},"resourceVersion":"1"}}]},"spec":{"containers":[{"name":"resourceVersion"}],"nodeName":"n1","hostNetwork":true},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"::1"}]}}"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn labels(object: &Object) -> Vec<(String, String)> {
    object.attrs().labels().map(|(key, value)| (text(key), text(value))).collect()
}

fn fields(object: &Object) -> Vec<String> {
    object.attrs().fields().map(text).collect()
}

#[test]
fn an_indented_object_is_refused() {
    let text = POD.replace(r#","spec""#, ",\n  \"spec\"");
    assert_eq!(object(text.as_bytes(), &pods()).unwrap_err(), IngestError::Malformed);
}

#[test]
fn a_pod_is_read() {
    let pod = object(POD.as_bytes(), &pods()).unwrap();
    assert_eq!(pod.key.as_str(), "ns1/p");
    assert_eq!(pod.resource_version, ResourceVersion(9999));
    let labels = labels(&pod);
    assert_eq!(labels, [("a", "<1\""), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    let fields: BTreeMap<_, _> = pods()
        .selectable
        .sources()
        .iter()
        .zip(fields(&pod))
        .map(|(s, v)| (s.label.to_string(), v))
        .collect();
    assert_eq!(fields["spec.nodeName"], "n1");
    assert_eq!(fields["spec.hostNetwork"], "true");
    assert_eq!(fields["status.phase"], "Running");
    assert_eq!(fields["status.podIP"], "10.0.0.1");
    assert_eq!(fields["spec.restartPolicy"], "");
    assert_eq!(pod.body(), POD.as_bytes());
}

#[test]
fn a_deleted_pod_gets_the_events_resource_version() {
    let pod = object(POD.as_bytes(), &pods()).unwrap();
    let expected = POD.replacen("9999", "10000", 1);
    let number = ResourceVersion(10_000);
    let (body, _) = crate::splice::with_resource_version(pod.body(), pod.layout, number);
    assert_eq!(body, expected.as_bytes());
}

#[test]
fn a_list_item_and_an_event_parse_to_the_same_object() {
    let item = POD.replacen(r#""kind":"Pod","apiVersion":"v1","#, "", 1);
    let from_list = list_item(item.as_bytes(), &pods()).unwrap();
    let from_watch = object(POD.as_bytes(), &pods()).unwrap();
    assert_eq!(from_list.body(), from_watch.body());
    assert_eq!(from_list.layout, from_watch.layout);
    assert_eq!(from_list.list_item(View::Full).to_vec(), item.as_bytes());
}

#[test]
fn custom_resources_keep_their_bytes() {
    let text = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","resourceVersion":"5"},"spec":{"color":"red","n":3}}"#;
    let widget = object(text.as_bytes(), &widgets()).unwrap();
    assert_eq!(widget.list_item(View::Full).to_vec(), text.as_bytes());
    assert_eq!(fields(&widget), ["red", "3"]);
}

#[test]
fn an_array_as_the_root_field_items_resembles_a_list() {
    let widget = |before: &str, after: &str| {
        let text = format!(
            r#"{{"apiVersion":"example.com/v1",{before}"kind":"Widget","metadata":{{"name":"w","namespace":"n","resourceVersion":"5"}}{after}}}"#
        );
        object(text.as_bytes(), &widgets()).unwrap().resembles_list()
    };
    for items in ["[]", "[1]", r#"[{"a":[]}]"#] {
        assert!(widget(&format!(r#""items":{items},"#), ""), "{items}");
    }
    for items in ["null", "{}", "1", r#"{"items":[1]}"#, r#""\"items\":[""#] {
        assert!(!widget(&format!(r#""items":{items},"#), ""), "{items}");
    }
    assert!(!widget(r#""data":{"items":[1]},"#, ""));
    assert!(!widget("", r#","spec":{"items":[1]}"#));
    assert!(!object(POD.as_bytes(), &pods()).unwrap().resembles_list());
}

#[test]
fn metadata_is_found_wherever_and_however_it_is_written() {
    let metadata = r#"{"name":"w","namespace":"n","resourceVersion":"5","labels":{"a":"{\"}}"}}"#;
    for text in [
        r#"{"apiVersion":"example.com/v1","metadata":@,"spec":{"color":"red","n":3}}"#,
        r#"{"metadata": @,"spec":{"color":"red","n":3}}"#,
        r#"{"metadata":@ ,"spec":{"color":"red","n":3}}"#,
        r#"{"metadata":@, "spec":{"color":"red","n":3}}"#,
        r#"{"metadata" :@,"spec":{"color":"red","n":3}}"#,
        r#"{"metadat\u0061":@,"spec":{"color":"red","n":3}}"#,
        r#"{"metadata":@,"spe\u0063":{"color":"red","n":3}}"#,
        r#"{"spec":{"n":3,"metadata":{},"color":"red"},"metadata":@}"#,
        r#"{"spec":{"color":"red","n":3},"metadata":@ }"#,
        r#"{"spec":{"color":"blue"},"spec":{"color":"red","n":3},"metadata":@}"#,
    ] {
        let text = text.replace('@', metadata);
        let widget = object(text.as_bytes(), &widgets()).unwrap();
        assert_eq!(widget.layout.metadata.slice(widget.body()), metadata.as_bytes(), "{text}");
        assert_eq!(widget.layout.resource_version.slice(widget.body()), b"5");
        assert_eq!(labels(&widget), [("a".to_owned(), "{\"}}".to_owned())]);
        assert_eq!(fields(&widget), ["red", "3"], "{text}");
    }
}

#[test]
fn fields_of_another_type_are_absent() {
    let metadata = r#"{"name":"w","namespace":"n","resourceVersion":"5"}"#;
    for spec in
        ["null", "true", "-1", "1", "1.5", r#""color""#, "[]", "[1,{}]", "{}", r#"{"color":{}}"#]
    {
        let text = format!(r#"{{"spec":{spec},"metadata":{metadata}}}"#);
        let widget = object(text.as_bytes(), &widgets()).unwrap();
        assert_eq!(fields(&widget), ["", ""], "{spec}");
    }
}

/// Replaces `@` by a byte that is not UTF-8.
fn with_byte(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if byte == b'@' { 0xff } else { byte }).collect()
}

#[test]
fn what_is_not_extracted_need_not_be_utf8() {
    // As an API server writes managed fields, and data of a ControllerRevision.
    let managers = r#""managedFields":[{"manager":"m","fieldsV1":{"f:data":{"f:@":{}}}}]"#;
    for (text, resource) in [
        (POD.replace(r#""uid":"u""#, r#""annotations":{"a":"@"}"#), pods()),
        (POD.replace(r#""f:metadata":"#, r#""f:@":"#), pods()),
        (POD.replace(r#""name":"resourceVersion""#, r#""@":"\ud800""#), pods()),
        (
            format!(
                r#"{{"apiVersion":"example.com/v1","kind":"Widget","data":{{"@":1e999}},"metadata":{{{managers},"name":"w","namespace":"n","resourceVersion":"5"}}}}"#
            ),
            widgets(),
        ),
    ] {
        let bytes = with_byte(&text);
        let read = object(&bytes, &resource).unwrap();
        let plain = object(text.replace('@', "x").as_bytes(), &resource).unwrap();
        assert_eq!(read.body(), bytes);
        assert_eq!((&read.key, read.layout), (&plain.key, plain.layout));
        assert!(read.attrs() == plain.attrs());
        let without = View::FullWithoutManagers;
        assert_eq!(read.dropped(without), plain.dropped(without));
        assert!(read.dropped(without).length > 0, "{text}");
        let item = read.list_item(View::Full).to_vec();
        assert_eq!(list_item(&item, &resource).unwrap().body(), bytes);
    }
}

#[test]
fn a_name_that_is_not_utf8_reads_as_another() {
    let text = POD.replace(r#""name":"p""#, "\"name\":\"p\u{fffd}\"");
    assert_eq!(object(text.as_bytes(), &pods()).unwrap_err(), IngestError::Name);
    let text = POD.replace(r#""name":"p""#, r#""name":"p\ufffd""#);
    assert_eq!(object(text.as_bytes(), &pods()).unwrap_err(), IngestError::Name);
}

#[test]
fn bytes_that_are_not_one_object_are_rejected() {
    let text = String::from_utf8(config_map("a", 1).body().to_vec()).unwrap();
    let more = [
        format!("{text},\"more\":{{}}").into_bytes(),
        format!("{text}{{}}").into_bytes(),
        format!("{text}}}").into_bytes(),
        format!("[{text}]").into_bytes(),
        text.as_bytes()[..text.len() - 1].to_vec(),
        text.replace("}}", ",}}").into_bytes(),
        with_byte(&text.replace("\"a\"", "\"@\"")),
        with_byte(&text.replace("\"1\"", "\"@\"")),
    ];
    for text in more {
        assert_eq!(object(&text, &config_maps()).unwrap_err(), IngestError::Malformed);
        assert!(read_bookmark(&text).is_none());
    }
}

#[test]
fn unusable_objects_are_refused() {
    let refuse = |metadata: &str| {
        let text = format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata}}}"#);
        object(text.as_bytes(), &pods()).unwrap_err()
    };
    assert_eq!(refuse(r#"{"name":"p","namespace":"n"}"#), IngestError::ResourceVersion);
    for not_a_number in [r#""""#, r#""a""#, r#""-1""#, r#""007""#, "7", r#""99999999999999999999""#]
    {
        let metadata =
            format!(r#"{{"name":"p","namespace":"n","resourceVersion":{not_a_number}}}"#);
        assert_eq!(refuse(&metadata), IngestError::ResourceVersion, "{not_a_number}");
    }
    assert_eq!(refuse(r#"{"namespace":"n","resourceVersion":"1"}"#), IngestError::Name);
    assert_eq!(
        refuse(r#"{"name":"a/b","namespace":"n","resourceVersion":"1"}"#),
        IngestError::Name
    );
    // Without its namespace, an object of a namespaced resource would have another key than the one
    // that clients request.
    assert_eq!(refuse(r#"{"name":"p","resourceVersion":"1"}"#), IngestError::Name);
    assert_eq!(refuse("3"), IngestError::Malformed);
    let other_order =
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","resourceVersion":"1"}}"#;
    assert_eq!(object(other_order.as_bytes(), &pods()).unwrap_err(), IngestError::Malformed);
    assert_eq!(object(b"", &widgets()).unwrap_err(), IngestError::Malformed);
}

proptest! {
    /// The metadata is spliced unchanged: another parser finds the same in the object and in the
    /// view.
    #[test]
    fn spliced_metadata_is_that_of_the_object(
        name in "[a-z]{1,9}",
        labels in prop::collection::btree_map("[a-z\"]{0,9}", "\\PC{0,9}", 0..4),
        lead in any::<bool>(),
    ) {
        let metadata = serde_json::json!({
            "name": name, "namespace": "n", "labels": labels, "resourceVersion": "7",
        });
        let spec = serde_json::json!({"metadata": {"name": "other"}});
        let members = if lead {
            format!(r#""spec":{spec},"metadata":{metadata}"#)
        } else {
            format!(r#""metadata":{metadata},"spec":{spec}"#)
        };
        let text = format!(r#"{{"kind":"Pod","apiVersion":"v1",{members}}}"#);
        let pod = object(text.as_bytes(), &pods()).unwrap();
        let view = View::Metadata;
        let view: serde_json::Value = serde_json::from_slice(&pod.in_view(view).to_vec()).unwrap();
        prop_assert_eq!(&view["metadata"], &metadata);
        prop_assert_eq!(view.as_object().unwrap().len(), 3);
    }

    #[test]
    fn never_panics_on_what_the_upstream_sends(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..POD.len()) {
        drop(object(&bytes, &widgets()));
        drop(list_item(&bytes, &pods()));
        drop(object(&POD.as_bytes()[..cut], &pods()));
    }
}
