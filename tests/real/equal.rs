//! While nothing changes, every answer through Weir is the upstream's: status, headers and bytes, for some hundred
//! generated reads of many resources. Only headers that differ between two answers of the upstream itself, and the
//! framing of the body, are left out.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use fastrand::Rng;
use http::Response;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::churn::client;
use crate::control_plane::{ADMIN, ControlPlane};
use crate::support::Weir;
use crate::truth::{body, json_request, send};

pub(crate) fn answers() {
    let seed = std::env::var("TRUTH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    eprintln!("TRUTH_SEED={seed}");
    let plane = ControlPlane::start();
    let weir = Weir::start(&plane.kubeconfig(ADMIN), "");
    Runtime::new().unwrap().block_on(async {
        let direct = client(&plane.kubeconfig(ADMIN)).await;
        let through = client(&weir.kubeconfig()).await;
        fill(&direct).await;
        let mut rng = Rng::with_seed(seed);
        let (mut hits, mut differ) = (0, Vec::new());
        for (path, _, _) in COLLECTIONS {
            answer(&through, &format!("{path}?resourceVersion=0"), &[]).await;
        }
        for _ in 0..REQUESTS {
            let (path, headers) = request(&mut rng, &direct).await;
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
            let (mut seen, mut expected) = (None, None);
            // The upstream itself moves on at times (leases, its own start): equal once is enough.
            for _ in 0..TRIES {
                let (hit, answer) = answer(&through, &path, &headers).await;
                hits += usize::from(hit);
                let (_, upstream) = self::answer(&direct, &path, &headers).await;
                (seen, expected) = (Some(answer), Some(upstream));
                if seen == expected {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
            if seen != expected {
                differ.push(format!(
                    "{path} {headers:?}\n  weir     {}\n  upstream {}",
                    seen.unwrap().shown(),
                    expected.unwrap().shown()
                ));
            }
        }
        eprintln!("{REQUESTS} requests, {hits} answers of the cache");
        assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
        assert!(hits > REQUESTS / 4, "{hits}");
    });
}

/// What must be equal of an answer.
#[derive(PartialEq, Eq)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, Vec<Bytes>>,
    body: Bytes,
}

impl Answer {
    fn shown(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(700).collect();
        format!("{} {:?} {} bytes {body}", self.status, self.headers, self.body.len())
    }
}

async fn answer(client: &Client, path: &str, headers: &[(&str, &str)]) -> (bool, Answer) {
    let response = send(client, path, headers).await.unwrap();
    let hit = response.headers().get("x-weir-cache").is_some_and(|value| value == "hit");
    let (status, headers) = (response.status().as_u16(), kept(&response));
    let mut bytes = body(response).await.unwrap();
    if headers.contains_key("content-encoding") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).unwrap();
        bytes = plain.into();
    }
    (hit, Answer { status, headers, body: masked(&bytes) })
}

fn kept(response: &Response<Body>) -> BTreeMap<String, Vec<Bytes>> {
    let mut kept: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
    for (name, value) in response.headers() {
        if !LEFT_OUT.contains(&name.as_str()) {
            let value = Bytes::copy_from_slice(value.as_bytes());
            kept.entry(name.to_string()).or_default().push(value);
        }
    }
    kept
}

/// The list's own resourceVersion moves with every write to any resource, and so is not compared where the upstream says "at
/// least": the digits of the first one go.
fn masked(bytes: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains("\"items\":") {
        return Bytes::copy_from_slice(bytes);
    }
    let at = if text.starts_with("{\"kind\"") || text.starts_with("{\n  \"kind\"") {
        text.find("\"resourceVersion\":")
    } else {
        text.rfind("\"resourceVersion\":")
    };
    let Some(at) = at else { return Bytes::copy_from_slice(bytes) };
    let (before, rest) = text.split_at(at + "\"resourceVersion\":".len());
    let rest = rest.trim_start_matches([' ', '"']).trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{rest}").into()
}

