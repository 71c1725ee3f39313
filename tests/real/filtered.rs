//! Users who may read some namespaces list all. They get the union of the API server's lists of the
//! single namespaces, and nothing else.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::control_plane::kubectl;
use crate::kubectl::text;
use crate::matrix::{BY_ROLES, with};
use crate::matrix_suite::users::{ADMIN, WEIR};
use crate::matrix_suite::world::{Setting, World};
use crate::suite::run::HIT;
use crate::suite::wire::{Call, Connection};

/// Every allowed list is checked by an access review.
const FILTERED: Setting = Setting {
    authorization: ", rbac: {enabled: true, checkOneIn: 1}, filteredLists: namespaces",
    ..BY_ROLES
};
const COLLECTIONS: [&str; 6] = [
    "/api/v1/configmaps",
    "/api/v1/pods",
    "/api/v1/secrets",
    "/apis/apps/v1/deployments",
    "/apis/example.com/v1/widgets",
    "/api/v1/namespaces",
];
/// The queries of lists.
const QUERIES: [&str; 5] = [
    "",
    "limit=1",
    "limit=2&labelSelector=app%3Dy",
    "resourceVersion=0",
    "fieldSelector=metadata.name%3Dx",
];
const ENCODINGS: [&str; 4] = [
    "application/json",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
];

pub(crate) fn unions() {
    with(FILTERED, async |world| {
        let mut counts = BTreeMap::<&str, usize>::new();
        let mut names: Vec<_> = [
            "tom", "dora", "nina", "noah", "sven", "sue", "nora", "gus", "mia", "<&>\"", ADMIN,
            WEIR,
        ]
        .map(|name| (name, world.tokens.token_of(name)))
        .into();
        names.push(("robot", world.tokens.robot.clone()));
        let mut admin = world.admin().connection();
        for (name, token) in &names {
            let [mut direct, mut through] =
                [&world.direct, &world.through].map(|side| side.as_token(token).connection());
            for collection in COLLECTIONS {
                let allowed = allowed(&mut direct, &mut admin, collection).await;
                for query in QUERIES {
                    for accept in ENCODINGS {
                        let call =
                            Call::get(format!("{collection}?{query}")).header("accept", accept);
                        let whole = direct.send(&call).await;
                        let seen = through.send(&call).await;
                        let what = format!("{name}: {call}");
                        let is_filtered = !seen.header("x-weir-filtered").is_empty();
                        let kind = match (whole.status, &allowed[..]) {
                            (200, _) => {
                                assert!(!is_filtered && seen.status == 200, "{what}");
                                "whole"
                            }
                            (403, []) => {
                                assert!(!is_filtered, "{what}");
                                assert_eq!((seen.status, &seen.body), (403, &whole.body), "{what}");
                                "refused"
                            }
                            (403, allowed) => {
                                assert!(
                                    is_filtered && seen.status == 200,
                                    "{what} {}",
                                    seen.status
                                );
                                assert_eq!(seen.cache(), HIT, "{what}");
                                let is_json = seen.header("content-type") == "application/json";
                                if is_json && query != "resourceVersion=0" {
                                    let list = seen.json();
                                    let expected = union(&mut admin, &call, &list, allowed).await;
                                    assert_eq!(items(&list), expected, "{what}");
                                }
                                let canaries =
                                    text(&seen.body).matches(&world.tokens.canary).count();
                                assert!(
                                    canaries == 0
                                        || *name == "sven"
                                        || collection != "/api/v1/secrets",
                                    "{what}"
                                );
                                "filtered"
                            }
                            (status, _) => panic!("{what}: {status}"),
                        };
                        *counts.entry(kind).or_default() += 1;
                    }
                }
            }
        }
        eprintln!("{counts:?}");
        assert!(counts["filtered"] >= 100 && counts["refused"] >= 200, "{counts:?}");
        assert!(world.weir.metric("weir_rbac_differences_total", &[]) == 0.0);
        tokio::task::spawn_blocking(move || tenant(&world)).await.unwrap();
    });
}

