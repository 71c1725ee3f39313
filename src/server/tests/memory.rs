//! The memory of responses that clients do not read.

use std::io::Read;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::harness::{Http2, SOON, Settings, Weir, echo, get, http1_on};
use crate::cache::script::upsert;
use crate::codec::gzip::WRITER_BYTES;
use crate::codec::pretty;
use crate::codec::rope::PIECE_BYTES;
use crate::testing::eventually;

const LIST: &str = "/api/v1/configmaps?resourceVersion=0";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn with(path: &str, name: &'static str, value: &'static str) -> Request<Full<Bytes>> {
    let mut request = get(path);
    request.headers_mut().insert(name, HeaderValue::from_static(value));
    request
}

/// Returns names that do not compress well.
fn names(count: u64) -> impl Iterator<Item = (String, u64)> {
    let noise = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    (0..count).map(move |n| {
        let [one, two, three] = [n, n + count, n + 2 * count].map(noise);
        (format!("name-{n:06}-{one:016x}{two:016x}{three:016x}"), 3)
    })
}

fn unpacked(member: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(member);
    let mut unpacked = Vec::new();
    decoder.read_to_end(&mut unpacked).unwrap();
    assert!(decoder.into_inner().is_empty(), "more than one member");
    unpacked
}

/// Its length is not known when it begins, as at kube-apiserver, since nothing of it exists yet.
#[tokio::test]
async fn an_indented_list_is_rendered_while_it_is_sent() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill(names(2000));
    let compact = weir.get(LIST).await;
    assert_eq!(compact.header("content-length"), compact.body.len().to_string());
    let indented = weir.get(&format!("{LIST}&pretty=1")).await;
    assert_eq!((indented.header("x-weir-cache"), indented.header("content-length")), ("hit", ""));
    assert!(indented.body == pretty::indent(&compact.body));
    let packed = weir.send(with(&format!("{LIST}&pretty=1"), "accept-encoding", "gzip")).await;
    assert_eq!(
        (packed.header("content-encoding"), packed.header("vary")),
        ("gzip", "Accept-Encoding")
    );
    assert!(unpacked(&packed.body) == indented.body);
    eventually("nothing is held", || weir.held.bytes() == 0).await;
}

#[tokio::test]
async fn a_short_indented_body_has_its_length_and_is_not_compressed() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill(names(3));
    let compact = weir.get(LIST).await;
    let list = weir.send(with(&format!("{LIST}&pretty=1"), "accept-encoding", "gzip")).await;
    assert_eq!(list.header("content-length"), list.body.len().to_string());
    assert_eq!(
        (list.header("content-encoding"), &list.body[..]),
        ("", &*pretty::indent(&compact.body))
    );
}

