//! Upgraded connections are spliced, and failed upgrades are relayed.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::{Settings, Weir, empty, get, http2_on, whole};
use crate::testing::eventually;
use crate::upstream::testing::answer;

fn exec() -> Request<Full<Bytes>> {
    let mut request = get("/api/v1/namespaces/a/pods/p/exec?command=sh");
    request.headers_mut().insert("connection", HeaderValue::from_static("Upgrade"));
    request.headers_mut().insert("upgrade", HeaderValue::from_static("SPDY/3.1"));
    request
}

/// Starts an upstream that upgrades, echoes all data until the client's end of stream, and then
/// sends one more word.
async fn echo_server() -> Weir {
    echo_server_with(Settings::default()).await
}

async fn echo_server_with(settings: Settings) -> Weir {
    Weir::start_with(settings, |mut request| async move {
        assert_eq!(request.headers()["upgrade"], "SPDY/3.1");
        assert_eq!(request.headers()["connection"], "Upgrade");
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 64];
            loop {
                match io.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => io.write_all(&buffer[..read]).await.unwrap(),
                }
            }
            drop(io.write_all(b"bye").await);
            drop(io.shutdown().await);
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", "v4.channel.k8s.io")
            .body(empty())
            .unwrap()
    })
    .await
}

#[tokio::test]
async fn bytes_go_both_ways_and_either_side_may_end_first() {
    let weir = echo_server().await;
    let mut client = weir.http1().await;
    let mut response = client.send_request(exec()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    assert_eq!(response.headers()["connection"], "Upgrade");
    assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut io = TokioIo::new(upgraded);
    io.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    io.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
    assert!(weir.scrape().contains("weir_upgraded_connections 1"));
    io.shutdown().await.unwrap();
    let mut rest = String::new();
    io.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "bye", "one side may send after the other has ended");
    drop(io);
    eventually("the upgraded connection ends", || {
        weir.scrape().contains("weir_upgraded_connections 0")
    })
    .await;
}

#[tokio::test]
async fn an_upgraded_connection_holds_its_permit_until_it_ends() {
    let settings = Settings { connections_per_address_max: 1, ..Settings::default() };
    let weir = echo_server_with(settings).await;
    let mut response = weir.http1().await.send_request(exec()).await.unwrap();
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    // The connection is refused without a response, at whichever step the client notices it.
    let mut refused = weir.tcp().await;
    drop(refused.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await);
    assert!(refused.read_u8().await.is_err());
    assert!(weir.scrape().contains("weir_connections_refused_total{cause=\"address\"} 1"));
    assert!(weir.scrape().contains("weir_connections{listener=\"plain\"} 1"));
    drop(upgraded);
    eventually("the connection ends", || {
        weir.scrape().contains("weir_connections{listener=\"plain\"} 0")
    })
    .await;
    let mut response = weir.http1().await.send_request(exec()).await.unwrap();
    assert!(hyper::upgrade::on(&mut response).await.is_ok());
}

#[tokio::test]
async fn the_first_connection_line_means_the_same_upstream() {
    let weir = Weir::start(|request| async move {
        let lines = request.headers().get_all("connection").iter();
        let names = |line: &HeaderValue| line.to_str().unwrap().contains("Upgrade").to_string();
        answer(400, lines.map(names).collect::<Vec<_>>().join(","))
    })
    .await;
    for (lines, relayed) in [
        (&["Upgrade"][..], "true"),
        (&["keep-alive, upgrade", "keep-alive"], "true"),
        (&["keep-alive", "Upgrade"], "false,true"),
        (&["", "x-upgrade-x"], "false,true"),
    ] {
        let mut request = exec();
        request.headers_mut().remove("connection");
        for line in lines {
            request.headers_mut().append("connection", HeaderValue::from_static(line));
        }
        assert_eq!(weir.send(request).await.text(), relayed, "{lines:?}");
    }
}

#[tokio::test]
async fn a_failed_upgrade_is_relayed_and_its_connection_closed() {
    let weir = Weir::start(|_| async { answer(403, "no such permission") }).await;
    let mut client = weir.http1().await;
    let got = whole(client.send_request(exec()).await.unwrap()).await;
    assert_eq!((got.code, got.text()), (403, "no such permission"));
    assert_eq!(got.header("connection"), "close");
    assert!(client.ready().await.is_err());
}

#[tokio::test]
async fn an_upgrade_that_weir_itself_refuses_closes_its_connection_too() {
    let weir = Weir::start(|_| async { answer(200, "reached") }).await;
    let mut client = weir.http1().await;
    let mut request = exec();
    request.headers_mut().insert("host", HeaderValue::from_static("evil.example"));
    let got = whole(client.send_request(request).await.unwrap()).await;
    assert_eq!((got.code, got.header("connection")), (403, "close"));
    assert!(client.ready().await.is_err());
}

#[tokio::test]
async fn there_are_no_upgrades_over_http2_nor_for_h2c() {
    let weir = Weir::start(|request| async move {
        let asked = request.headers().contains_key("upgrade");
        answer(if asked { 500 } else { 400 }, "Upgrade request required")
    })
    .await;
    let mut client = http2_on(weir.tcp().await).await;
    let request = Request::get("http://localhost/api/v1/namespaces/a/pods/p/exec")
        .body(Full::default())
        .unwrap();
    assert_eq!(client.send_request(request).await.unwrap().status(), 400);
    let mut request = exec();
    request.headers_mut().insert("upgrade", HeaderValue::from_static("h2c"));
    assert_eq!(weir.send(request).await.code, 400);
}

#[tokio::test]
async fn draining_ends_splices_at_the_deadline() {
    let settings =
        Settings { shutdown_timeout: std::time::Duration::from_millis(200), ..Settings::default() };
    let weir = Weir::start_with(settings, |mut request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut rest = Vec::new();
            drop(io.read_to_end(&mut rest).await);
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .body(empty())
            .unwrap()
    })
    .await;
    let mut client = weir.http1().await;
    let mut response = client.send_request(exec()).await.unwrap();
    let mut io = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    weir.shutdown.cancel();
    let mut rest = Vec::new();
    drop(io.read_to_end(&mut rest).await);
    weir.served.await.unwrap();
}