async fn request(rng: &mut Rng, direct: &Client) -> (String, Vec<(&'static str, String)>) {
    let mut headers = Vec::new();
    let mut choose = |name: &'static str, values: &[&str]| {
        let value = rng.choice(values).copied().unwrap_or_default();
        if !value.is_empty() {
            headers.push((name, value.to_owned()));
        }
    };
    choose("accept", &ACCEPTS);
    choose("user-agent", &AGENTS);
    choose("accept-encoding", &["", "gzip", "gzip;q=1", "deflate, gzip", "br"]);
    let (collection, names, selectors) = *rng.choice(&COLLECTIONS).unwrap();
    let name = rng.choice(names).copied().filter(|_| rng.u8(..3) == 0).unwrap_or_default();
    let path = if name.is_empty() { collection.to_owned() } else { format!("{collection}/{name}") };
    let mut query = Vec::new();
    match rng.u8(..40) {
        0..22 => query.push("resourceVersion=0".to_owned()),
        // Weir waits for proof of it for up to three seconds.
        22 => {
            let list = body(send(direct, collection, &[]).await.unwrap()).await.unwrap();
            let list: Value = serde_json::from_slice(&list).unwrap();
            let at = list["metadata"]["resourceVersion"].as_str().unwrap_or("1").to_owned();
            query.push(format!("resourceVersion={at}"));
        }
        23..32 => query.push("resourceVersion=1".to_owned()),
        _ => {}
    }
    let mut maybe = |one_in: u8, values: &[&str]| {
        if rng.u8(..one_in) == 0 {
            query.extend(rng.choice(values).map(|value| (*value).to_owned()));
        }
    };
    maybe(4, &["limit=0", "limit=2", "limit=-1", "limit=500", "limit=x"]);
    maybe(
        4,
        &[
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=",
        ],
    );
    maybe(2, selectors);
    maybe(3, &LABEL_SELECTORS);
    maybe(5, &["pretty=true", "pretty=1", "pretty=", "pretty=false", "pretty=x", "pretty"]);
    maybe(
        8,
        &[
            "timeout=10s",
            "timeoutSeconds=5",
            "timeoutSeconds=-1",
            "timeout=abc",
            "watch=0",
            "watch=false",
        ],
    );
    maybe(12, &["export=0", "includeObject=None", "allowWatchBookmarks=1", "unknown=%zz", "a;b"]);
    let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    (path, headers)
}

