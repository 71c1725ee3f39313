//! Tests of discovery, against a scripted upstream whose CRDs are created, changed and deleted.

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex as SyncMutex;
use serde_json::{Value, json};

use super::*;
use crate::api::resource::Shape;
use crate::upstream::testing::{Answer, ServerOptions, TestServer, answer, channel_body};

/// The upstream's current state.
#[derive(Default)]
struct Script {
    crds: Vec<Value>,
    /// The APIServices; `None` if the upstream has no aggregator.
    services: Option<Vec<Value>>,
    groups: Vec<Value>,
    etag: u32,
    broken: bool,
    /// Whether only the documents are broken.
    broken_documents: bool,
    /// The queries of lists and watches of CRDs and APIServices, by path.
    queries: Vec<(String, String)>,
    /// The number of requests that were answered while it was broken.
    attempts: u32,
    legacy: bool,
    /// Whether listing CRDs is forbidden.
    forbidden: bool,
    /// The number of lists of CRDs that were refused.
    refused: u32,
    /// The CRDs that a list from any resourceVersion returns, from an instance that lags.
    lagging: Option<Vec<Value>>,
    not_modified: u32,
    /// Whether lists from a resourceVersion fail, as at an instance that lags behind that.
    behind: bool,
    watches: Vec<tokio::sync::mpsc::Sender<Bytes>>,
    service_watches: Vec<tokio::sync::mpsc::Sender<Bytes>>,
}

type Shared = Arc<SyncMutex<Script>>;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn crd(uid: &str) -> Value {
    json!({
        "metadata": {"name": "widgets.example.com", "uid": uid, "generation": 1, "resourceVersion": "5"},
        "spec": {"group": "example.com", "versions": [{"name": "v1", "served": true}]},
        "status": {"acceptedNames": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetCollection"}},
    })
}

fn api_service(service: &Value) -> Value {
    json!({
        "metadata": {"name": "v1.example.com", "resourceVersion": "20"},
        "spec": {"group": "example.com", "version": "v1", "service": service},
    })
}

fn group(name: &str, resource: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "versions": [{"version": "v1", "freshness": "Current", "resources": [{
            "resource": resource, "scope": "Namespaced", "verbs": ["get", "list", "watch"],
            "responseKind": {"group": name, "version": "v1", "kind": kind},
        }]}],
    })
}

fn aggregated(
    script: &mut Script,
    request: &Request<hyper::body::Incoming>,
    groups: &[Value],
) -> Answer {
    let etag = format!("\"{}\"", script.etag);
    let mut response = if request.headers().get("if-none-match").is_some_and(|have| *have == *etag)
    {
        script.not_modified += 1;
        answer(304, "")
    } else {
        answer(200, json!({"kind": "APIGroupDiscoveryList", "items": groups}).to_string())
    };
    response.headers_mut().insert("etag", etag.parse().unwrap());
    response.headers_mut().insert("content-type", AGGREGATED.parse().unwrap());
    response
}

fn list(items: &[Value]) -> Answer {
    answer(200, json!({"metadata": {"resourceVersion": "9"}, "items": items}).to_string())
}

fn handle(script: &Shared, request: &Request<hyper::body::Incoming>) -> Answer {
    let mut script = script.lock();
    let path = request.uri().path();
    let watch = request.uri().query().is_some_and(|query| query.contains("watch"));
    if script.broken {
        script.attempts += 1;
        return answer(503, "");
    }
    let core = [group("", "pods", "Pod")];
    let groups = script.groups.clone();
    if path == CRDS.path || path == API_SERVICES.path {
        let query = request.uri().query().unwrap_or_default().to_owned();
        script.queries.push((path.to_owned(), query));
    }
    match path {
        _ if script.broken_documents && path.starts_with("/api") && path.len() < 6 => {
            answer(503, "")
        }
        _ if script.behind
            && request.uri().query().is_some_and(|query| query.contains("NotOlder")) =>
        {
            answer(504, "")
        }
        _ if watch && path == API_SERVICES.path => {
            let (sender, body) = channel_body();
            script.service_watches.push(sender);
            Response::new(body)
        }
        _ if watch => {
            let (sender, body) = channel_body();
            script.watches.push(sender);
            Response::new(body)
        }
        "/api" if script.legacy => {
            answer(200, json!({"kind": "APIVersions", "versions": ["v1"]}).to_string())
        }
        "/api" => aggregated(&mut script, request, &core),
        "/apis" => aggregated(&mut script, request, &groups),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" if script.forbidden => {
            script.refused += 1;
            answer(403, "")
        }
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => match &script.lagging {
            Some(crds) if request.uri().query() == Some("resourceVersion=0") => list(crds),
            _ => list(&script.crds),
        },
        path if path == API_SERVICES.path && script.services.is_some() => {
            list(script.services.as_deref().unwrap_or_default())
        }
        "/version" => answer(200, r#"{"major":"1","minor":"36","gitVersion":"v1.36.2"}"#),
        _ => answer(404, ""),
    }
}

