//! Discovery and OpenAPI from memory: fetched once, revalidated by each request, with exact
//! headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::harness::{Got, Weir, get};
use crate::testing::eventually;
use crate::upstream::testing::Answer;

/// A fake upstream with one document at a time, which answers as the API server does.
struct Documents {
    /// The current ETag and body.
    current: Mutex<(&'static str, &'static str)>,
    /// The headers of a response, besides the ETag.
    headers: Mutex<Vec<(&'static str, &'static str)>>,
    /// The number of responses with the whole document.
    whole: AtomicUsize,
    revalidated: AtomicUsize,
    /// A permit for each response with the whole document.
    gate: Semaphore,
    /// The status code that replaces every response.
    broken: Mutex<Option<u16>>,
}

impl Documents {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            current: Mutex::new(("\"AB\"", "one")),
            headers: Mutex::new(vec![("cache-control", "public"), ("vary", "Accept")]),
            whole: AtomicUsize::new(0),
            revalidated: AtomicUsize::new(0),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            broken: Mutex::new(None),
        })
    }

    async fn weir(self: &Arc<Self>) -> Weir {
        let upstream = Arc::clone(self);
        Weir::start(move |request| {
            let upstream = Arc::clone(&upstream);
            async move { upstream.answer(request).await }
        })
        .await
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        assert!(!request.headers().contains_key("authorization"));
        let (etag, body) = *self.current.lock();
        let mut response = Response::builder();
        for (name, value) in self.headers.lock().iter() {
            response = response.header(*name, *value);
        }
        if let Some(code) = *self.broken.lock() {
            let body = Full::new(Bytes::from_static(b"no")).boxed_unsync();
            return response.status(code).body(body).unwrap();
        }
        response = response.header("etag", etag).header("audit-id", "upstream's");
        if request.headers().get("if-none-match").is_some_and(|etag_sent| etag_sent == etag) {
            self.revalidated.fetch_add(1, Ordering::SeqCst);
            return response.status(304).body(super::harness::empty()).unwrap();
        }
        self.whole.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        let response = response.header("content-type", "application/json;as=X");
        response.body(Full::new(Bytes::from_static(body.as_bytes())).boxed_unsync()).unwrap()
    }

    fn counts(&self) -> (usize, usize) {
        (self.whole.load(Ordering::SeqCst), self.revalidated.load(Ordering::SeqCst))
    }
}

fn apis() -> Request<Full<Bytes>> {
    with(
        get("/apis"),
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    )
}

fn with(
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &'static str,
) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, HeaderValue::from_static(value));
    request
}

fn seen(got: &Got) -> (u16, &str, &str) {
    (got.code, got.header("x-weir-cache"), got.text())
}

