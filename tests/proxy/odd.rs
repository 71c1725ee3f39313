//! Unusual requests and long responses: the same through Weir as directly.

use std::time::Duration;

use http::Method;
use weir::config::seams::Seams;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::client::{Answer, Call};
use crate::harness::{Proxy, configmap, seed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusual_requests_get_the_upstreams_answers() {
    let proxy = quiet().await;
    let list = "/api/v1/namespaces/ns1/configmaps";
    for path in [
        "/",
        "/nowhere",
        "/version",
        "/healthz",
        "/readyz",
        "/livez?verbose",
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps/v1",
        "/apis/no.such/v1",
        "/apis/no.such/v1/things",
        "/api/v1/nonsense",
        "/openapi/v2",
        "/openapi/v3",
        "/apis/example.com/v1/widgets/w1?resourceVersion=0",
        "/api/v1/namespaces/ns1/nodes?resourceVersion=0",
        "/api/v1/configmaps/cm-a?resourceVersion=0",
        "/api/v1/namespaces//configmaps?resourceVersion=0",
        "/api/v1/configmaps/?resourceVersion=0",
        "/api/v1/namespaces/ns1/configmaps/cm-a/?resourceVersion=0",
        "/api/v1/namespaces/ns1?resourceVersion=0",
        "/api/v1/namespaces/nope?resourceVersion=0",
        "/api/v1/namespaces/ns1/status?resourceVersion=0",
        "/api/v1/events?resourceVersion=0",
        "/api/v1/namespaces/ns1/configmaps/cm-a?watch=true&resourceVersion=0",
        "/api/v1/configmaps?watch=0&resourceVersion=0",
        "/api/v1/configmaps?sendInitialEvents=true&resourceVersion=0",
        "/api/v1/configmaps?timeout=abc&resourceVersion=0",
        "/api/v1/configmaps?timeout=30s&resourceVersion=0",
        "/api/v1/configmaps?resourceVersion=0&resourceVersion=abc",
        "/api/v1/configmaps?resourceVersion=%zz",
        "/api/v1/configmaps?resourceVersion=0;x=y&limit=1",
        "/api/v1/configmaps?RESOURCEVERSION=0",
        "/api/v1/configmaps?resourceVersion=0&unknown=1",
        "/api/v1/configmaps?timeoutSeconds=abc&resourceVersion=0",
        "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.namespace%3Dns1",
        "/api/v1/configmaps?resourceVersion=0&fieldSelector=metadata.namespace%3Dns1,metadata.name%3Dcm-a",
        "/api/v1/namespaces/ns1/configmaps?resourceVersion=0&fieldSelector=metadata.namespace%3Dns2",
        "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-1",
        "/api/v1/pods?resourceVersion=0&fieldSelector=status.phase!%3DRunning",
        "/api/v1/nodes?resourceVersion=0&fieldSelector=spec.unschedulable%3Dfalse",
        "/api/v1/nodes?resourceVersion=0&fieldSelector=metadata.namespace%3D",
        "/apis/example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.color%3Dred",
        "/apis/example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.size%3D1",
        "/apis/example.com/v2/widgets?resourceVersion=0",
        "/api/v1/namespaces/ns1/configmaps/cm-a?resourceVersion=0&export=true",
    ] {
        same(&proxy, &Call::get(path)).await;
    }
    for method in [Method::HEAD, Method::OPTIONS, Method::PUT] {
        same(&proxy, &Call::new(method.clone(), list)).await;
        let widget = "/apis/example.com/v1/namespaces/ns1/widgets/w1?resourceVersion=0";
        if method != Method::PUT {
            same(&proxy, &Call::new(method, widget)).await;
        }
    }
}

/// A list over 128 KiB is compressed for clients that accept gzip, with the same bytes
/// (docs/semantics.md §8.7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_compressed_like_the_upstreams() {
    let upstream = Simulator::start(SimulatorOptions::default()).await.unwrap();
    seed(&upstream);
    for number in 0..400 {
        let mut object = configmap("ns2", &format!("long-{number}"), number);
        object["data"]["text"] = "x".repeat(500).into();
        upstream.store().create(object).unwrap();
    }
    let proxy = Proxy::before(upstream, "", |_| {}).await;
    proxy.warm("/api/v1/configmaps").await;
    let path = "/api/v1/configmaps?resourceVersion=0";
    let plain = same(&proxy, &Call::get(path)).await;
    assert!(plain.body.len() > 128 << 10);
    for (encodings, packed) in
        [("gzip", true), ("gzip;q=1", false), ("br, gzip", true), ("*", false)]
    {
        let call = Call::get(path).header("accept-encoding", encodings);
        let (through, direct) = (proxy.call(&call).await, proxy.direct(&call).await);
        assert_eq!(through.cache(), "hit");
        assert_eq!(heads(&through), heads(&direct), "{encodings}");
        assert_eq!(through.headers.contains_key("content-encoding"), packed, "{encodings}");
        let body = if packed { unpack(&through.body) } else { through.body.to_vec() };
        assert!(body == plain.body, "{encodings}: the same bytes");
    }
}

fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut whole).unwrap();
    whole
}

/// Starts a Weir whose caches are warm and at the upstream's revision.
async fn quiet() -> Proxy {
    let options = SimulatorOptions {
        freshness_timeout: Duration::from_millis(3),
        ..SimulatorOptions::default()
    };
    let upstream = Simulator::start(options).await.unwrap();
    seed(&upstream);
    let seams = Seams { freshness_timeout: Duration::from_millis(3), ..Seams::default() };
    let proxy = Proxy::before_with(seams, upstream, "", |_| {}).await;
    for collection in COLLECTIONS {
        proxy.warm(collection).await;
    }
    proxy
}

/// Sends a request both ways, compares the responses, and returns Weir's.
async fn same(proxy: &Proxy, call: &Call) -> Answer {
    let mut direct = proxy.direct(call).await;
    let mut through = proxy.call(call).await;
    // The ages in a Table change from one response to the next. A difference counts only where the
    // upstream's response is the same before and after Weir's.
    for _ in 0..AGES_TICK {
        if through.body == direct.body || direct.json()["kind"] != "Table" {
            break;
        }
        let after = proxy.direct(call).await;
        let ticked = after.body != direct.body;
        direct = after;
        if !ticked {
            break;
        }
        through = proxy.call(call).await;
    }
    assert_eq!(through.status, direct.status, "{call:?}: {} != {}", through.text(), direct.text());
    assert_eq!(through.text(), direct.text(), "{call:?}");
    assert_eq!(heads(&through), heads(&direct), "{call:?}, {}", through.cache());
    through
}

fn heads(answer: &Answer) -> Vec<(String, String)> {
    let mut heads: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .filter(|(name, _)| !IGNORED.contains(&name.as_str()))
        .collect();
    heads.sort();
    heads
}

/// The headers that may differ.
const IGNORED: [&str; 8] = [
    "date",
    "audit-id",
    "x-weir-cache",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "content-length",
    "transfer-encoding",
    "connection",
];

/// The requests.
const COLLECTIONS: [&str; 5] = [
    "/api/v1/configmaps",
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/example.com/v1/widgets",
];

/// How many times the ages of a Table may change during the comparison; they change once a second
/// at first, and less often later.
const AGES_TICK: usize = 20;
