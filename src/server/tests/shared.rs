//! Many requests on one HTTP/2 connection, whose frames are written together.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::connections::tls;
use super::harness::{Http2, SOON, Weir, echo, http2_on, whole};
use crate::cache::script::upsert;

const WATCHES: usize = 40;
const EVENTS: u64 = 60;

fn request(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://localhost{path}")).body(Full::default()).unwrap()
}

/// Reads a watch until it has `count` events.
async fn events(mut body: Incoming, count: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.iter().filter(|byte| **byte == b'\n').count() < count {
        read.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    read
}

/// Opens a connection to each listener.
async fn connections(weir: &Weir) -> [Http2; 3] {
    let tcp = TcpStream::connect(&weir.listeners[1].address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    [
        http2_on(weir.tcp().await).await,
        http2_on(tls(weir, &["h2"]).connect(name, tcp).await.unwrap()).await,
        http2_on(UnixStream::connect(&weir.listeners[2].address).await.unwrap()).await,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_of_a_connection_receives_every_event_in_order() {
    let weir = Weir::start(echo).await;
    let feed = weir.fill([("first".to_owned(), 5)]);
    let get = "/api/v1/namespaces/ns/configmaps/first?resourceVersion=0";
    // Fills the cache first. A cache that was started by a watch would be listed at the watch's
    // resourceVersion.
    let filled = weir.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!(filled.header("x-weir-cache"), "hit");
    for (round, mut connection) in (0_u64..).zip(connections(&weir).await) {
        // The resourceVersion at which the previous listener's events ended.
        let at = (7 + round * EVENTS).max(7);
        let path = format!("/api/v1/configmaps?watch=1&resourceVersion={at}");
        let mut bodies = Vec::new();
        for _ in 0..WATCHES {
            let answer = connection.send_request(request(&path)).await.unwrap();
            assert_eq!(answer.headers()["x-weir-cache"], "hit");
            bodies.push(answer.into_body());
        }
        let reading: Vec<_> = bodies
            .into_iter()
            .map(|body| tokio::spawn(events(body, usize::try_from(EVENTS).unwrap())))
            .collect();
        for number in 1..=EVENTS {
            feed.send(vec![upsert(&format!("cm-{number}"), at + number)]);
            // Responses to other requests arrive in between.
            assert_eq!(whole(connection.send_request(request(get)).await.unwrap()).await.code, 200);
        }
        for read in reading {
            let read = timeout(SOON, read).await.expect("events are missing").unwrap();
            let versions: Vec<_> = read
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap())
                .map(|event| event["object"]["metadata"]["resourceVersion"].to_string())
                .collect();
            let expected: Vec<_> =
                (at + 1..=at + EVENTS).map(|version| format!("\"{version}\"")).collect();
            assert_eq!(versions, expected);
        }
    }
}
