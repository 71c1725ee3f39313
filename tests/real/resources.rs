//! Every resource that a real API server lets clients list and watch, in every form that a cache
//! serves: a list, some objects and a watch of each have the upstream's bytes, and come from the
//! cache.
//!
//! The server itself returns the resources, with all of its versions enabled. Resources without
//! objects get one where its form is simple.

use std::collections::BTreeSet;

use base64::Engine;
use http::Method;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::control_plane::{ADMIN, ControlPlane};
use crate::suite::expected::Expect;
use crate::suite::objects::{create, fill};
use crate::suite::read_request::Marks;
use crate::suite::run::{Case, HIT, Sides, run};
use crate::suite::wire::{Call, Endpoint};
use crate::support::Weir;
use crate::wait::eventually;

mod objects;

use objects::OBJECTS;

/// Compares every resource in every form.
pub(crate) fn every_form() {
    let plane = ControlPlane::start_with(&["--runtime-config=api/all=true"]);
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "cache: {forwardBudget: 4096}\n");
    let watch = if plane.has_watch_list() { WATCH_LIST } else { WATCH };
    Runtime::new().unwrap().block_on(async {
        let direct = plane.endpoint(ADMIN);
        let through = Endpoint::plain(([127, 0, 0, 1], weir.plain_port()).into());
        fill(&direct, &mut Marks::default()).await;
        let resources = discover(&direct).await;
        make(&direct, &resources).await;

        let mut cases = Vec::new();
        let mut filled = BTreeSet::new();
        for resource in &resources {
            let list = direct.send(&Call::get(&resource.path)).await.json();
            let objects = list["items"].as_array().cloned().unwrap_or_default();
            if !objects.is_empty() {
                filled.insert(&*resource.path);
            }
            let named = [objects.first(), objects.last()].into_iter().flatten();
            let named: BTreeSet<_> = named.map(|object| resource.object(object)).collect();
            cases.extend(resource.cases(&named, watch));
        }
        eprintln!("{} resources, {} with objects", resources.len(), filled.len());
        for (group_version, _, plural, _) in OBJECTS {
            let path = format!("{group_version}/{plural}");
            let served = resources.iter().any(|resource| resource.path == path);
            assert!(!served || filled.contains(&*path), "{path} has no object");
        }
        warm(&direct, &through, &cases).await;
        let sides = Sides { direct, through, moves: true };
        let report = run(&sides, cases).await;
        assert!(report.count(200, true) > resources.len() * FORMS.len(), "{report:?}");
        report.finish("every resource");
    });
}

/// The metadata of an object equals that of its metadata-only view, except for the kinds that Weir
/// converts.
pub(crate) fn metadata() {
    let plane = ControlPlane::start_with(&["--runtime-config=api/all=true"]);
    Runtime::new().unwrap().block_on(async {
        let direct = plane.endpoint(ADMIN);
        fill(&direct, &mut Marks::default()).await;
        let resources = discover(&direct).await;
        make(&direct, &resources).await;
        let (mut converted, mut compared) = (BTreeSet::new(), 0);
        for resource in resources.iter().filter(|resource| !resource.custom) {
            // Leases are renewed in between.
            eventually(&format!("{} stand still", resource.path), async || {
                let metadata_as = async |accept: &str| {
                    let call = Call::get(&resource.path).header("accept", accept);
                    let list = direct.send(&call).await.json();
                    let items = list["items"].as_array().cloned().unwrap_or_default();
                    items.into_iter().map(|item| item["metadata"].clone()).collect::<Vec<_>>()
                };
                let (full, partial) = (metadata_as(FORMS[0]).await, metadata_as(FORMS[2]).await);
                let versions = |objects: &[Value]| {
                    objects.iter().map(|metadata| metadata["resourceVersion"].clone()).collect()
                };
                let (before, after): (Vec<_>, Vec<_>) = (versions(&full), versions(&partial));
                if before == after && full != partial {
                    converted.insert(resource.path.clone());
                }
                compared += full.len();
                before == after
            })
            .await;
        }
        let served = |path: &&&str| resources.iter().any(|resource| resource.path == ***path);
        let expected: BTreeSet<_> =
            CONVERTED.iter().filter(served).map(|path| (*path).to_owned()).collect();
        eprintln!("{compared} objects, {} kinds converted", converted.len());
        assert_eq!(converted, expected);
    });
}

