//! The requests of each user: verbs, resources and encodings, and non-resource paths.

use http::Method;
use serde_json::json;

use super::world::Traits;
use crate::suite::expected::Expect;
use crate::suite::run::Case;
use crate::suite::wire::Call;

/// A resource: the path of its group and version, its name, an object of it, and a subresource.
struct Resource {
    base: &'static str,
    plural: &'static str,
    namespace: &'static str,
    name: &'static str,
    subresource: &'static str,
    custom: bool,
}

const fn core(plural: &'static str, subresource: &'static str) -> Resource {
    Resource { base: "/api/v1", plural, namespace: "a", name: "x", subresource, custom: false }
}

const RESOURCES: [Resource; 7] = [
    core("configmaps", ""),
    core("secrets", ""),
    core("pods", "status"),
    Resource { namespace: "", ..core("nodes", "status") },
    Resource { namespace: "", name: "a", ..core("namespaces", "status") },
    Resource { base: "/apis/apps/v1", ..core("deployments", "scale") },
    Resource { base: "/apis/example.com/v1", custom: true, ..core("widgets", "status") },
];

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

/// All requests, with the server that must answer an allowed user.
pub(crate) fn cases(traits: Traits) -> Vec<Case> {
    let mut cases = Vec::new();
    for resource in &RESOURCES {
        for (accept, form) in [("", ""), (PROTOBUF, ""), ("application/json", AS), (PROTOBUF, AS)] {
            // A custom resource has no protobuf form; only its metadata has.
            if accept == PROTOBUF && resource.custom {
                continue;
            }
            cases.extend(reads(resource, accept, form, traits));
        }
        cases.extend(others(resource));
    }
    cases.extend(paths());
    cases
}

/// The reads that a cache answers, in one form.
pub(crate) fn cached(traits: Traits) -> Vec<Call> {
    cases(traits)
        .into_iter()
        .filter(|case| case.expect == Expect::Cache && !case.slow)
        .map(|case| case.call)
        .collect()
}

fn reads(resource: &Resource, accept: &str, form: &str, traits: Traits) -> Vec<Case> {
    let accepts = |list: &str| format!("{accept}{}", form.replace("KIND", list));
    let case = |path: &str, kind: &str, expect: Expect, slow: bool| {
        let mut call = Call::get(path);
        if !accept.is_empty() {
            call = call.header("accept", &accepts(kind));
        }
        Case { call, expect, slow }
    };
    let one = format!("{}/{}", resource.collection(), resource.name);
    let mut cases = vec![
        case(&format!("{one}?resourceVersion=0"), OBJECT, Expect::Cache, false),
        case(&one, OBJECT, Expect::Either, false),
        case(
            &format!("{}/missing?resourceVersion=0", resource.collection()),
            OBJECT,
            Expect::Either,
            false,
        ),
    ];
    let mut places = vec![resource.collection(), format!("{}/{}", resource.base, resource.plural)];
    places.dedup();
    for (number, place) in places.into_iter().enumerate() {
        let named = if number > 0 && !traits.pages_cached { Expect::Either } else { Expect::Cache };
        let name = format!("fieldSelector=metadata.name%3D{}", resource.name);
        let query = "resourceVersion=0";
        let watch = format!("watch=1&timeoutSeconds=1&{query}");
        cases.extend([
            case(&format!("{place}?{query}"), LIST, Expect::Cache, false),
            case(&place, LIST, Expect::Either, false),
            case(&format!("{place}?{query}&{name}"), LIST, Expect::Cache, false),
            case(&format!("{place}?{watch}"), OBJECT, Expect::Cache, true),
            case(&format!("{place}?{watch}&{name}"), OBJECT, named, true),
        ]);
    }
    cases
}

/// The forwarded requests, once each.
fn others(resource: &Resource) -> Vec<Case> {
    let (collection, name) = (resource.collection(), resource.name);
    let table = Call::get(format!("{collection}?resourceVersion=0")).header("accept", TABLE);
    let prefix = collection.replacen(resource.base, &format!("{}/watch", resource.base), 1);
    let mut calls = vec![
        table,
        Call::get(format!("{collection}/{name}/{}", resource.other())),
        Call::new(Method::DELETE, format!("{collection}/missing?dryRun=All")),
        Call::new(
            Method::DELETE,
            format!("{collection}/{name}?dryRun=All&propagationPolicy=Background"),
        ),
        Call::new(Method::HEAD, format!("{collection}/{name}")),
        Call::get(format!("{collection}?limit=1")),
        Call::get(format!("{collection}?resourceVersion=0&labelSelector=app%3Dx")),
    ];
    // The response to the deletion of a pod contains the time of its end.
    if resource.plural == "pods" {
        calls.remove(3);
    }
    let mut cases: Vec<_> = calls.into_iter().map(|call| Case::new(call, Expect::Either)).collect();
    for path in [prefix.clone(), format!("{prefix}/{name}")] {
        let call = Call::get(format!("{path}?timeoutSeconds=1&resourceVersion=0"));
        cases.push(Case { call, expect: Expect::Either, slow: true });
    }
    cases
}

impl Resource {
    fn collection(&self) -> String {
        match self.namespace {
            "" => format!("{}/{}", self.base, self.plural),
            namespace => format!("{}/namespaces/{namespace}/{}", self.base, self.plural),
        }
    }

    /// A subresource, existing or not.
    fn other(&self) -> &str {
        if self.subresource.is_empty() { "status" } else { self.subresource }
    }
}

/// Discovery, documents, paths that exist and paths that do not, and reviews of the user itself.
fn paths() -> Vec<Case> {
    const AGGREGATED: &str =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let mut cases = Vec::new();
    for path in ["/api", "/apis"] {
        cases.push(Case::new(Call::get(path).header("accept", AGGREGATED), Expect::Cache));
    }
    cases.push(Case::new(Call::get("/openapi/v2"), Expect::Cache));
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps/v1",
        "/apis/example.com/v1",
        "/version",
        "/version/",
        "/healthz",
        "/livez",
        "/nope",
        "/logs/nope",
        "/openapi/v3",
        "/api/v1/nopes",
        "/apis/nope.com/v1/things",
        "/api/v1/namespaces/a/pods/x/log?tailLines=0",
    ] {
        cases.push(Case::new(Call::get(path), Expect::Either));
    }
    let attributes = json!({"verb": "list", "resource": "configmaps", "namespace": "a"});
    let about = |kind: &str, group: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": {"resourceAttributes": attributes}});
    let self_review = about("SelfSubjectAccessReview", "authorization.k8s.io");
    let other = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "tom", "groups": ["readers"], "resourceAttributes": attributes}});
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    for (group, plural, body) in [
        ("authorization.k8s.io", "selfsubjectaccessreviews", self_review),
        ("authorization.k8s.io", "subjectaccessreviews", other),
        ("authentication.k8s.io", "selfsubjectreviews", who),
    ] {
        let call = Call::json(Method::POST, &format!("/apis/{group}/v1/{plural}"), &body);
        cases.push(Case::new(call, Expect::Either));
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let call = Call::json(Method::POST, "/api/v1/namespaces/nowhere/configmaps?dryRun=All", &map);
    cases.push(Case::new(call, Expect::Either));
    cases
}

const AS: &str = ";as=KIND;g=meta.k8s.io;v=v1";
const OBJECT: &str = "PartialObjectMetadata";
const LIST: &str = "PartialObjectMetadataList";
