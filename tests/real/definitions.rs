//! Definitions that change, disappear and reappear under watches, and an aggregated API without a
//! server: soon after each change, responses through Weir equal direct ones.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::frames::{Frame, Frames};
use crate::suite::objects::create;
use crate::suite::wire::{Call, Endpoint};
use crate::support::Weir;
use crate::wait::eventually;

/// New defaults, a new version, an old version that is no longer served, deletion, and another
/// definition of the same name.
pub(crate) fn change() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let direct = plane.endpoint(ADMIN);
        let through = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        define(&direct, json!({}), &[("v1", true)]).await;
        for name in ["a", "b"] {
            create(&mut direct.connection(), OBJECTS, &object(name)).await;
        }
        same(&direct, &through, "v1", "\"name\":\"b\"").await;

        // The upstream decides whether a stream continues when the schema changes or a version
        // appears or disappears, and what it sends until then.
        let defaults = json!({"size": {"type": "integer", "default": 7}});
        let streams = Streams::open(&direct, &through, "v1").await;
        define(&direct, defaults.clone(), &[("v1", true)]).await;
        same(&direct, &through, "v1", "\"size\":7").await;
        streams.agree(&direct, "later").await;

        let streams = Streams::open(&direct, &through, "v1").await;
        define(&direct, defaults.clone(), &[("v1", true), ("v2", true)]).await;
        same(&direct, &through, "v2", "example.com/v2").await;
        streams.agree(&direct, "with-v2").await;

        let streams = Streams::open(&direct, &through, "v2").await;
        define(&direct, defaults.clone(), &[("v1", true), ("v2", false)]).await;
        same(&direct, &through, "v2", "404 page not found").await;
        streams.agree(&direct, "v2-unserved").await;
        let streams = Streams::open(&direct, &through, "v1").await;
        define(&direct, defaults, &[("v1", true)]).await;
        same(&direct, &through, "v2", "404 page not found").await;
        same(&direct, &through, "v1", "\"size\":7").await;
        streams.agree(&direct, "without-v2").await;
        for name in ["later", "with-v2", "v2-unserved", "without-v2"] {
            let gone = Call::new(Method::DELETE, format!("{OBJECTS}/{name}"));
            assert_eq!(direct.send(&gone).await.status, 200);
        }

        // Deletion under watches: each event arrives both ways, and both streams end.
        let list = direct.send(&Call::get("/apis/example.com/v1/things?limit=1")).await.json();
        let at = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let path = format!("/apis/example.com/v1/things?watch=1&resourceVersion={at}");
        // Both are open before the definition goes.
        let mut streams = Vec::new();
        for side in [&direct, &through] {
            let response = side.open(&Call::get(path.clone())).await.expect("a watch");
            assert_eq!(response.status(), 200);
            streams.push(tokio::spawn(collect(Frames::new(response))));
        }
        let gone = direct.send(&Call::new(Method::DELETE, format!("{DEFINITIONS}/{NAME}"))).await;
        assert_eq!(gone.status, 200);
        same(&direct, &through, "v1", "404 page not found").await;
        let by_weir = streams.pop().unwrap().await.unwrap();
        let directly = streams.pop().unwrap().await.unwrap();
        assert!(directly.len() == 2, "{directly:?}");
        assert!(by_weir == directly, "through Weir {by_weir:?}\ndirectly {directly:?}");

        let other = json!({"colour": {"type": "string", "default": "red"}});
        define(&direct, other, &[("v1", true)]).await;
        create(&mut direct.connection(), OBJECTS, &object("c")).await;
        same(&direct, &through, "v1", "\"colour\":\"red\"").await;
    });
}