/// A resource with list and watch.
struct Resource {
    /// The path of all of its objects.
    path: String,
    /// The path of the group and version, under which new objects are created.
    group_version: String,
    plural: String,
    /// Whether a definition declares it.
    custom: bool,
}

impl Resource {
    /// The path of one of its objects.
    fn object(&self, object: &Value) -> String {
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        let name = text("name").unwrap();
        match text("namespace") {
            Some(namespace) => {
                format!("{}/namespaces/{namespace}/{}/{name}", self.group_version, self.plural)
            }
            None => format!("{}/{name}", self.path),
        }
    }

    fn cases(&self, named: &BTreeSet<String>, watch: &str) -> Vec<Case> {
        let expect = if self.plural == "events" { Expect::Upstream } else { Expect::Cache };
        let mut cases = Vec::new();
        for form in FORMS {
            let single = form.replace("MetadataList", "Metadata");
            let mut put = |path: String, accept: &str, slow| {
                let call = Call::get(path).header("accept", accept);
                cases.push(Case { slow, ..Case::new(call, expect) });
            };
            put(format!("{}?resourceVersion=0", self.path), form, false);
            for object in named {
                put(format!("{object}?resourceVersion=0"), &single, false);
            }
            put(format!("{}?{watch}", self.path), &single, true);
        }
        cases
    }
}

/// All resources with list and watch, of every group and version.
async fn discover(direct: &Endpoint) -> Vec<Resource> {
    let mut group_versions = vec!["/api/v1".to_owned()];
    let groups = direct.send(&Call::get("/apis")).await.json();
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            group_versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut resources = Vec::new();
    for group_version in group_versions {
        let list = direct.send(&Call::get(&group_version)).await.json();
        for resource in list["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            let plural = resource["name"].as_str().unwrap();
            if ["list", "watch"].iter().all(|verb| verbs.contains(&json!(verb))) {
                resources.push(Resource {
                    path: format!("{group_version}/{plural}"),
                    group_version: group_version.clone(),
                    plural: plural.to_owned(),
                    custom: group_version.contains("example.com"),
                });
            }
        }
    }
    resources
}

/// Creates the objects of the table, for the resources that the server has.
async fn make(direct: &Endpoint, resources: &[Resource]) {
    let mut connection = direct.connection();
    for (group_version, namespace, plural, text) in OBJECTS {
        let path = format!("{group_version}/{plural}");
        if !resources.iter().any(|resource| resource.path == path) {
            eprintln!("the server has no {path}");
            continue;
        }
        let path = match *namespace {
            "" => path,
            namespace => format!("{group_version}/namespaces/{namespace}/{plural}"),
        };
        let mut object: Value = serde_json::from_str(text).unwrap();
        if *plural == "certificatesigningrequests" {
            object["spec"]["request"] = signing_request().into();
        }
        create(&mut connection, &path, &object).await;
    }
    // Values without a field in v1 become annotations there.
    let status = json!({"status": {"currentReplicas": 1, "desiredReplicas": 1, "conditions":
        [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let path = "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers/scales/status";
    let patched = connection.send(&Call::json(Method::PATCH, path, &status)).await;
    assert_eq!(patched.status, 200, "{}", String::from_utf8_lossy(&patched.body));
}

fn signing_request() -> String {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "someone");
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
    base64::engine::general_purpose::STANDARD.encode(request.pem().unwrap())
}

/// Waits until the cache of every form answers, where the upstream does.
async fn warm(direct: &Endpoint, through: &Endpoint, cases: &[Case]) {
    for case in cases.iter().filter(|case| case.expect == Expect::Cache && !case.slow) {
        eventually(&format!("{} comes from the cache", case.call), async || {
            through.send(&case.call).await.cache() == HIT
                || direct.send(&case.call).await.status != 200
        })
        .await;
    }
}

const FORMS: [&str; 4] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
];

const WATCH: &str = "watch=1&resourceVersion=0&allowWatchBookmarks=1&timeoutSeconds=1";
const WATCH_LIST: &str = "watch=1&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&timeoutSeconds=1";

/// Of the kinds in `api::resource`'s list, the versions whose conversion changes the metadata.
const CONVERTED: [&str; 4] = [
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/autoscaling/v1/horizontalpodautoscalers",
    "/apis/flowcontrol.apiserver.k8s.io/v1beta3/prioritylevelconfigurations",
];
