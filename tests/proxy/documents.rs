//! Discovery and OpenAPI through Weir equal the upstream's own documents: the first time, from
//! memory, and after they changed.

use crate::client::{Answer, Call, cache_header};
use crate::harness::{Proxy, widget, widgets};
use serde_json::{Value, json};
use weir::simulator::{Simulator, SimulatorOptions};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn discovery(path: &str) -> Call {
    Call::get(path).header("accept", AGGREGATED)
}

/// The headers that must be equal.
fn content(answer: &Answer) -> (u16, Vec<Option<&str>>, String) {
    let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap());
    let names = ["cache-control", "content-type", "etag", "vary", "last-modified"];
    (answer.status.as_u16(), names.map(header).to_vec(), answer.text())
}

/// Sends a request to Weir and to the upstream, which must answer alike. Returns Weir's
/// `X-Weir-Cache`.
async fn compare(proxy: &Proxy, call: &Call) -> String {
    let (through, direct) = (proxy.call(call).await, proxy.direct(call).await);
    assert_eq!(content(&through), content(&direct), "{call:?}");
    cache_header(&through.headers).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_cached_and_never_older_than_the_upstreams() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    upstream
        .store()
        .create(json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "ns1" } }))
        .unwrap();
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    let fetched = "forward; reason=non-resource";
    for call in [discovery("/api"), discovery("/apis?timeout=32s")] {
        assert_eq!(compare(&proxy, &call).await, fetched);
        assert_eq!(compare(&proxy, &call).await, "hit");
    }
    // A new kind is visible at once: a document from memory is never older than the upstream's.
    proxy.upstream.store().create(widgets()).unwrap();
    proxy.upstream.store().create(widget("ns1", "w1", "red")).unwrap();
    let discovered = proxy.call(&discovery("/apis?timeout=32s")).await;
    assert!(discovered.text().contains("widgets"), "{}", discovered.text());
    assert_eq!(compare(&proxy, &discovery("/apis?timeout=32s")).await, "hit");
    // The client has the document already.
    let etag = discovered.headers["etag"].to_str().unwrap().to_owned();
    let conditional = discovery("/apis").header("if-none-match", &etag);
    let answer = proxy.call(&conditional).await;
    assert_eq!((answer.status.as_u16(), answer.cache(), answer.body.len()), (304, "hit", 0));
    // The legacy documents contain addresses for each client, and have no ETag.
    assert_eq!(compare(&proxy, &Call::get("/api")).await, fetched);
    assert_eq!(compare(&proxy, &Call::get("/api")).await, fetched);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_named_by_hash_are_revalidated() {
    let proxy = Proxy::seeded().await;
    let index = proxy.get("/openapi/v3").await.json();
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let call = Call::get(&url);
    assert_eq!(compare(&proxy, &call).await, "forward; reason=non-resource");
    assert_eq!(compare(&proxy, &call).await, "hit");
    let again = proxy.call(&call).await;
    assert_eq!((again.cache(), again.json()["openapi"].clone()), ("hit", Value::from("3.0.0")));
    let served = proxy.metric("weir_requests_total", &[r#"reason="revalidated""#]).await;
    assert!(served >= 2.0, "{served}");
    // The upstream answers a hash that is not current.
    let (path, _) = url.split_once('?').unwrap();
    let wrong = Call::get(&format!("{path}?hash=00"));
    assert_eq!(compare(&proxy, &wrong).await, "forward; reason=non-resource");
}