/// Objects of many kinds, some with what is hard to write.
async fn fill(client: &Client) {
    let meta = |name: &str| json!({"name": name, "labels": {"app": name, "n": "5", "empty": ""}});
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = |plural: &str, kind: &str, scope: &str| {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": scope,
                "names": {"kind": kind, "plural": plural, "listKind": format!("{kind}Collection")},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                        "x-kubernetes-preserve-unknown-fields": true, "properties": {
                            "color": {"type": "string", "default": "grey"}, "n": {"type": "integer"}}}}}}}]},
        })
    };
    let mut objects = vec![
        (crds.to_owned(), crd("widgets", "Widget", "Namespaced")),
        (crds.to_owned(), crd("gadgets", "Gadget", "Cluster")),
    ];
    for namespace in ["a", "a-b"] {
        objects.push(("/api/v1/namespaces".to_owned(), json!({"metadata": meta(namespace)})));
    }
    for (n, namespace) in ["a", "a-b"].into_iter().enumerate() {
        let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
        for name in ["x", "x.y", "x-y", "z"] {
            objects.push((core("configmaps"), json!({"metadata": meta(name), "data": {"t": "<&>\u{2028}\u{e9}\u{1}\"\\\n\u{1f600}"}})));
            objects.push((core("pods"), json!({"metadata": meta(name), "spec": pod})));
            objects.push((
                format!("/apis/example.com/v1/namespaces/{namespace}/widgets"),
                json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta(name), "spec": {
                    "n": 9007199254740993i64, "big": 1e300, "small": -0.0, "e": 1e21, "list": [{}, [], null, "<&>\u{2029}"]}}),
            ));
        }
        objects.push((
            core("secrets"),
            json!({"metadata": meta("s"), "type": "Opaque", "data": {"k": "dg=="}}),
        ));
        objects.push((
            core("services"),
            json!({"metadata": meta("s"), "spec": {"ports": [{"port": 80}]}}),
        ));
        objects.push((core("endpoints"), json!({"metadata": meta("e")})));
        objects.push((
            format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            json!({"metadata": meta("d"), "spec": {"selector": {"matchLabels": {"app": "d"}},
                "template": {"metadata": meta("d"), "spec": pod}}}),
        ));
        objects.push((
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            json!({"metadata": meta("l"), "spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        ));
        // Long enough to be compressed, in one namespace just below it.
        objects.push((
            core("configmaps"),
            json!({"metadata": meta("long"), "data": {"t": "y".repeat(129_000 + n * 4_000)}}),
        ));
    }
    objects.push((
        "/apis/example.com/v1/gadgets".to_owned(),
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": meta("g"), "spec": {"color": "red"}}),
    ));
    for (path, object) in objects {
        let mut tries = 0;
        loop {
            let response = client.send(json_request("POST", &path, &object)).await.unwrap();
            if response.status().is_success() {
                break;
            }
            tries += 1;
            let status = response.status();
            assert!(tries < 100, "{path}: {status} {:?}", body(response).await);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

const REQUESTS: usize = 1000;
const TRIES: usize = 4;

const LEFT_OUT: [&str; 7] = [
    "date",
    "audit-id",
    "x-weir-cache",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "content-length",
    "transfer-encoding",
];

const ACCEPTS: [&str; 20] = [
    "",
    "",
    "application/json",
    "application/json",
    "application/json",
    "application/json",
    "*/*",
    "*/*",
    "application/*",
    "application/json;pretty=1",
    "application/json;stream=watch",
    "application/json;charset=utf-8",
    "application/json, */*;q=0.8",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;q=0.9,application/yaml;q=0.8",
    "application/yaml",
    "text/plain",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
];

const AGENTS: [&str; 6] =
    ["test", "kubectl/v1.36.0", "curl/8.0", "Wget/1.0", "Mozilla/5.0 (X11)", "xcurl"];

const LABEL_SELECTORS: [&str; 9] = [
    "labelSelector=app%3Dx",
    "labelSelector=app!%3Dx",
    "labelSelector=app%20in%20(x,z)",
    "labelSelector=app%20notin%20(x)",
    "labelSelector=n%3E4",
    "labelSelector=empty%3D",
    "labelSelector=!app",
    "labelSelector=a,,b",
    "labelSelector=",
];

/// A collection, names in it, and field selectors for it.
const COLLECTIONS: [(&str, &[&str], &[&str]); 26] = [
    (
        "/api/v1/namespaces",
        &["a", "a-b", "nope", "kube-system"],
        &["fieldSelector=status.phase%3DActive", "fieldSelector=metadata.name%3Da"],
    ),
    (
        "/api/v1/configmaps",
        &["x"],
        &[
            "fieldSelector=metadata.name%3Dx",
            "fieldSelector=metadata.namespace%3Da",
            "fieldSelector=metadata.namespace%3Da,metadata.name%3Dz",
            "fieldSelector=metadata.name%3D",
        ],
    ),
    (
        "/api/v1/namespaces/a/configmaps",
        &["x", "x.y", "nope", "long", "x%2Ey"],
        &[
            "fieldSelector=metadata.name%3Dx",
            "fieldSelector=metadata.name!%3Dx",
            "fieldSelector=metadata.namespace%3Db",
            "fieldSelector=metadata.name%3Da%2Fb",
        ],
    ),
    (
        "/api/v1/namespaces/a-b/configmaps",
        &["x", "long"],
        &["fieldSelector=metadata.name%3Dnope", "fieldSelector=data%3Dx"],
    ),
    ("/api/v1/namespaces/UPPER/configmaps", &["x"], &[]),
    ("/api/v1/namespaces//configmaps", &[], &[]),
    ("/api/v1/namespaces/a/configmaps/", &[], &[]),
    (
        "/api/v1/pods",
        &[],
        &[
            "fieldSelector=spec.nodeName%3D",
            "fieldSelector=status.phase%3DPending",
            "fieldSelector=spec.host!%3Dn",
            "fieldSelector=spec.hostNetwork%3Dfalse",
            "fieldSelector=status.podIPs%3D",
            "fieldSelector=spec.serviceAccountName%3D",
        ],
    ),
    (
        "/api/v1/namespaces/a/pods",
        &["x", "z"],
        &[
            "fieldSelector=spec.restartPolicy%3DAlways",
            "fieldSelector=spec.schedulerName%3Ddefault-scheduler",
        ],
    ),
    (
        "/api/v1/namespaces/a/secrets",
        &["s"],
        &["fieldSelector=type%3DOpaque", "fieldSelector=type!%3DOpaque"],
    ),
    (
        "/api/v1/services",
        &[],
        &["fieldSelector=spec.type%3DClusterIP", "fieldSelector=spec.clusterIP%3D10.0.0.1"],
    ),
    (
        "/api/v1/namespaces/default/services",
        &["kubernetes"],
        &["fieldSelector=metadata.name%3Dkubernetes"],
    ),
    ("/api/v1/endpoints", &[], &["fieldSelector=metadata.name%3De"]),
    ("/api/v1/namespaces/a/endpoints", &["e"], &[]),
    (
        "/api/v1/nodes",
        &["n"],
        &["fieldSelector=spec.unschedulable%3Dfalse", "fieldSelector=metadata.namespace%3Da"],
    ),
    (
        "/api/v1/persistentvolumes",
        &["n"],
        &["fieldSelector=metadata.namespace%3Da", "fieldSelector=metadata.namespace%3D"],
    ),
    ("/apis/apps/v1/deployments", &[], &["fieldSelector=metadata.name%3Dd"]),
    ("/apis/apps/v1/namespaces/a/deployments", &["d", "nope"], &[]),
    (
        "/apis/example.com/v1/widgets",
        &["x"],
        &[
            "fieldSelector=spec.color%3Dgrey",
            "fieldSelector=spec.n%3D9007199254740993",
            "fieldSelector=spec.x%3Dy",
        ],
    ),
    (
        "/apis/example.com/v1/namespaces/a/widgets",
        &["x", "nope"],
        &["fieldSelector=spec.color!%3Dgrey", "fieldSelector=metadata.name%3Dx"],
    ),
    ("/apis/example.com/v1/namespaces/none/widgets", &["x"], &["fieldSelector=spec.color%3Dgrey"]),
    (
        "/apis/example.com/v1/gadgets",
        &["g", "nope"],
        &[
            "fieldSelector=spec.color%3Dred",
            "fieldSelector=metadata.namespace%3D",
            "fieldSelector=metadata.name%3Dg",
        ],
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &["system:node", "admin", "nope"],
        &["fieldSelector=metadata.name%3Dsystem:node"],
    ),
    ("/apis/coordination.k8s.io/v1/namespaces/a/leases", &["l"], &[]),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &["widgets.example.com"],
        &["fieldSelector=metadata.name%3Dwidgets.example.com"],
    ),
    ("/api/v1/namespaces/a/events", &["e"], &["fieldSelector=involvedObject.name%3Dx"]),
];
