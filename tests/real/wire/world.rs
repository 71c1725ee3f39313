//! An API server, a gateway and a sidecar in front of it, and a namespace for each with the same
//! objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::case::Case;
use super::http1::Http1;
use super::http2::Http2;
use super::meaning::{NAMESPACES, in_one_namespace, normalize};
use super::outcome::Outcome;
use super::peer::{Peer, Protocol};
use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::objects::{create, definition, revision};
use crate::suite::run::HIT;
use crate::suite::wire::{Call, Connection, Endpoint};
use crate::support::{Weir, free_port};
use crate::wait::eventually;

/// The objects of one namespace by their paths, normalized. The namespace itself is one of them.
pub(crate) type State = BTreeMap<String, Value>;

/// The servers and their clients. The first is the API server.
pub(crate) struct World {
    pub(crate) peers: [Peer; 3],
    http1: [Http1; 3],
    http2: [Http2; 3],
    /// The API server, for the objects.
    admin: Connection,
    /// All servers, to wait for their caches.
    readers: [Connection; 3],
    /// The state of every namespace when no case has changed it.
    baseline: State,
    _weirs: [Weir; 2],
    _plane: ControlPlane,
}

impl World {
    pub(crate) async fn start() -> Self {
        let plane = tokio::task::spawn_blocking(ControlPlane::start).await.unwrap();
        let side = plane.side();
        let kubeconfig = plane.kubeconfig(ADMIN);
        let dir = kubeconfig.parent().unwrap().to_owned();
        let mut admin = plane.endpoint(ADMIN).connection();
        prepare(&mut admin).await;
        let start = move || {
            let port = free_port();
            let gateway = Weir::spawn_gateway(&kubeconfig, &gateway(&dir, port), port, LOG);
            let sidecar = Weir::start(&kubeconfig, CONFIG);
            gateway.wait_until_ready();
            (gateway, sidecar, port)
        };
        let (gateway, sidecar, port) = tokio::task::spawn_blocking(start).await.unwrap();
        let at = |port: u16| ([127, 0, 0, 1], port).into();
        let peers = [
            Peer::tls("the API server", NAMESPACES[0], side.address, &side.ca),
            Peer::tls("the gateway", NAMESPACES[1], at(port), &side.ca),
            Peer::plain("the sidecar", NAMESPACES[2], at(sidecar.plain_port())),
        ];
        let readers = [
            plane.endpoint(ADMIN),
            Endpoint::tls(at(port), &side.ca, ADMIN),
            Endpoint::plain(at(sidecar.plain_port())),
        ];
        let mut world = Self {
            http1: peers.clone().map(Http1::new),
            http2: peers.clone().map(Http2::new),
            peers,
            admin,
            readers: readers.map(|endpoint| endpoint.connection()),
            baseline: State::new(),
            _weirs: [gateway, sidecar],
            _plane: plane,
        };
        let [first, second, third] = world.states().await;
        assert!(first == second && second == third, "the namespaces differ");
        world.baseline = first;
        world.warm().await;
        world
    }

    /// Sends a case to all servers.
    pub(crate) async fn send(&mut self, case: &Case, wait: Duration) -> [Outcome; 3] {
        match case.protocol {
            Protocol::Http1 => {
                let [a, b, c] = &mut self.http1;
                let sent = [a, b, c].map(|client| Box::pin(client.send(case, wait)));
                join_outcomes(sent).await
            }
            Protocol::Http2 => {
                let [a, b, c] = &mut self.http2;
                let sent = [a, b, c].map(|client| Box::pin(client.send(case, wait)));
                join_outcomes(sent).await
            }
        }
    }

    /// Returns what is in each namespace, and makes the namespaces equal again.
    pub(crate) async fn settle(&mut self) -> [State; 3] {
        let states = self.states().await;
        let changed: Vec<usize> = (0..3).filter(|at| states[*at] != self.baseline).collect();
        if !changed.is_empty() {
            for at in changed {
                self.restore(NAMESPACES[at], &states[at]).await;
            }
            let restored = self.states().await;
            let is_equal = restored.iter().all(|state| *state == self.baseline);
            assert!(is_equal, "a namespace was not restored: {restored:?} {:?}", self.baseline);
            self.wait_for_caches().await;
        }
        states
    }