/// An APIService without a server fails alone.
pub(crate) fn nowhere() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let direct = plane.endpoint(ADMIN);
        let through = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.nowhere.example.com"},
            "spec": {"group": "nowhere.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
                "insecureSkipTLSVerify": true, "service": {"name": "nowhere", "namespace": "default"}},
        });
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        create(&mut direct.connection(), services, &service).await;
        let lost = Call::get("/apis/nowhere.example.com/v1/things?resourceVersion=0");
        eventually("both say that it is not there", async || {
            let (left, right) = (direct.send(&lost).await, through.send(&lost).await);
            left.status == 503 && right.status == 503 && left.body == right.body
        })
        .await;
        define(&direct, json!({}), &[("v1", true)]).await;
        create(&mut direct.connection(), OBJECTS, &object("a")).await;
        same(&direct, &through, "v1", "\"name\":\"a\"").await;
        for path in ["/api/v1/namespaces?resourceVersion=0", "/apis/example.com/v1/things?resourceVersion=0"] {
            eventually("the cache answers", async || {
                through.send(&Call::get(path)).await.header("x-weir-cache") == "hit"
            })
            .await;
        }
    });
}

/// A plural that paths give another meaning, and objects that the API server takes for lists.
pub(crate) fn confusable() {
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let direct = plane.endpoint(ADMIN);
        let through = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        let kinds = [("namespaces", "Namespace", "Cluster"), ("lists", "Item", "Namespaced")];
        for (plural, kind, scope) in kinds {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.example.com")},
                "spec": {"group": "example.com", "scope": scope,
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
            });
            create(&mut direct.connection(), DEFINITIONS, &definition).await;
        }
        let lists = "/apis/example.com/v1/namespaces/default/lists";
        let namespaces = "/apis/example.com/v1/namespaces";
        let item = |kind: &str, name: &str, items: Value| json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}, "items": items});
        for (path, object) in [
            (namespaces, item("Namespace", "a", json!(1))),
            (lists, item("Item", "object", json!({"a": []}))),
            // Stored, although the response is a 500.
            (lists, item("Item", "array", json!([{"a": 1}]))),
        ] {
            let call = Call::json(Method::POST, path, &object);
            eventually("the object is stored", async || {
                matches!(direct.send(&call).await.status, 201 | 409 | 500)
            })
            .await;
        }
        for (path, status) in [
            (format!("{lists}/object"), 200),
            (format!("{lists}/array"), 500),
            (format!("{namespaces}/a"), 404),
        ] {
            let collection = path.rsplit_once('/').unwrap().0;
            let state = Call::get(format!("{collection}?resourceVersion=0"));
            let call = Call::get(format!("{path}?resourceVersion=0"));
            eventually(&format!("{path} is {status} while its cache answers"), async || {
                let (left, right) = (direct.send(&call).await, through.send(&call).await);
                let list = through.send(&state).await;
                let has_all = String::from_utf8_lossy(&list.body).contains("\"items\":[{");
                let is_hit = list.header("x-weir-cache") == "hit" && has_all;
                is_hit && left.status == status && right.status == status && left.body == right.body
            })
            .await;
        }
    });
}

/// Waits until a list at any resourceVersion has this content directly, and the same through Weir
/// but for the list's own resourceVersion.
async fn same(direct: &Endpoint, through: &Endpoint, version: &str, says: &str) {
    let call = Call::get(format!("/apis/example.com/{version}/things?resourceVersion=0"));
    eventually(&format!("{version} says {says}"), async || {
        let (left, right) = (direct.send(&call).await, through.send(&call).await);
        let text = String::from_utf8_lossy(&left.body).into_owned();
        let items = |body: &[u8]| {
            let text = String::from_utf8_lossy(body).into_owned();
            text.rsplit_once("\"metadata\":").map_or(text.clone(), |(items, _)| items.to_owned())
        };
        text.contains(says)
            && left.status == right.status
            && items(&left.body) == items(&right.body)
    })
    .await;
}

/// Returns all events but bookmarks, up to the end of the stream.
async fn collect(mut frames: Frames) -> Vec<Frame> {
    let mut seen = Vec::new();
    while let Ok(Some(frame)) = tokio::time::timeout(LIMIT, frames.next()).await {
        if frame.event != "BOOKMARK" {
            seen.push(frame);
        }
        if seen.len() == 2 {
            break;
        }
    }
    seen
}

/// The events of a watch without bookmarks, and whether it has ended.
type ReceivedEvents = Arc<Mutex<(Vec<Frame>, bool)>>;

/// A watch of each side that begins with the state.
struct Streams {
    tasks: [JoinHandle<()>; 2],
    seen: [ReceivedEvents; 2],
}