/// Opens a connection on which the client accepts 16 KiB of each response before it reads.
async fn slow_client(weir: &Weir) -> Http2 {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(16 << 10);
    let (sender, connection) = builder.handshake(TokioIo::new(weir.tcp().await)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Sends a request, and reads the beginning of the response.
async fn begin(client: &mut Http2, request: &Request<Full<Bytes>>) -> Response<Incoming> {
    let mut request = request.clone();
    *request.uri_mut() = format!("http://localhost{}", request.uri()).parse().unwrap();
    let mut response = client.send_request(request).await.unwrap();
    assert_eq!(response.headers()["x-weir-cache"], "hit");
    response.body_mut().frame().await.unwrap().unwrap();
    response
}

/// However long the responses are, a client that does not read holds two pieces of each.
#[tokio::test]
async fn unread_responses_hold_few_pieces_each() {
    const RESPONSES: usize = 20;
    let weir = Weir::start(echo).await;
    let _feed = weir.fill(names(2000));
    assert_eq!(weir.get(LIST).await.header("x-weir-cache"), "hit");
    let indented = format!("{LIST}&pretty=1");
    for (request, each) in [
        (get(&indented), PIECE_BYTES),
        (with(&indented, "accept-encoding", "gzip"), WRITER_BYTES + PIECE_BYTES),
        (with(LIST, "accept", METADATA), 0),
        (get(LIST), 0),
        (get(&format!("{LIST}&watch=1")), 0),
    ] {
        let mut client = slow_client(&weir).await;
        let mut unread = Vec::new();
        for _ in 0..RESPONSES {
            unread.push(begin(&mut client, &request).await);
        }
        // The references of a list, two pieces, and some room.
        let pieces = 3 * PIECE_BYTES;
        let most = RESPONSES * (2000 * size_of::<usize>() + each + pieces);
        assert!(weir.held.bytes() <= most, "{}: {}", request.uri(), weir.held.bytes());
        assert!(weir.held.bytes() > RESPONSES * 1000, "{}: nothing is counted", request.uri());
        drop((unread, client));
        eventually("nothing is held", || weir.held.bytes() == 0).await;
    }
}

/// hyper would read sixteen pieces ahead. The buffers of a Unix socket are small; those of a TCP
/// connection would take the whole response.
#[tokio::test]
async fn over_http1_unread_responses_hold_few_pieces_too() {
    const OBJECTS: u64 = 8000;
    let weir = Weir::start(echo).await;
    let _feed = weir.fill(names(OBJECTS));
    let list = weir.get(LIST).await;
    for path in [LIST.to_owned(), format!("{LIST}&pretty=1"), format!("{LIST}&watch=1")] {
        let mut unread = Vec::new();
        for _ in 0..10 {
            let socket = UnixStream::connect(&weir.listeners[2].address).await.unwrap();
            let mut client = http1_on(socket).await;
            let response = client.send_request(get(&path)).await.unwrap();
            unread.push((client, response));
        }
        let references = OBJECTS as usize * size_of::<usize>();
        let most = unread.len() * (references + 5 * PIECE_BYTES);
        assert!(weir.held.bytes() <= most, "{path}: {}", weir.held.bytes());
        for (_client, response) in unread {
            let body = response.into_body();
            if !path.contains("watch") {
                assert!(body.collect().await.unwrap().to_bytes().len() >= list.body.len());
            }
        }
        eventually("nothing is held", || weir.held.bytes() == 0).await;
    }
}

#[tokio::test]
async fn beyond_the_limit_new_lists_are_refused_and_other_reads_go_on() {
    let settings = Settings { response_bytes_max: 1000, ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let feed = weir.fill([("name-000001".to_owned(), 3)]);
    assert_eq!(weir.get(LIST).await.header("x-weir-cache"), "hit");
    let after = "/api/v1/configmaps?watch=1&resourceVersion=7";
    let mut open = weir.http1().await.send_request(get(after)).await.unwrap().into_body();

    eventually("nothing is held", || weir.held.bytes() == 0).await;
    let held = weir.held.claim(1000);
    let object = "/api/v1/namespaces/ns/configmaps/name-000001?resourceVersion=0";
    for refused in [LIST, &format!("{LIST}&watch=1"), &format!("{object}&pretty=1")] {
        let answer = weir.get(refused).await;
        assert_eq!((answer.code, answer.header("retry-after")), (429, "1"), "{refused}");
        let status = serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap();
        assert_eq!(status["reason"], "TooManyRequests");
    }
    let scraped = weir.scrape();
    assert!(scraped.contains(r#"reason="response-memory""#), "{scraped}");
    assert!(scraped.contains("weir_response_memory_bytes 1000\n"), "{scraped}");
    assert!(scraped.contains("weir_response_memory_bytes_limit 1000\n"), "{scraped}");
    assert_eq!(weir.get(object).await.header("x-weir-cache"), "hit");
    let resumed = weir.http1().await.send_request(get(after)).await.unwrap();
    assert_eq!(resumed.headers()["x-weir-cache"], "hit");
    feed.send(vec![upsert("x", 8)]);
    for body in [&mut open, &mut resumed.into_body()] {
        assert!(body.frame().await.unwrap().unwrap().into_data().unwrap().ends_with(b"}\n"));
    }
    drop(held);
    let again = weir.send(get(LIST)).await;
    assert_eq!((again.code, again.header("x-weir-cache")), (200, "hit"));
}

/// A client that reads a list much more slowly than its objects change would keep all old objects.
#[tokio::test]
async fn a_list_that_is_outrun_by_its_cache_breaks_off() {
    let weir = Weir::start(echo).await;
    let feed = weir.fill(names(2000));
    let mut client = slow_client(&weir).await;
    let slow = begin(&mut client, &get(LIST)).await;
    // The history has at most a megabyte, and the reader of an old state may keep as much.
    let name = "x".repeat(200);
    for first in (10..10_010).step_by(1000) {
        feed.send((first..first + 1000).map(|at| upsert(&name, at)).collect());
    }
    let newest = "/api/v1/configmaps?resourceVersion=10009";
    let caught_up = async { while weir.get(newest).await.header("x-weir-cache") != "hit" {} };
    timeout(SOON, caught_up).await.expect("the cache did not catch up");
    assert!(slow.into_body().collect().await.is_err(), "the list was sent to its end");
    assert!(weir.scrape().contains("weir_lists_outrun_total 1\n"));
    assert_eq!(weir.get(LIST).await.code, 200);
}