/// Returns the objects or namespaces of a collection that a user may read, as the API server says.
async fn allowed(
    direct: &mut Connection,
    admin: &mut Connection,
    collection: &str,
) -> Vec<(String, String)> {
    let mut allowed = Vec::new();
    let namespaces = admin.send(&Call::get("/api/v1/namespaces")).await.json();
    for namespace in namespaces["items"].as_array().unwrap() {
        let name = namespace["metadata"]["name"].as_str().unwrap();
        let (place, path) = match collection.rsplit_once('/').unwrap() {
            (_, "namespaces") => ((String::new(), name.to_owned()), format!("{collection}/{name}")),
            (group, resource) => {
                ((name.to_owned(), String::new()), format!("{group}/namespaces/{name}/{resource}"))
            }
        };
        if direct.send(&Call::get(&path)).await.status == 200 {
            allowed.push(place);
        }
    }
    allowed
}

/// Returns the items of the whole list at the same state that are allowed, up to the same number
/// if the list is a page.
async fn union(
    admin: &mut Connection,
    call: &Call,
    list: &Value,
    allowed: &[(String, String)],
) -> Vec<Value> {
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let (path, query) = call.path.split_once('?').unwrap();
    let query = query.replace("limit=1", "").replace("limit=2&", "");
    let exact = format!("{path}?{query}&resourceVersion={version}&resourceVersionMatch=Exact");
    let accept = call.headers.iter().find(|(name, _)| *name == "accept").unwrap();
    let accept = accept.1.replace("application/json;as=Table;v=v1;g=meta.k8s.io,", "");
    let answer = admin.send(&Call::get(&exact).header("accept", &accept)).await;
    let whole = answer.json();
    assert_eq!(answer.status, 200, "{exact}: {whole}");
    let field = |object: &Value, name: &str| {
        object["metadata"][name].as_str().unwrap_or_default().to_owned()
    };
    let items = items(&whole).iter().filter(|object| {
        allowed.iter().any(|(namespace, name)| match namespace.as_str() {
            "" => field(object, "name") == *name,
            namespace => field(object, "namespace") == namespace,
        })
    });
    let items: Vec<_> = items.cloned().collect();
    let is_page = list["metadata"].get("continue").is_some();
    let count = if is_page { self::items(list).len() } else { items.len() };
    items.into_iter().take(count).collect()
}

/// Returns the items of a list, which are null in an empty list of metadata.
fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// kubectl as a tenant: it asks for Tables, which Weir does not write, and shows names and ages.
fn tenant(world: &World) {
    let authority = world.pki.write("through.crt", &world.through.ca);
    let server = format!("https://{}", world.through.address);
    let token = world.tokens.token_of("dora");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(kubectl().unwrap());
        command.args(["--server", &server, "--token", &token, "--certificate-authority"]);
        let output = command.arg(&authority).args(arguments).output().unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (is_ok, seen, error) = run(&["get", "configmaps", "-A"]);
    let rows = seen.lines().skip(1).map(|row| row.split_whitespace().next().unwrap_or_default());
    assert!(is_ok && rows.clone().all(|namespace| namespace == "a"), "{seen}{error}");
    assert!(rows.count() >= 2, "{seen}");
    let names = ["get", "configmaps", "-A", "-o", "name", "-l", "app=x"];
    assert_eq!(run(&names).1, "configmap/x\n");
    let (is_ok, _, error) = run(&["get", "secrets", "-A"]);
    assert!(!is_ok && error.contains("Forbidden"), "{error}");
    assert_eq!(run(&["auth", "can-i", "list", "configmaps", "-n", "a"]).1, "yes\n");
    assert_eq!(run(&["auth", "can-i", "list", "configmaps", "-A"]).1, "no\n");
}