    /// Returns what a state has that the baseline has not, and the other way round.
    pub(crate) fn effect(&self, state: &State) -> Vec<String> {
        let mut effect = Vec::new();
        for (path, object) in state {
            match self.baseline.get(path) {
                None => effect.push(format!("creates {path}")),
                Some(before) if before != object => effect.push(format!("changes {path}")),
                Some(_) => {}
            }
        }
        let gone = self.baseline.keys().filter(|path| !state.contains_key(*path));
        effect.extend(gone.map(|path| format!("deletes {path}")));
        effect
    }

    async fn states(&mut self) -> [State; 3] {
        let mut states = NAMESPACES.map(|_| State::new());
        for (collection, _) in COLLECTIONS {
            let answer = self.admin.send(&Call::get(collection)).await;
            assert_eq!(answer.status, 200, "{collection}");
            for mut item in items(answer.json()) {
                let metadata_text =
                    |field: &str| item["metadata"][field].as_str().unwrap_or("").to_owned();
                let (name, namespace) = (metadata_text("name"), metadata_text("namespace"));
                let home = if namespace.is_empty() { &name } else { &namespace };
                let Some(at) = NAMESPACES.iter().position(|namespace_name| namespace_name == home)
                else {
                    continue;
                };
                let text = in_one_namespace(item.to_string().as_bytes());
                item = serde_json::from_slice(&text).unwrap();
                normalize(&mut item);
                let name = String::from_utf8(in_one_namespace(name.as_bytes())).unwrap();
                states[at].insert(format!("{collection}/{name}"), item);
            }
        }
        states
    }

    async fn restore(&mut self, namespace: &str, state: &State) {
        let differs = |path: &str| state.get(path) != self.baseline.get(path);
        let of_namespace = "/api/v1/namespaces/wire-x";
        if differs(of_namespace) {
            return replace_namespace(&mut self.admin, namespace).await;
        }
        let paths: Vec<String> = state.keys().chain(self.baseline.keys()).cloned().collect();
        for path in paths.iter().filter(|path| differs(path)) {
            let (collection, name) = path.rsplit_once('/').unwrap();
            let object = state.get(path).cloned();
            let path = format!("{}/{name}", within(collection, namespace));
            // The garbage collector, which removes them, does not run.
            if object.is_some_and(|object| !object["metadata"]["finalizers"].is_null()) {
                let mut object = self.admin.send(&Call::get(path.as_str())).await.json();
                object["metadata"]["finalizers"] = json!([]);
                drop(self.admin.send(&Call::json(Method::PUT, &path, &object)).await);
            }
            let deleted = self.admin.send(&Call::new(Method::DELETE, path.as_str())).await;
            assert!(matches!(deleted.status, 200 | 404), "{path}: {}", deleted.status);
        }
        fill(&mut self.admin, namespace).await;
    }

    /// Waits until all servers show the last writes in what they read from memory.
    async fn wait_for_caches(&mut self) {
        for (collection, _) in COLLECTIONS {
            let answer = self.admin.send(&Call::get(collection)).await.json();
            let newest = items(answer).iter().map(revision).max().unwrap_or(0);
            let call = Call::get(format!(
                "{collection}?resourceVersion={newest}&limit=1&resourceVersionMatch=NotOlderThan"
            ));
            for reader in &mut self.readers {
                eventually(&format!("{call} succeeds"), async || {
                    reader.send(&call).await.status == 200
                })
                .await;
            }
        }
    }

    async fn warm(&mut self) {
        for (collection, _) in COLLECTIONS {
            for form in ["application/json", "application/vnd.kubernetes.protobuf"] {
                let call = Call::get(format!("{collection}?resourceVersion=0"));
                let call = call.header("accept", &format!("{form},application/json"));
                for reader in &mut self.readers[1..] {
                    eventually(&format!("{call} is a hit"), async || {
                        reader.send(&call).await.cache() == HIT
                    })
                    .await;
                }
            }
        }
        self.wait_for_caches().await;
    }
}

