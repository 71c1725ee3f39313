//! An API that an aggregated API server takes over from a CustomResourceDefinition, and returns, in
//! several orders, before and after Weir's start. That server has an answer of its own for each
//! user, so each user must get through Weir what they get directly, and never anybody else's.

mod server;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::server::AggregatedServer;
use crate::control_plane::{ADMIN, ALICE, BOB, ControlPlane};
use crate::suite::frames::Frames;
use crate::suite::objects::create;
use crate::suite::wire::{Answer, Call, Endpoint};
use crate::support::{Weir, free_port};
use crate::wait::eventually;

/// Runs all orders on one control plane.
pub(crate) fn takeovers() {
    let plane = ControlPlane::start();
    Runtime::new().unwrap().block_on(async {
        let world = World::start(plane).await;
        let direct = world.direct("admin");
        world.define(&direct).await;
        let weirs = vec![world.gateway().await, world.sidecar().await];
        world.agree("a definition", &weirs, &[]).await;
        let watches = open_watches(&weirs).await;

        world.set_api_service(true).await;
        world.agree("taken over", &weirs, &["alice", "bob"]).await;
        for (name, frames) in watches {
            ends_expired(&name, frames).await;
        }
        let mut weirs = weirs;
        weirs.extend([world.gateway().await, world.sidecar().await]);
        world.agree("taken over before the start", &weirs, &["alice", "bob"]).await;

        world.server.set_down(true);
        world.agree("the server is down", &weirs, &[]).await;
        world.server.set_down(false);
        world.agree("the server is up", &weirs, &["alice", "bob"]).await;

        let gone = Call::new(Method::DELETE, format!("{DEFINITIONS}/{NAME}"));
        assert_eq!(direct.send(&gone).await.status, 200);
        world.agree("without a definition", &weirs, &["alice", "bob"]).await;
        world.define(&direct).await;
        world.agree("a definition of what is aggregated", &weirs, &["alice", "bob"]).await;
        weirs.push(world.gateway().await);
        world.agree("the same before the start", &weirs, &["alice", "bob"]).await;

        world.set_api_service(false).await;
        world.agree("given back", &weirs, &[]).await;
        // Above every resourceVersion of etcd.
        world.server.set_resource_version(1_000_000_000_000);
        world.set_api_service(true).await;
        world.agree("taken over again", &weirs, &["alice", "bob"]).await;
        let gone = Call::new(Method::DELETE, format!("{SERVICES}/{SERVICE}"));
        assert_eq!(direct.send(&gone).await.status, 200);
        world.agree("the APIService is deleted", &weirs, &[]).await;
    });
}

/// The control plane with the aggregated API server.
struct World {
    plane: ControlPlane,
    server: AggregatedServer,
}

