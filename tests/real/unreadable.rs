//! Objects that a real API server takes in protobuf: their strings need not be UTF-8. One tenant
//! writes them at random; what another tenant reads and watches through Weir stays the upstream's,
//! and comes from the caches.

mod writes;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::writes::{KINDS, Kind, odd_object};
use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::wire::{Answer, Call, Endpoint};
use crate::support::Weir;
use crate::wait::eventually;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The tenant whose objects are ordinary, and the other one.
const PLAIN: &str = "plain";
const ODD: &str = "odd";
const WRITES: usize = 400;

struct World {
    direct: Endpoint,
    through: Endpoint,
}

pub(crate) fn another_tenants_objects() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let through = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        let world = World { direct: plane.endpoint(ADMIN), through };
        for name in [PLAIN, ODD] {
            let namespace = json!({"metadata": {"name": name}});
            world.write(Method::POST, "/api/v1/namespaces", &namespace).await;
        }
        world.warm().await;
        let mut before = Vec::new();
        for kind in &KINDS {
            before.push(world.revision(kind).await);
        }
        let mut random = fastrand::Rng::with_seed(33);
        let mut accepted = Vec::new();
        for number in 0..WRITES {
            let (kind, name, body) = odd_object(&mut random, number);
            let answer = world.direct.send(&protobuf(&kind.namespace_path(ODD), body)).await;
            if answer.status == 201 {
                accepted.push((kind, name));
            } else {
                assert!((400..500).contains(&answer.status), "{answer:?}");
            }
            if number % 20 == 0 {
                world.write_and_read_plainly(number).await;
            }
        }
        eprintln!("{} of {WRITES} objects were accepted", accepted.len());
        assert!(accepted.len() > WRITES / 2);
        for (kind, before) in KINDS.iter().zip(before) {
            let names =
                accepted.iter().filter(|(accepted_kind, _)| accepted_kind.plural == kind.plural);
            let names: Vec<_> = names.filter_map(|(_, name)| name.clone()).collect();
            assert!(names.len() > 5, "{}: {names:?}", kind.plural);
            world.compare(kind, before, &names).await;
        }
        world.roles_that_seem_the_same().await;
        let stops = weir.metric("weir_cache_stops_total", &[]);
        assert!(stops < 1.0, "{stops} caches stopped: {}", weir.log());
    });
}

fn protobuf(path: &str, body: Vec<u8>) -> Call {
    let mut call = Call::new(Method::POST, path).header("content-type", PROTOBUF);
    call.body = Bytes::from(body);
    call
}

impl World {
    async fn write(&self, method: Method, path: &str, body: &Value) {
        let answer = self.direct.send(&Call::json(method, path, body)).await;
        assert!(answer.status < 300, "{path}: {answer:?}");
    }

    async fn warm(&self) {
        for kind in KINDS {
            for accept in [JSON, PROTOBUF] {
                let list = Call::get(format!("{}?resourceVersion=0", kind.collection_path()));
                let list = list.header("accept", accept);
                eventually("a cache is warm", async || {
                    self.through.send(&list).await.cache() == "hit"
                })
                .await;
            }
        }
    }