#[tokio::test]
async fn a_document_is_fetched_once_and_revalidated_by_each_request() {
    let upstream = Documents::new();
    let weir = upstream.weir().await;
    let first = weir.send(apis()).await;
    assert_eq!(seen(&first), (200, "forward; reason=non-resource", "one"));
    for _ in 0..2 {
        let again = weir.send(with(apis(), "authorization", "Bearer x")).await;
        assert_eq!(seen(&again), (200, "hit", "one"));
        for name in ["cache-control", "vary", "etag", "content-type", "audit-id", "content-length"]
        {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
    }
    assert_eq!(upstream.counts(), (1, 2));
    // The client has the document: a 304 without headers that describe a body.
    let not_modified = weir.send(with(apis(), "if-none-match", "\"AB\"")).await;
    assert_eq!(seen(&not_modified), (304, "hit", ""));
    assert_eq!((not_modified.header("etag"), not_modified.header("content-type")), ("\"AB\"", ""));
    // The client has an older document.
    let older = weir.send(with(apis(), "if-none-match", "\"00\"")).await;
    assert_eq!(seen(&older), (200, "hit", "one"));
    assert_eq!(upstream.counts(), (1, 4));
    let scraped = weir.scrape();
    assert!(scraped.contains(r#"reason="revalidated""#), "{scraped}");

    *upstream.current.lock() = ("\"CD\"", "two");
    assert_eq!(seen(&weir.send(apis()).await), (200, "forward; reason=non-resource", "two"));
    assert_eq!(seen(&weir.send(apis()).await), (200, "hit", "two"));
    assert_eq!(upstream.counts(), (2, 5));
}

#[tokio::test]
async fn different_forms_and_kinds_of_clients_have_different_documents() {
    let upstream = Documents::new();
    let weir = upstream.weir().await;
    for request in [
        apis(),
        with(apis(), "accept-encoding", "gzip"),
        with(apis(), "user-agent", "curl/8"),
        with(apis(), "accept", "application/yaml;as=APIGroupDiscoveryList"),
        get("/openapi/v2"),
        get("/openapi/v3/api/v1"),
        get("/openapi/v3/api/v1?hash=AB"),
    ] {
        let what = format!("{request:?}");
        assert_eq!(
            weir.send(request).await.header("x-weir-cache"),
            "forward; reason=non-resource",
            "{what}"
        );
    }
    assert_eq!(upstream.counts(), (7, 0));
    for request in [
        with(apis(), "impersonate-user", "jane"),
        with(apis(), "x-weir-cache", "bypass"),
        with(apis(), "range", "bytes=0-1"),
        get("/apis"),
    ] {
        assert_eq!(weir.send(request).await.header("x-weir-cache"), "forward; reason=non-resource");
    }
    assert_eq!(upstream.counts(), (11, 0));
}

#[tokio::test]
async fn concurrent_misses_do_not_wait_for_each_other() {
    let upstream = Documents::new();
    upstream.gate.forget_permits(Semaphore::MAX_PERMITS);
    let weir = Arc::new(upstream.weir().await);
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let weir = Arc::clone(&weir);
            let request = with(apis(), "if-none-match", "\"AB\"");
            tokio::spawn(async move { weir.send(request).await })
        })
        .collect();
    // The first ones fetch it whole. The others are answered meanwhile.
    eventually("all are answered or fetch", || upstream.counts() == (4, 4)).await;
    upstream.gate.add_permits(4);
    for answer in asked {
        assert_eq!(answer.await.unwrap().code, 304);
    }
    assert_eq!(seen(&weir.send(apis()).await), (200, "hit", "one"));
}

#[tokio::test]
async fn documents_named_by_hash_are_revalidated_too() {
    let upstream = Documents::new();
    *upstream.headers.lock() =
        vec![("cache-control", "public, immutable"), ("expires", "Sun, 21 Nov 2027 12:00:31 UTC")];
    let weir = upstream.weir().await;
    let path = "/openapi/v3/api/v1?hash=AB";
    assert_eq!(weir.get(path).await.text(), "one");
    assert_eq!(seen(&weir.get(path).await), (200, "hit", "one"));
    let not_modified = weir.send(with(get(path), "if-none-match", "\"AB\"")).await;
    assert_eq!(seen(&not_modified), (304, "hit", ""));
    assert_eq!(upstream.counts(), (1, 2));
    // The schema changed: the upstream redirects requests for the old hash to the new one.
    *upstream.broken.lock() = Some(301);
    assert_eq!(seen(&weir.get(path).await), (301, "forward; reason=non-resource", "no"));
}

#[tokio::test]
async fn other_responses_of_the_upstream_are_relayed() {
    let upstream = Documents::new();
    let weir = upstream.weir().await;
    assert_eq!(weir.send(apis()).await.text(), "one");
    for code in [403, 429, 503] {
        *upstream.broken.lock() = Some(code);
        assert_eq!(seen(&weir.send(apis()).await), (code, "forward; reason=non-resource", "no"));
    }
    *upstream.broken.lock() = None;
    assert_eq!(seen(&weir.send(apis()).await), (200, "hit", "one"));
}

#[tokio::test]
async fn a_response_without_an_etag_is_never_stored() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let weir = Weir::start(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        async { crate::upstream::testing::answer(200, "legacy") }
    })
    .await;
    for _ in 0..3 {
        let got = weir.send(apis()).await;
        assert_eq!(
            (got.text(), got.header("x-weir-cache")),
            ("legacy", "forward; reason=non-resource")
        );
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
}
