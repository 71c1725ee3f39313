//! Protobuf answers, negotiation, and metadata-only views.

use http::Method;
use serde_json::{Value, json};

use super::client::{Reply, Watch, create, get, request, revision, start};
use super::samples::samples;
use crate::{Cluster, Simulator, protobuf};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn accepting(simulator: &Simulator, path: &str, accept: &str) -> Reply {
    request(simulator, Method::GET, path, &[("accept", accept)], Value::Null).await.unwrap()
}

#[tokio::test]
async fn every_object_survives_a_protobuf_round_trip() {
    let simulator = start().await;
    Cluster::populate(&simulator.store(), 2, 6).unwrap();
    let api = simulator.store();
    for sample in samples() {
        api.create(sample.clone()).unwrap_or_else(|error| panic!("{sample}: {error}"));
    }
    for kind in simulator.shared.store.registry().kinds() {
        if kind.review || !protobuf::knows(&kind.kind) {
            continue;
        }
        let objects = api.list(&kind.api_version(), &kind.resource);
        assert!(!objects.is_empty(), "no sample of {}", kind.kind);
        for object in objects {
            let message = protobuf::message(&kind.kind, &object).unwrap();
            let envelope = protobuf::envelope(&kind.api_version(), &kind.kind, &message);
            let back = protobuf::decode(&envelope).unwrap();
            let back = protobuf::shape(&kind.kind, back).unwrap();
            assert_eq!(back.to_string(), object.to_string());
        }
    }
}

#[tokio::test]
async fn every_kind_answers_in_protobuf() {
    let simulator = start().await;
    Cluster::populate(&simulator.store(), 1, 2).unwrap();
    for kind in simulator.shared.store.registry().kinds() {
        if kind.review || !protobuf::knows(&kind.kind) {
            continue;
        }
        let root =
            if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
        let path = format!("{root}/{}/{}", kind.version, kind.resource);
        let list = accepting(&simulator, &path, PROTOBUF).await;
        assert_eq!(
            (list.code.as_u16(), &list.headers["content-type"]),
            (200, &PROTOBUF.parse().unwrap())
        );
        assert!(list.body.starts_with(b"k8s\0"), "{path}");
        let query = "timeoutSeconds=3&allowWatchBookmarks=1&labelSelector=none";
        let mut watch = Watch::open_with(&simulator, &path, query, &[("accept", PROTOBUF)]).await;
        let (event, object) = watch.protobuf().await;
        assert_eq!((event.as_str(), &object["kind"]), ("BOOKMARK", &json!(kind.kind)), "{path}");
        assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
}

#[tokio::test]
async fn lists_have_the_upstreams_bytes() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    let empty = accepting(&simulator, "/api/v1/namespaces/kube-public/configmaps", PROTOBUF).await;
    let golden = format!(
        "k8s\0\n\x13\n\x02v1\x12\rConfigMapList\x12\x0c\n\n\n\0\x12\x04{rv}\x1a\0\x1a\0\"\0"
    );
    assert_eq!(empty.body, golden.as_bytes());
    let one = accepting(&simulator, &format!("{MAPS}/a"), PROTOBUF).await;
    let decoded = protobuf::decode(&one.body).unwrap();
    assert_eq!(decoded, get(&simulator, &format!("{MAPS}/a")).await.json());
    // generateName, selfLink and generation are present though they are empty.
    let metadata = one.body.windows(5).any(|bytes| bytes == b"\n\x01a\x12\0");
    assert!(metadata && one.body.windows(4).any(|bytes| bytes == b"\"\0*$"));
    assert!(one.body.ends_with(b"\x1a\0\"\0"));
    let missing = accepting(&simulator, &format!("{MAPS}/none"), PROTOBUF).await;
    assert_eq!(missing.code, 404);
    let status = protobuf::decode(&missing.body).unwrap();
    assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(404)));
}

#[tokio::test]
async fn watches_are_framed_by_length_and_fail_in_protobuf() {
    let simulator = start().await;
    let rv = create(&simulator, "default", "a");
    let accept = [("accept", "application/vnd.kubernetes.protobuf;stream=watch")];
    let mut watch = Watch::open_with(&simulator, MAPS, "resourceVersion=0", &accept).await;
    assert_eq!(watch.content_type(), "application/vnd.kubernetes.protobuf;stream=watch");
    let (event, object) = watch.protobuf().await;
    assert_eq!((event.as_str(), revision(&object)), ("ADDED", rv));
    simulator.store().delete("v1", "configmaps", "default", "a").unwrap();
    let (event, object) = watch.protobuf().await;
    assert_eq!((event.as_str(), revision(&object)), ("DELETED", rv + 1));
    simulator.compact();
    let query = format!("resourceVersion={}", rv - 1);
    let mut watch = Watch::open_with(&simulator, MAPS, &query, &accept).await;
    let (event, object) = watch.protobuf().await;
    assert_eq!((event.as_str(), &object["code"]), ("ERROR", &json!(410)));
    watch.ends().await;
}