    /// Returns the newest resourceVersion of a kind: that of a list without objects, since
    /// serde_json reads no surrogate that stands alone.
    async fn revision(&self, kind: &Kind) -> String {
        let list =
            Call::get(format!("{}?fieldSelector=metadata.name%3Dabsent", kind.collection_path()));
        let list = self.direct.send(&list).await;
        list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// The other tenant writes something, and finds it in the caches.
    async fn write_and_read_plainly(&self, number: usize) {
        let name = format!("plain-{number}");
        let path = format!("/api/v1/namespaces/{PLAIN}/configmaps");
        self.write(Method::POST, &path, &json!({"metadata": {"name": name}})).await;
        for accept in [JSON, PROTOBUF] {
            let get = Call::get(format!("{path}/{name}?resourceVersion=0"));
            let get = get.header("accept", accept);
            eventually("the cache has it", async || {
                let answer = self.through.send(&get).await;
                assert_eq!(answer.cache(), "hit");
                answer.status == 200
            })
            .await;
        }
    }

    /// Returns both answers to a request, whose bodies must be equal.
    async fn same(&self, path: &str, accept: &str) -> Answer {
        let call = Call::get(path).header("accept", accept);
        let (direct, through) = tokio::join!(self.direct.send(&call), self.through.send(&call));
        assert_eq!(direct.status, through.status, "{path} {accept}");
        assert!(
            direct.body == through.body,
            "{path} {accept}, {}:\n{}\n{}",
            through.cache(),
            String::from_utf8_lossy(&direct.body),
            String::from_utf8_lossy(&through.body)
        );
        through
    }

    /// Compares lists, watches and objects of a kind.
    async fn compare(&self, kind: &Kind, before: String, names: &[String]) {
        let now = self.revision(kind).await;
        for accept in [JSON, PROTOBUF, METADATA] {
            let reached =
                Call::get(format!("{}?resourceVersion={now}", kind.namespace_path(PLAIN)));
            let reached = reached.header("accept", accept);
            eventually("the cache has all writes", async || {
                self.through.send(&reached).await.cache() == "hit"
            })
            .await;
            let exact = format!("resourceVersion={now}&resourceVersionMatch=Exact");
            let watch = format!("watch=1&resourceVersion={before}&timeoutSeconds=1");
            for (path, has_odd_names) in [
                (kind.namespace_path(PLAIN), false),
                (kind.namespace_path(ODD), kind.has_odd_names),
                (kind.collection_path(), kind.has_odd_names),
            ] {
                let expected =
                    if has_odd_names { "forward; reason=unreadable-object" } else { "hit" };
                let of_events =
                    accept.replace("PartialObjectMetadataList", "PartialObjectMetadata");
                let selected = format!("{exact}&labelSelector=a");
                let reads = [(&exact, accept), (&selected, accept), (&watch, &*of_events)];
                let reads = reads.map(|(query, accept)| {
                    let path = format!("{path}?{query}");
                    async move {
                        let answer = self.same(&path, accept).await;
                        assert_eq!(answer.cache(), expected, "{path} {accept}");
                    }
                });
                join_all(reads).await;
            }
            for selector in kind.selectors {
                let path = format!("{}?{exact}&fieldSelector={selector}", kind.collection_path());
                assert_eq!(self.same(&path, accept).await.cache(), "hit", "{path}");
            }
        }
        for accept in [JSON, PROTOBUF] {
            for name in names.iter().map(String::as_str).chain(["absent"]) {
                let path = format!("{}/{name}?resourceVersion=0", kind.namespace_path(ODD));
                assert_eq!(self.same(&path, accept).await.cache(), "hit", "{path}");
            }
        }
    }

    /// Two roles whose names differ in a byte that JSON does not show. When they are gone, the
    /// cache answers as before.
    async fn roles_that_seem_the_same(&self) {
        let kind = KINDS.iter().find(|kind| kind.plural == "roles").unwrap();
        for name in [&b"same\xff"[..], b"same\xfe"] {
            let body = kind.object(name, PLAIN, &[], &[]);
            assert_eq!(
                self.direct.send(&protobuf(&kind.namespace_path(PLAIN), body)).await.status,
                201
            );
        }
        let path = kind.namespace_path(PLAIN);
        let list = Call::get(format!("{path}?resourceVersion=0"));
        // Go's releases write U+FFFD or its escape.
        let both = json!(["same\u{fffd}", "same\u{fffd}"]);
        eventually("both are listed", async || {
            let list = self.through.send(&list).await;
            let roles: Value = serde_json::from_slice(&list.body).unwrap_or_default();
            let names = roles["items"].as_array().into_iter().flatten();
            let names: Value = names.map(|role| role["metadata"]["name"].clone()).collect();
            list.cache() == "forward; reason=unreadable-object" && names == both
        })
        .await;
        let deletion = self.direct.send(&Call::new(Method::DELETE, path.clone())).await;
        assert_eq!(deletion.status, 200);
        eventually("the cache answers", async || self.through.send(&list).await.cache() == "hit")
            .await;
        self.same(&format!("{path}/same?resourceVersion=0"), JSON).await;
    }
}
