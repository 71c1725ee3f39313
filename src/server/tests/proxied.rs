//! Clients behind proxies that name their addresses.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::harness::{SOON, Settings, Weir};
use crate::config::ProxyNetworks;
use crate::testing::eventually;
use crate::upstream::testing::answer as answer_of;

const REQUEST: &[u8] = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";

/// Starts a server that trusts these networks. Its upstream answers with the addresses in
/// `X-Forwarded-For`.
async fn start(trusted: &[&str]) -> Weir {
    let trusted = trusted.iter().map(|network| network.parse().unwrap()).collect();
    let proxies = ProxyNetworks(trusted);
    let settings = Settings { proxies, connections_per_address_max: 1, ..Settings::default() };
    Weir::start_with(settings, |request| async move {
        let named = request.headers().get("x-forwarded-for").cloned();
        let body = named.map_or_else(Bytes::new, |named| Bytes::copy_from_slice(named.as_bytes()));
        answer_of(200, body)
    })
    .await
}

/// Returns the header of a client, with a field that is skipped.
fn header(client: &str) -> Vec<u8> {
    let client: SocketAddr = client.parse().unwrap();
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    let SocketAddr::V4(client) = client else { panic!("{client}") };
    bytes.extend([0x11, 0, 16]);
    bytes.extend(client.ip().octets());
    bytes.extend([127, 0, 0, 1]);
    bytes.extend(client.port().to_be_bytes());
    bytes.extend([0x18, 0xe8, 0xea, 0, 1, 7]);
    bytes
}

/// Sends `first` and a request on a connection, and returns what is answered until it is closed.
async fn answer(weir: &Weir, first: &[u8]) -> String {
    let mut tcp = weir.tcp().await;
    let mut read = Vec::new();
    let exchange = async {
        tcp.write_all(first).await?;
        tcp.write_all(REQUEST).await?;
        tcp.read_to_end(&mut read).await
    };
    let _reset = timeout(SOON, exchange).await.expect("the connection did not end");
    String::from_utf8(read).unwrap()
}

fn refused(weir: &Weir) -> bool {
    !weir.scrape().contains("weir_connections_refused_total{cause=\"proxy-header\"} 0\n")
}

#[tokio::test]
async fn a_trusted_proxy_names_its_clients() {
    let weir = start(&["127.0.0.0/8"]).await;
    let named = answer(&weir, &header("192.0.2.7:4660")).await;
    assert!(named.ends_with("\r\n\r\n192.0.2.7"), "{named}");
    let named = answer(&weir, LOCAL).await;
    assert!(named.ends_with("\r\n\r\n127.0.0.1"), "{named}");
}

#[tokio::test]
async fn the_limit_of_connections_is_that_of_the_named_address() {
    let weir = start(&["127.0.0.1"]).await;
    let open = async |client: &str| {
        let mut tcp = weir.tcp().await;
        tcp.write_all(&header(client)).await.unwrap();
        tcp.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut byte = [0];
        let read = timeout(SOON, tcp.read(&mut byte)).await.unwrap();
        (tcp, matches!(read, Ok(1)))
    };
    let (one, two) = (open("192.0.2.1:1").await, open("192.0.2.2:1").await);
    assert!(one.1 && two.1);
    assert!(!open("192.0.2.1:2").await.1, "one of each address");
    drop(one);
    eventually("the connection is closed", || {
        weir.scrape().contains("weir_connections{listener=\"plain\"} 1")
    })
    .await;
    assert!(open("192.0.2.1:3").await.1);
}

#[tokio::test]
async fn a_trusted_proxy_must_send_version_2() {
    let mut short = header("192.0.2.7:1");
    // Fewer bytes than an address has.
    short[15] = 8;
    for first in [&b""[..], b"PROXY TCP4 192.0.2.7 127.0.0.1 4660 443\r\n", &short] {
        let weir = start(&["127.0.0.1"]).await;
        let read = answer(&weir, first).await;
        assert!(!read.contains("192.0.2.7") && !read.starts_with("HTTP/1.1 200"), "{read}");
        assert!(refused(&weir), "{first:?}");
    }
}

#[tokio::test]
async fn others_may_connect_and_name_nobody() {
    let weir = start(&["192.0.2.0/24"]).await;
    let named = answer(&weir, b"").await;
    assert!(named.ends_with("\r\n\r\n127.0.0.1"), "{named}");
    assert!(!refused(&weir));
    for first in [&header("192.0.2.7:1")[..], b"PROXY TCP4 192.0.2.7 127.0.0.1 4660 443\r\n"] {
        assert_eq!(answer(&weir, first).await, "");
        assert!(refused(&weir));
    }
}

#[tokio::test]
async fn a_health_check_that_sends_nothing_is_no_fault() {
    let weir = start(&["127.0.0.1"]).await;
    drop(weir.tcp().await);
    assert!(answer(&weir, LOCAL).await.starts_with("HTTP/1.1 200"));
    assert!(!refused(&weir));
}