#[tokio::test]
async fn accept_is_parsed_like_the_upstream_parses_it() {
    let simulator = start().await;
    simulator.store().create(super::writes::definition()).unwrap();
    const WIDGETS: &str = "/apis/example.com/v1/widgets";
    const JSON: &str = "application/json";
    let cases = [
        (MAPS, "application/vnd.kubernetes.protobuf,application/json", 200, PROTOBUF),
        (WIDGETS, "application/vnd.kubernetes.protobuf,application/json", 200, JSON),
        (WIDGETS, PROTOBUF, 406, PROTOBUF),
        (MAPS, "application/json;q=0.5,application/vnd.kubernetes.protobuf", 200, PROTOBUF),
        (MAPS, "application/*", 406, JSON),
        (WIDGETS, "application/*", 200, JSON),
        (MAPS, "*/*", 200, JSON),
        (MAPS, "APPLICATION/JSON", 406, JSON),
        (MAPS, "application/json;sv=v2", 406, JSON),
        (MAPS, "application/json;charset=utf-8;q=0", 200, JSON),
        (MAPS, "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", 406, JSON),
        (MAPS, "application/json;as=Table;g=meta.k8s.io;v=v1beta1", 200, JSON),
    ];
    for (path, accept, code, kind) in cases {
        let answer = accepting(&simulator, path, accept).await;
        let content_type = answer.headers["content-type"].to_str().unwrap();
        assert_eq!((answer.code.as_u16(), content_type), (code, kind), "{path} {accept}");
    }
    let plain = accepting(&simulator, MAPS, "text/plain").await;
    assert!(plain.text().starts_with("{\n  \"kind\": \"Status\"") && plain.text().ends_with("\n}"));
    assert!(plain.message().starts_with("406: Not Acceptable\n\nAvailable representations: "));
    assert!(plain.message().ends_with("protobuf;stream=watch"));
    let one = accepting(&simulator, &format!("{MAPS}/a"), "text/plain").await;
    assert!(one.message().ends_with("application/vnd.kubernetes.protobuf"));
    let view = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let list = accepting(&simulator, MAPS, view).await;
    assert_eq!(
        list.message(),
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    let list = accepting(&simulator, WIDGETS, view).await;
    assert!(list.message().ends_with("a list (*unstructured.UnstructuredList)"));
    // A missing object is reported before the mismatch.
    let view = view.replace("Metadata", "MetadataList");
    let one = accepting(&simulator, &format!("{MAPS}/a"), &view).await;
    assert_eq!(one.code, 404);
}

#[tokio::test]
async fn metadata_only_views_come_in_both_encodings() {
    let simulator = start().await;
    create(&simulator, "default", "a");
    simulator.store().create(super::writes::definition()).unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", "labels": {"b": "1", "a": "2"}}});
    simulator.store().create(widget).unwrap();
    let widgets = "/apis/example.com/v1/widgets";
    for (path, version) in [(MAPS, "v1"), (MAPS, "v1beta1"), (widgets, "v1")] {
        let params = format!(";as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
        let json = accepting(&simulator, path, &format!("application/json{params}")).await;
        let start = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{{\"resourceVersion\":"
        );
        assert!(json.text().starts_with(&start), "{}", json.text());
        let item = &json.json()["items"][0];
        assert_eq!(item["kind"], "PartialObjectMetadata");
        // Elsewhere the metadata of a custom resource is sorted; in this view it has the order of
        // the type.
        let names: Vec<&String> = item["metadata"].as_object().unwrap().keys().collect();
        assert_eq!(names[..2], ["name", "namespace"]);
        let protobuf = accepting(&simulator, path, &format!("{PROTOBUF}{params}")).await;
        assert!(protobuf.body.starts_with(b"k8s\0"));
        assert!(protobuf.body.windows(25).any(|bytes| bytes == b"PartialObjectMetadataList"));
        let one = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v={version}");
        let query = "resourceVersion=0";
        let mut watch = Watch::open_with(&simulator, path, query, &[("accept", &one)]).await;
        let (event, object) = watch.protobuf().await;
        assert_eq!((event.as_str(), &object["kind"]), ("ADDED", &json!("PartialObjectMetadata")));
        assert_eq!(object["metadata"], item["metadata"]);
    }
    let empty = "/api/v1/namespaces/kube-public/configmaps";
    let params = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert!(accepting(&simulator, empty, params).await.text().ends_with("\"items\":null}\n"));
}