impl Streams {
    /// While a definition spreads, a stream may begin with a definition that is about to end: both
    /// streams are opened again until they have the same state.
    async fn open(direct: &Endpoint, through: &Endpoint, version: &str) -> Self {
        let mut opened = None;
        eventually("both show the state", async || {
            let streams = Self::open_once([direct, through], version).await;
            for _ in 0..STATE_CHECKS {
                if streams.is_same_state() {
                    opened = Some(streams);
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            streams.tasks.iter().for_each(JoinHandle::abort);
            false
        })
        .await;
        opened.unwrap()
    }

    async fn open_once(sides: [&Endpoint; 2], version: &str) -> Self {
        let seen: [ReceivedEvents; 2] = Default::default();
        let path = format!("/apis/example.com/{version}/things?watch=1&resourceVersion=0");
        let mut tasks = Vec::new();
        for (side, seen) in sides.into_iter().zip(&seen) {
            let response = side.open(&Call::get(&path)).await.expect("a watch");
            assert_eq!(response.status(), 200);
            let seen = Arc::clone(seen);
            tasks.push(tokio::spawn(async move {
                let mut frames = Frames::new(response);
                while let Some(frame) = frames.next().await {
                    if frame.event != "BOOKMARK" {
                        seen.lock().0.push(frame);
                    }
                }
                seen.lock().1 = true;
            }));
        }
        Self { tasks: tasks.try_into().unwrap(), seen }
    }

    /// Whether both are open and have the same objects.
    fn is_same_state(&self) -> bool {
        let [directly, by_weir] = &self.seen;
        let (directly, by_weir) = (directly.lock(), by_weir.lock());
        directly.0.len() >= 2 && *directly == *by_weir && !directly.1
    }

    /// Waits until, after a new object, both have ended or both have it, and checks that they had
    /// the same events.
    async fn agree(self, direct: &Endpoint, name: &str) {
        create(&mut direct.connection(), OBJECTS, &object(name)).await;
        let key = format!("default/{name}");
        let goes_on = |seen: &(Vec<Frame>, bool)| seen.0.iter().any(|frame| frame.key == key);
        let mut printed = String::new();
        eventually(&format!("both streams do the same around {name}"), async || {
            let [directly, by_weir] = self.seen.each_ref().map(|seen| seen.lock().clone());
            let describe = |seen: &(Vec<Frame>, bool)| {
                let frames = seen.0.iter().map(|frame| format!("{} {}", frame.event, frame.key));
                format!("{:?}, ended: {}", frames.collect::<Vec<_>>(), seen.1)
            };
            let now =
                format!("directly {}\n  by Weir  {}", describe(&directly), describe(&by_weir));
            if now != printed {
                eprintln!("{name}:\n  {now}");
                printed = now;
            }
            let settled = |seen: &(Vec<Frame>, bool)| seen.1 || goes_on(seen);
            settled(&directly) && settled(&by_weir) && directly == by_weir
        })
        .await;
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Creates the definition, or replaces it.
async fn define(direct: &Endpoint, properties: Value, versions: &[(&str, bool)]) {
    let mut spec = json!({"type": "object", "properties": properties});
    spec["default"] = json!({});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let version = |(name, served): &(&str, bool)| json!({"name": name, "served": served, "storage": *name == "v1", "schema": schema});
    let mut object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": versions.iter().map(version).collect::<Vec<_>>()},
    });
    let path = format!("{DEFINITIONS}/{NAME}");
    eventually("the definition is written", async || {
        let old = direct.send(&Call::get(&path)).await;
        let call = if old.status == 404 {
            Call::json(Method::POST, DEFINITIONS, &object)
        } else {
            object["metadata"]["resourceVersion"] =
                old.json()["metadata"]["resourceVersion"].clone();
            Call::json(Method::PUT, &path, &object)
        };
        matches!(direct.send(&call).await.status, 200 | 201)
    })
    .await;
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}})
}

/// How often two streams are compared before they are opened again.
const STATE_CHECKS: usize = 50;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "things.example.com";
const OBJECTS: &str = "/apis/example.com/v1/namespaces/default/things";
const LIMIT: Duration = Duration::from_secs(60);