async fn start(script: Script) -> (Shared, TestServer, Discovery) {
    let script: Shared = Arc::new(SyncMutex::new(script));
    let shared = script.clone();
    let server = TestServer::start(ServerOptions::http2(), move |request| {
        let answer = handle(&shared, &request);
        async move { answer }
    })
    .await;
    let discovery = Discovery::start(server.upstream(true).await, Readers::Many);
    (script, server, discovery)
}

fn widgets() -> GroupVersionResource {
    GroupVersionResource::new("example.com", "v1", "widgets")
}

async fn find(discovery: &Discovery, gvr: &GroupVersionResource) -> Option<Arc<ApiResource>> {
    discovery.find(gvr).await.unwrap()
}

/// Waits up to 10 s until the resource `widgets` satisfies `what`.
async fn wait_for(discovery: &Discovery, what: impl Fn(Option<Arc<ApiResource>>) -> bool) {
    let mut changes = discovery.changes();
    let until_known = async {
        while !what(discovery.peek(&widgets())) {
            changes.changed().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), until_known).await;
    waited.expect("the resource widgets did not change as expected within 10 s");
}

/// Returns the watch of CRDs that starts shortly after a list.
async fn next_watch(script: &Shared) -> tokio::sync::mpsc::Sender<Bytes> {
    loop {
        if let Some(watch) = script.lock().watches.pop() {
            return watch;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the event of a watch from a resourceVersion that has left the history.
fn expired() -> Bytes {
    let status = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
    (json!({"type": "ERROR", "object": status}).to_string() + "\n").into()
}

async fn with_widgets() -> (Shared, TestServer, Discovery) {
    let groups = vec![group("example.com", "widgets", "Widget")];
    start(Script { crds: vec![crd("one")], groups, ..Script::default() }).await
}

/// If the definition went back and forth, its caches would, too.
#[tokio::test]
async fn a_lagging_instance_does_not_bring_back_an_old_definition() {
    let (script, _server, discovery) = with_widgets().await;
    let first = find(&discovery, &widgets()).await.unwrap();
    assert!(!discovery.is_redefined(&widgets()));
    let watch = next_watch(&script).await;
    {
        let mut script = script.lock();
        script.lagging = Some(vec![crd("one")]);
        script.crds = vec![crd("two")];
    }
    let frame = json!({"type": "MODIFIED", "object": crd("two")}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    wait_for(&discovery, |resource| {
        resource.is_some_and(|resource| resource.revision != first.revision)
    })
    .await;
    assert!(discovery.is_redefined(&widgets()), "caches that start now verify their bytes");
    let definitions = discovery.inner.custom.borrow().clone();
    watch.send(expired()).await.unwrap();
    // The watch follows a list, whose definitions count by then.
    let _watch = next_watch(&script).await;
    assert_eq!(*discovery.inner.custom.borrow(), definitions);
}

/// An API server that starts forbids what it allows a moment later. If Weir believed it, all custom
/// resources would count as aggregated, and their caches would stop.
#[tokio::test]
async fn a_short_refusal_of_definitions_costs_no_custom_resource() {
    let (script, _server, discovery) = with_widgets().await;
    let first = find(&discovery, &widgets()).await.unwrap();
    script.lock().forbidden = true;
    next_watch(&script).await.send(expired()).await.unwrap();
    while script.lock().refused < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(discovery.inner.custom.borrow().synced().is_some());
    assert_eq!(find(&discovery, &widgets()).await.unwrap(), first);
    script.lock().forbidden = false;
    let watch = next_watch(&script).await;
    let frame = json!({"type": "MODIFIED", "object": crd("two")}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    wait_for(&discovery, |resource| {
        resource.is_some_and(|resource| resource.revision != first.revision)
    })
    .await;
}

#[tokio::test]
async fn a_recreated_or_deleted_crd_is_detected() {
    let (script, _server, discovery) = with_widgets().await;
    let first = find(&discovery, &widgets()).await.unwrap();
    assert_eq!((first.shape, first.aggregated), (Shape::Custom, false));
    assert_eq!(&*first.list_kind, "WidgetCollection");
    let pods = find(&discovery, &GroupVersionResource::new("", "v1", "pods")).await.unwrap();
    assert_eq!((pods.shape, pods.aggregated, pods.revision), (Shape::BuiltIn, false, 0));

    let watch = next_watch(&script).await;
    let frame = json!({"type": "MODIFIED", "object": crd("two")}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    let revision = first.revision;
    wait_for(&discovery, |resource| resource.is_some_and(|resource| resource.revision != revision))
        .await;

    // The documents still list it for some time. It must not count as a resource that can be
    // cached.
    let frame = json!({"type": "DELETED", "object": crd("two")}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    wait_for(&discovery, |resource| resource.is_none_or(|resource| resource.aggregated)).await;
    {
        let mut script = script.lock();
        script.groups.clear();
        script.etag += 1;
    }
    wait_for(&discovery, |resource| resource.is_none()).await;
    assert!(script.lock().not_modified > 0, "documents are revalidated");
}

/// Returns the watch of APIServices that starts shortly after a list.
async fn next_service_watch(script: &Shared) -> tokio::sync::mpsc::Sender<Bytes> {
    loop {
        if let Some(watch) = script.lock().service_watches.pop() {
            return watch;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Starts with a definition whose version the API server itself serves.
async fn with_services() -> (Shared, TestServer, Discovery) {
    let groups = vec![group("example.com", "widgets", "Widget")];
    let services = Some(vec![api_service(&Value::Null)]);
    start(Script { crds: vec![crd("one")], services, groups, ..Script::default() }).await
}

/// The documents of a server that is down may be slow, or an API server's.
#[tokio::test]
async fn an_aggregated_server_that_takes_over_is_noticed_without_the_documents() {
    let (script, _server, discovery) = with_services().await;
    assert!(!find(&discovery, &widgets()).await.unwrap().aggregated);
    assert!(discovery.is_local(&widgets()).await);
    let watch = next_service_watch(&script).await;
    script.lock().broken_documents = true;
    let service = api_service(&json!({"name": "own", "namespace": "default"}));
    let frame = json!({"type": "MODIFIED", "object": service}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    wait_for(&discovery, |resource| resource.is_some_and(|resource| resource.aggregated)).await;
    assert!(discovery.is_aggregated(&widgets()));
    assert!(!discovery.is_local(&widgets()).await);

    // Other API servers may lag.
    let frame = json!({"type": "MODIFIED", "object": api_service(&Value::Null)}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    let is_local = |state: &InformerState<ApiService>| {
        state
            .synced()
            .is_some_and(|services| services.values().all(|service| !service.is_aggregated()))
    };
    discovery.inner.services.clone().wait_for(is_local).await.unwrap();
    assert!(discovery.is_aggregated(&widgets()));
    assert!(find(&discovery, &widgets()).await.unwrap().aggregated);
}

/// The objects that a cache received count only once the APIService was read after them.
#[tokio::test]
async fn an_aggregated_server_is_noticed_before_a_list_counts() {
    let (script, _server, discovery) = with_services().await;
    find(&discovery, &widgets()).await.unwrap();
    let _watch = next_service_watch(&script).await;
    let service = api_service(&json!({"name": "own", "namespace": "default"}));
    script.lock().services = Some(vec![service]);
    assert!(!discovery.is_local(&widgets()).await);
    assert!(discovery.peek(&widgets()).unwrap().aggregated, "at once");
    assert!(discovery.is_local(&GroupVersionResource::new("", "v1", "pods")).await);
    let asked = script.lock().queries.pop();
    let name = "fieldSelector=metadata.name%3Dv1.example.com".to_owned();
    assert_eq!(asked, Some((API_SERVICES.path.to_owned(), name)));
}

#[tokio::test]
async fn a_watch_of_definitions_is_resumed_where_it_was() {
    let (script, _server, discovery) = with_widgets().await;
    let first = find(&discovery, &widgets()).await.unwrap();
    let queries = || {
        let script = script.lock();
        let queries = script.queries.iter().filter(|(path, _)| path == CRDS.path);
        queries.map(|(_, query)| query.clone()).collect::<Vec<_>>()
    };
    let lists = || queries().iter().filter(|query| query.is_empty()).count();
    let watch = next_watch(&script).await;
    assert_eq!(lists(), 1);
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "30"}}});
    watch.send((bookmark.to_string() + "\n").into()).await.unwrap();
    drop(watch);
    let watch = next_watch(&script).await;
    let resumed =
        |query: &String| query.contains("watch=1") && query.contains("resourceVersion=30");
    assert!(queries().iter().any(resumed), "{:?}", queries());
    let frame = json!({"type": "MODIFIED", "object": crd("two")}).to_string() + "\n";
    watch.send(frame.into()).await.unwrap();
    wait_for(&discovery, |resource| {
        resource.is_some_and(|resource| resource.revision != first.revision)
    })
    .await;
    assert_eq!(lists(), 1);

    // An API server that has not come that far, and one whose history has gone back.
    script.lock().behind = true;
    drop(watch);
    let _lagging = next_watch(&script).await;
    let listed_watch = next_watch(&script).await;
    assert_eq!(lists(), 2);

    discovery.recheck();
    listed_watch.closed().await;
    let _watch = next_watch(&script).await;
    assert_eq!(lists(), 3);
}

#[tokio::test]
async fn a_watch_that_outlives_its_time_out_is_replaced() {
    let (script, _server, _discovery) = with_widgets().await;
    let watch = next_watch(&script).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(620)).await;
    tokio::time::resume();
    watch.closed().await;
    let _next = next_watch(&script).await;
}

#[tokio::test]
async fn an_unreadable_definition_or_apiservice_hides_no_other_one() {
    let mut unreadable = crd("bad");
    unreadable["metadata"]["name"] = "bad.example.com".into();
    unreadable["spec"]["versions"] = json!("none");
    let groups =
        vec![group("example.com", "widgets", "Widget"), group("other.com", "things", "Thing")];
    let mut other = api_service(&Value::Null);
    other["metadata"] = json!({"name": "v1.other.com", "labels": 7});
    let services = Some(vec![api_service(&Value::Null), other]);
    let crds = vec![unreadable, crd("one")];
    let (_script, _server, discovery) =
        start(Script { crds, services, groups, ..Script::default() }).await;
    assert_eq!(find(&discovery, &widgets()).await.unwrap().shape, Shape::Custom);
    assert!(!discovery.is_aggregated(&widgets()));
    let things = GroupVersionResource::new("other.com", "v1", "things");
    assert!(
        discovery.is_aggregated(&things) && find(&discovery, &things).await.unwrap().aggregated
    );
}

#[tokio::test]
async fn a_failure_keeps_the_resources_and_a_miss_rarely_refreshes() {
    let groups = vec![group("example.com", "widgets", "Widget")];
    let (script, _server, discovery) =
        start(Script { groups, forbidden: true, ..Script::default() }).await;
    // Without CRDs and APIServices, it counts as aggregated.
    assert!(find(&discovery, &widgets()).await.unwrap().aggregated);
    script.lock().broken = true;
    let unknown = GroupVersionResource::new("", "v1", "nonesuch");
    for _ in 0..100 {
        assert!(find(&discovery, &unknown).await.is_none());
    }
    assert!(discovery.peek(&widgets()).is_some());
}

#[tokio::test]
async fn a_lookup_fails_before_the_first_refresh() {
    let (script, _server, discovery) = start(Script { broken: true, ..Script::default() }).await;
    while script.lock().attempts == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = discovery.find(&widgets()).await.unwrap_err();
    assert!(matches!(error, UpstreamError::Status { .. }), "{error}");
}

/// The API server and Weir start together.
#[tokio::test]
async fn a_lookup_waits_for_the_first_refresh() {
    let (script, _server, discovery) = start(Script { broken: true, ..Script::default() }).await;
    let pods = GroupVersionResource::new("", "v1", "pods");
    let mends = async {
        while script.lock().attempts == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        script.lock().broken = false;
    };
    let (pods, ()) = tokio::join!(find(&discovery, &pods), mends);
    assert!(pods.is_some());
}

/// An API server older than 1.30, or something else.
#[tokio::test]
async fn nothing_is_known_without_aggregated_discovery() {
    let (_script, _server, discovery) = start(Script { legacy: true, ..Script::default() }).await;
    let pods = GroupVersionResource::new("", "v1", "pods");
    let error = discovery.find(&pods).await.unwrap_err().to_string();
    assert!(error.contains("/api is no aggregated discovery"), "{error}");
    let mut version = discovery.version();
    let version = version.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert_eq!((version.major, version.minor), (1, 36));
}
