//! Watches over WebSockets, with an ordinary client library.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, Request};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::harness::{SOON, Settings, Weir, echo};
use crate::cache::script::upsert;
use crate::testing::eventually;

const WATCH: &str = "/api/v1/configmaps?watch=1&resourceVersion=0";

fn request(path: &str) -> Request<()> {
    let mut request = format!("ws://localhost{path}").into_client_request().unwrap();
    request.headers_mut().insert("origin", HeaderValue::from_static("http://localhost"));
    request
}

async fn open(weir: &Weir, path: &str) -> WebSocketStream<TcpStream> {
    let (socket, answer) = client_async(request(path), weir.tcp().await).await.unwrap();
    let mut names: Vec<_> = answer.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["connection", "date", "sec-websocket-accept", "upgrade", "x-weir-cache"]);
    socket
}

async fn next(socket: &mut WebSocketStream<TcpStream>) -> Option<Message> {
    let message = tokio::time::timeout(SOON, socket.next()).await.expect("a message in time");
    message.map(|message| message.unwrap())
}

async fn closes(socket: &mut WebSocketStream<TcpStream>) {
    let Some(Message::Close(Some(frame))) = next(socket).await else { panic!("no close frame") };
    assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Normal, ""));
    assert_eq!(next(socket).await, None);
}

#[tokio::test]
async fn each_event_is_a_message() {
    let weir = Weir::start(echo).await;
    let feed = weir.fill([("x".to_owned(), 3), ("y".to_owned(), 5)]);
    let body = weir.get(&format!("{WATCH}&timeoutSeconds=1")).await;
    let mut lines = body.text().split_inclusive('\n');
    let mut socket = open(&weir, WATCH).await;
    for _ in 0..2 {
        assert_eq!(next(&mut socket).await, lines.next().map(Message::text));
    }
    assert!(
        weir.scrape()
            .contains("weir_watchers{group=\"\",resource=\"configmaps\",version=\"v1\"} 1")
    );
    feed.send(vec![upsert("z", 8)]);
    let Some(Message::Text(text)) = next(&mut socket).await else { panic!("no event") };
    assert!(text.starts_with(r#"{"type":"ADDED","object":{"#) && text.ends_with("}\n"), "{text}");
    socket.send(Message::Ping("p".into())).await.unwrap();
    assert_eq!(next(&mut socket).await, Some(Message::Pong("p".into())));
    socket.close(None).await.unwrap();
    eventually("the watcher is gone", || {
        weir.scrape().contains("weir_watchers{group=\"\",resource=\"configmaps\",version=\"v1\"} 0")
    })
    .await;
    let ended = r#"weir_watchers_ended_total{cause="client",group="",resource="configmaps",version="v1"} 1"#;
    assert!(weir.scrape().contains(ended));
    assert!(weir.scrape().contains(r#"weir_requests_total{cache_status="hit",code="101""#));
}

#[tokio::test]
async fn the_end_of_a_watch_is_a_close_frame() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill([("x".to_owned(), 3)]);
    let mut socket = open(&weir, &format!("{WATCH}&timeoutSeconds=1")).await;
    assert!(matches!(next(&mut socket).await, Some(Message::Text(_))));
    closes(&mut socket).await;
}

#[tokio::test]
async fn draining_closes_websockets() {
    let settings = Settings { shutdown_timeout: Duration::from_secs(8), ..Settings::default() };
    let weir = Weir::start_with(settings, echo).await;
    let _feed = weir.fill([("x".to_owned(), 3)]);
    let mut socket = open(&weir, WATCH).await;
    assert!(matches!(next(&mut socket).await, Some(Message::Text(_))));
    weir.shutdown.cancel();
    closes(&mut socket).await;
    drop(socket);
    tokio::time::timeout(SOON, weir.served).await.unwrap().unwrap();
}

/// The upstream of these tests refuses upgrades, so that a forwarded handshake is visible.
#[tokio::test]
async fn handshakes_that_the_upstream_may_refuse_are_forwarded() {
    let weir = Weir::start(echo).await;
    let _feed = weir.fill([("x".to_owned(), 3)]);
    let protocols = HeaderValue::from_static("a, b");
    let token = HeaderValue::from_static("base64url.bearer.authorization.k8s.io.eA");
    let mut without = request(WATCH);
    without.headers_mut().remove("origin");
    let mut several = request(WATCH);
    several.headers_mut().insert("sec-websocket-protocol", protocols);
    let mut bearer = request(WATCH);
    bearer.headers_mut().insert("sec-websocket-protocol", token);
    let list = request("/api/v1/configmaps?resourceVersion=0");
    for asked in [without, several, bearer, list] {
        let what = format!("{asked:?}");
        let Err(Error::Http(answer)) = client_async(asked, weir.tcp().await).await else {
            panic!("upgraded: {what}")
        };
        assert_eq!(answer.headers()["x-weir-cache"], "forward; reason=upgrade", "{what}");
        assert_eq!(answer.headers()["x-upstream"], "yes");
    }
    // A page of another origin gets no response from the API.
    let mut page = request(WATCH);
    page.headers_mut().insert("origin", HeaderValue::from_static("http://evil.example"));
    let Err(Error::Http(answer)) = client_async(page, weir.tcp().await).await else {
        panic!("upgraded for a page of another origin")
    };
    assert_eq!(answer.status(), 403);
}