/// A Weir, and who sends requests to it.
struct Side {
    name: String,
    users: Vec<(&'static str, Endpoint)>,
    _weir: Weir,
}

impl World {
    async fn start(plane: ControlPlane) -> Self {
        let server = AggregatedServer::start(plane.dir()).await;
        let world = Self { plane, server };
        let direct = world.direct("admin");
        let mut connection = direct.connection();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "own"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": world.server.port()}]}});
        create(&mut connection, "/api/v1/namespaces/default/services", &service).await;
        let rbac = "rbac.authorization.k8s.io";
        let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "things"},
            "rules": [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get", "list", "watch"]}]});
        create(&mut connection, &format!("/apis/{rbac}/v1/clusterroles"), &role).await;
        let user = |name: &str| json!({"kind": "User", "apiGroup": rbac, "name": name});
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "things"},
            "subjects": [user("alice"), user("bob")],
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "things"}});
        create(&mut connection, &format!("/apis/{rbac}/v1/clusterrolebindings"), &binding).await;
        world
    }

    fn direct(&self, user: &str) -> Endpoint {
        self.plane.endpoint(token(user))
    }

    /// Starts a Weir for several users.
    async fn gateway(&self) -> Side {
        let port = free_port();
        let kubeconfig = self.plane.kubeconfig(ADMIN);
        let config = format!(
            "server: {{listeners: [{{listen: \"http://127.0.0.1:{port}\"}}]}}\nauthentication: {{mode: gateway}}\n"
        );
        let start = move || {
            let weir = Weir::spawn_gateway(&kubeconfig, &config, port, "info,weir=debug");
            weir.wait_until_ready();
            weir
        };
        let weir = tokio::task::spawn_blocking(start).await.unwrap();
        let through = Endpoint::plain(([127, 0, 0, 1], port).into());
        let users = ["alice", "bob"].map(|user| (user, through.clone())).into();
        Side { name: format!("gateway {port}"), users, _weir: weir }
    }

    /// Starts a Weir with the identity of `admin`.
    async fn sidecar(&self) -> Side {
        let kubeconfig = self.plane.kubeconfig(ADMIN);
        let start = move || Weir::start(&kubeconfig, "");
        let weir = tokio::task::spawn_blocking(start).await.unwrap();
        let port = weir.plain_port();
        let users = vec![("admin", Endpoint::plain(([127, 0, 0, 1], port).into()))];
        Side { name: format!("sidecar {port}"), users, _weir: weir }
    }

    /// Creates the definition, and an object that every user may read.
    async fn define(&self, direct: &Endpoint) {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
        });
        create(&mut direct.connection(), DEFINITIONS, &definition).await;
        let shared = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "shared"}});
        eventually("the definition is served", async || {
            // An aggregated server has no place for it.
            let made = direct.send(&Call::json(Method::POST, OBJECTS, &shared)).await;
            made.status == 201 || self.is_aggregated().await
        })
        .await;
    }

    async fn is_aggregated(&self) -> bool {
        let service = self.direct("admin").send(&Call::get(format!("{SERVICES}/{SERVICE}"))).await;
        service.json()["spec"]["service"].is_object()
    }

    /// Gives the APIService the aggregated server, or takes it away.
    async fn set_api_service(&self, is_aggregated: bool) {
        let direct = self.direct("admin");
        let path = format!("{SERVICES}/{SERVICE}");
        eventually("the APIService is written", async || {
            let mut object = direct.send(&Call::get(&path)).await.json();
            let Some(metadata) = object["metadata"].as_object_mut() else { return false };
            // Otherwise the API server writes it again.
            metadata.remove("labels");
            let spec = object["spec"].as_object_mut().unwrap();
            if is_aggregated {
                let service =
                    json!({"name": "own", "namespace": "default", "port": self.server.port()});
                spec.insert("service".to_owned(), service);
                spec.insert("insecureSkipTLSVerify".to_owned(), true.into());
            } else {
                spec.remove("service");
                spec.remove("insecureSkipTLSVerify");
            }
            direct.send(&Call::json(Method::PUT, &path, &object)).await.status == 200
        })
        .await;
    }

    /// Waits until each user gets the same through each Weir as directly, and then checks that it
    /// stays so. Users in `owners` have a thing of their own then.
    async fn agree(&self, when: &str, sides: &[Side], owners: &[&str]) {
        for side in sides {
            for (user, through) in &side.users {
                let direct = self.direct(user);
                let about =
                    format!("{when}: {user} gets the same through {} as directly", side.name);
                for path in READS {
                    eventually(&format!("{about}: {path}"), async || {
                        self.is_same(&direct, through, user, path, owners).await
                    })
                    .await;
                }
                for _ in 0..REPEATS {
                    for path in READS {
                        let is_same = self.is_same(&direct, through, user, path, owners).await;
                        assert!(is_same, "{about}, and later it is not: {path}");
                    }
                }
            }
        }
    }

    async fn is_same(
        &self,
        direct: &Endpoint,
        through: &Endpoint,
        user: &str,
        path: &str,
        owners: &[&str],
    ) -> bool {
        let left = direct.send(&Call::get(path)).await;
        let right = through.send(&as_user(Call::get(path), user)).await;
        let text = String::from_utf8_lossy(&right.body).into_owned();
        for other in ["alice", "bob", "admin"].iter().filter(|other| **other != user) {
            // An error has the name in the path.
            let is_shown = right.status == 200 && text.contains(&format!("{other}-own"));
            assert!(!is_shown, "{user} sees the thing of {other} ({}): {text}", right.cache());
        }
        let is_settled =
            !owners.contains(&user) || path.contains("/things/") || text.contains(user);
        is_settled && content(&left) == content(&right)
    }
}

/// The status, and the body without the resourceVersion of a list.
fn content(answer: &Answer) -> (u16, Value) {
    let mut body = answer.json();
    if body["items"].is_array() {
        body["metadata"] = Value::Null;
    }
    (answer.status, body)
}

/// Opens a watch of each user at each Weir, after its state.
async fn open_watches(sides: &[Side]) -> Vec<(String, Frames)> {
    let mut watches = Vec::new();
    for side in sides {
        for (user, through) in &side.users {
            let path = "/apis/example.com/v1/things?watch=1&resourceVersion=0";
            let response = through.open(&as_user(Call::get(path), user)).await.unwrap();
            assert_eq!(
                (response.status().as_u16(), &response.headers()["x-weir-cache"]),
                (200, &"hit".parse().unwrap())
            );
            let mut frames = Frames::new(response);
            assert_eq!(frames.next().await.unwrap().key, "default/shared");
            watches.push((format!("{user} at {}", side.name), frames));
        }
    }
    watches
}

/// Checks that a watch ends with a 410, so that its client lists.
async fn ends_expired(name: &str, mut frames: Frames) {
    let rest = async {
        let mut last = None;
        while let Some(frame) = frames.next().await {
            last = Some(frame);
        }
        last
    };
    let last = tokio::time::timeout(LIMIT, rest).await.expect("the watch ends");
    let last = last.unwrap_or_else(|| panic!("the watch of {name} ends without a frame"));
    let text = String::from_utf8_lossy(&last.bytes).into_owned();
    assert!(last.event == "ERROR" && text.contains("\"code\":410"), "{name}: {text}");
}

/// A sidecar ignores the token.
fn as_user(call: Call, user: &str) -> Call {
    call.header("authorization", &format!("Bearer {}", token(user)))
}

fn token(user: &str) -> &'static str {
    match user {
        "alice" => ALICE,
        "bob" => BOB,
        _ => ADMIN,
    }
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "things.example.com";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICE: &str = "v1.example.com";
const OBJECTS: &str = "/apis/example.com/v1/namespaces/default/things";
const READS: [&str; 5] = [
    "/apis/example.com/v1/things?resourceVersion=0",
    "/apis/example.com/v1/namespaces/default/things",
    "/apis/example.com/v1/namespaces/default/things/alice-own?resourceVersion=0",
    "/apis/example.com/v1/namespaces/default/things/bob-own?resourceVersion=0",
    "/apis/example.com/v1/namespaces/default/things/shared?resourceVersion=0",
];
const REPEATS: usize = 10;
const LIMIT: Duration = Duration::from_secs(10);
