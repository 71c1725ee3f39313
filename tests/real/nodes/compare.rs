//! A kubelet's requests to kube-apiserver and to Weir, which must be answered alike: what the
//! authorizer Node allows, and what it refuses.

use std::time::Duration;

use super::testbed::{NAMED, PODS_PATH, Testbed, collection, object_name};
use crate::suite::frames::Frames;
use crate::suite::run::HIT;
use crate::suite::wire::{Answer, Call, Connection, Endpoint};
use crate::wait::eventually;

/// Returns the path of each watch of a kubelet, without the parameters of a watch: its pods, its
/// node, and its secrets and config maps.
pub(super) fn watched(node: &str) -> Vec<String> {
    let named = (0..NAMED).map(|number| {
        let name = object_name(node, number);
        format!("{}?fieldSelector=metadata.name%3D{name}", collection(number))
    });
    let pods = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let node_list = format!("/api/v1/nodes?fieldSelector=metadata.name%3D{node}");
    [pods, node_list].into_iter().chain(named).collect()
}

/// Compares lists and watches of what a node may read. Weir must answer them from its caches.
/// Returns the number of comparisons.
pub(super) async fn allowed(testbed: &Testbed, node: &str) -> usize {
    let [direct, through] = testbed.sides(node);
    let mut connections = [direct.connection(), through.connection()];
    for path in watched(node) {
        let list = Call::get(format!("{path}&resourceVersion=0"));
        eventually(&format!("{list} comes from the cache"), async || {
            let answers = both(&mut connections, &list).await;
            let statuses = answers.each_ref().map(|answer| answer.status);
            assert_eq!(statuses, [200; 2], "{list}: {}", text(&answers[1]));
            answers[1].cache() == HIT && answers[0].body == answers[1].body
        })
        .await;
        let watch = Call::get(format!("{path}&{WATCH}"));
        let states = [state(&direct, &watch).await, state(&through, &watch).await];
        assert!(!states[0].is_empty(), "{watch}");
        assert_eq!(states[0], states[1], "{watch}");
    }
    2 * watched(node).len()
}

/// Compares what a node may not read, and one pod by its name, which it may. Returns the number of
/// comparisons.
pub(super) async fn refused(testbed: &Testbed, node: &str, other: &str) -> usize {
    let mut connections = testbed.sides(node).map(|side| side.connection());
    let (secret, config_map) = (object_name(other, 0), object_name(other, 1));
    let secrets = "/api/v1/namespaces/default/secrets";
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let pod_list = format!("{PODS_PATH}?fieldSelector=metadata.name%3D{node}-pod-0");
    let list = Call::get(format!("{pod_list}&resourceVersion=0"));
    let answers = both(&mut connections, &list).await;
    assert_eq!((answers[0].status, answers[1].status), (200, 200), "{list}");
    let paths = [
        format!("{secrets}/{secret}"),
        format!("{secrets}/{secret}?resourceVersion=0"),
        format!("{secrets}/missing?resourceVersion=0"),
        format!("{config_maps}/{config_map}?resourceVersion=0"),
        "/api/v1/secrets?resourceVersion=0".to_owned(),
        format!("{secrets}?resourceVersion=0"),
        format!("{secrets}?fieldSelector=metadata.name%3D{secret}&resourceVersion=0"),
        // This is its own secret's name, but in all namespaces.
        format!("/api/v1/secrets?fieldSelector=metadata.name%3D{}", object_name(node, 0)),
        format!("{secrets}?fieldSelector=metadata.name!%3D{}", object_name(node, 0)),
        format!("{secrets}?{WATCH}"),
        format!("{secrets}?fieldSelector=metadata.name%3D{secret}&{WATCH}"),
        format!("{config_maps}?fieldSelector=metadata.name%3D{config_map}&{WATCH}"),
        format!("/api/v1/watch/namespaces/default/secrets/{secret}"),
        "/api/v1/pods?resourceVersion=0".to_owned(),
        format!("/api/v1/pods?{WATCH}"),
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{other}&resourceVersion=0"),
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{other}&{WATCH}"),
        format!("/api/v1/pods?fieldSelector=spec.nodeName!%3D{node}&resourceVersion=0"),
        format!("/api/v1/watch/pods?fieldSelector=spec.nodeName%3D{node}"),
        format!("{PODS_PATH}?fieldSelector=metadata.name%3D{other}-pod-0&resourceVersion=0"),
        format!("{PODS_PATH}/{other}-pod-0?resourceVersion=0"),
        "/api/v1/nodes?resourceVersion=0".to_owned(),
        format!("/api/v1/nodes/{other}?resourceVersion=0"),
        format!("/api/v1/nodes?fieldSelector=metadata.name%3D{other}&{WATCH}"),
        format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{other}"),
    ];
    for path in &paths {
        for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
            let call = Call::get(path.as_str()).header("accept", accept);
            assert_alike(&call, &both(&mut connections, &call).await);
        }
    }
    2 * paths.len()
}

/// Asserts that both refuse a request, by the same bytes.
pub(super) fn assert_alike(call: &Call, [direct, through]: &[Answer; 2]) {
    assert_eq!(direct.status, 403, "{call}: {}", text(direct));
    let comparable =
        |answer: &Answer| (answer.status, answer.header("content-type").to_owned(), text(answer));
    assert_eq!(comparable(through), comparable(direct), "{call}");
}

/// Sends a request to kube-apiserver, then to Weir.
pub(super) async fn both(connections: &mut [Connection; 2], call: &Call) -> [Answer; 2] {
    let [direct, through] = connections;
    [direct.send(call).await, through.send(call).await]
}

/// Returns the objects with which a watch begins.
async fn state(side: &Endpoint, watch: &Call) -> Vec<String> {
    let response = side.open(watch).await.expect("a response");
    assert_eq!(response.status().as_u16(), 200, "{watch}");
    let mut frames = Frames::new(response);
    let mut keys = Vec::new();
    let read = async {
        while let Some(frame) = frames.next().await.filter(|frame| !frame.ends_state) {
            keys.push(frame.key);
        }
    };
    tokio::time::timeout(STATE_TIMEOUT, read).await.expect("the initial state ends");
    keys
}

pub(super) fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// The parameters of a first watch of client-go.
pub(super) const WATCH: &str = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&\
    resourceVersionMatch=NotOlderThan&timeoutSeconds=480";
const STATE_TIMEOUT: Duration = Duration::from_secs(30);