async fn join_outcomes(sent: [Pin<Box<impl Future<Output = Outcome>>>; 3]) -> [Outcome; 3] {
    let [a, b, c] = sent;
    tokio::join!(a, b, c).into()
}

/// Returns the path of a collection of `COLLECTIONS` in one namespace.
fn within(collection: &str, namespace: &str) -> String {
    match collection.rsplit_once('/') {
        Some((_, "namespaces")) | None => collection.to_owned(),
        Some((group_version, plural)) => {
            format!("{group_version}/namespaces/{namespace}/{plural}")
        }
    }
}

async fn prepare(admin: &mut Connection) {
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(admin, crds, &definition("widgets", "Widget", "Namespaced")).await;
    for namespace in NAMESPACES.into_iter().chain(["wire-p"]) {
        create(admin, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    }
    let text = String::from_utf8(super::http1::PROBE_NAME.to_vec()).unwrap();
    let probe = json!({"metadata": {"name": "probe"}, "data": {"text": text}});
    create(admin, "/api/v1/namespaces/wire-p/configmaps", &probe).await;
    for namespace in NAMESPACES {
        fill(admin, namespace).await;
    }
}

/// Creates the objects of a namespace that are not there.
async fn fill(admin: &mut Connection, namespace: &str) {
    for (collection, names) in COLLECTIONS {
        for (number, name) in names.iter().enumerate() {
            let path = within(collection, namespace);
            let there = admin.send(&Call::get(format!("{path}/{name}"))).await;
            if there.status == 200 {
                continue;
            }
            let labels = json!({"app": name, "num": (number * 7).to_string(), "plain": "yes"});
            let mut object = json!({"metadata": {"name": name, "labels": labels}});
            if collection.ends_with("configmaps") {
                object["data"] = json!({"k": name});
            } else {
                object["apiVersion"] = "example.com/v1".into();
                object["kind"] = "Widget".into();
                object["spec"] = json!({"color": "grey", "n": number});
            }
            create(admin, &path, &object).await;
        }
    }
}

/// Removes a namespace as its controller does, which is not there, and makes it again.
async fn replace_namespace(admin: &mut Connection, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}");
    for (collection, names) in COLLECTIONS {
        if !names.is_empty() {
            drop(admin.send(&Call::new(Method::DELETE, within(collection, namespace))).await);
        }
    }
    drop(admin.send(&Call::new(Method::DELETE, path.as_str())).await);
    eventually("the namespace is gone", async || {
        let mut object = admin.send(&Call::get(path.as_str())).await.json();
        if object["code"] == 404 {
            return true;
        }
        object["spec"]["finalizers"] = json!([]);
        drop(admin.send(&Call::json(Method::PUT, &format!("{path}/finalize"), &object)).await);
        false
    })
    .await;
    create(admin, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    fill(admin, namespace).await;
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Object(mut fields) => match fields.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn gateway(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "server:\n  listeners:\n  - listen: https://127.0.0.1:{port}\n    \
         certificate: {{certificateFile: {dir}/server.crt, privateKeyFile: {dir}/server.key}}\n\
         authentication: {{mode: gateway, impersonate: true}}\n{CONFIG}"
    )
}

/// The place of the sidecar among the servers.
pub(crate) const SIDECAR: usize = 2;

/// The collections in all namespaces whose objects are compared, and the names in each namespace.
const COLLECTIONS: [(&str, &[&str]); 3] = [
    ("/api/v1/configmaps", &["a", "b", "c", "x.y"]),
    ("/apis/example.com/v1/widgets", &["a", "b"]),
    ("/api/v1/namespaces", &[]),
];

/// One client sends everything, and no case is refused because of its costs.
const CONFIG: &str = "flowControl: {mode: observe}\ncache: {forwardBudget: 4096}\n";
const LOG: &str = "info";
