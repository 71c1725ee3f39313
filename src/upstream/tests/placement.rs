//! Tests of which connection a client's request uses.

use http::Version;

use super::super::testing::ConnectionNumber;
use super::*;

async fn upstream_of(server: &TestServer, ca: &Ca) -> Upstream {
    let directory = tempfile::tempdir().unwrap();
    let path = kubeconfig(directory.path(), server, ca, "token: secret");
    Upstream::new(&config(None, Some(path), true), metrics()).await.unwrap()
}

fn server_options(ca: &Ca, alpn: &[&str]) -> ServerOptions {
    ServerOptions { tls: Some(ca.server(&["127.0.0.1"], alpn)), ..ServerOptions::http2() }
}

/// Answers with the number of the connection.
async fn number(request: Request<hyper::body::Incoming>) -> testing::Answer {
    let ConnectionNumber(number) = *request.extensions().get().unwrap();
    answer(200, number.to_string())
}

async fn connection(response: Response<pool::Body>) -> usize {
    text(response).await.parse().unwrap()
}

fn pinned(pin: u64) -> SendOptions {
    SendOptions { pin: Some(pin), is_read: true, ..SendOptions::default() }
}

/// Behind a load balancer, each connection may lead to another API server.
#[tokio::test]
async fn reads_of_a_client_that_may_be_stale_use_one_connection_while_it_lives() {
    let ca = Ca::new();
    for (alpn, http2) in [(vec!["h2", "http/1.1"], true), (vec!["http/1.1"], false)] {
        let server = TestServer::start(server_options(&ca, &alpn), number).await;
        let upstream = upstream_of(&server, &ca).await;
        let read = async |options: &SendOptions| {
            let sent = upstream.send_with(TrafficClass::Request, get("/x"), options);
            connection(sent.await.unwrap()).await
        };
        let plain = SendOptions::default();
        let mut homes = Vec::new();
        for _ in 0..3 {
            let home = read(&pinned(1)).await;
            for _ in 0..20 {
                // Other requests open connections, and use those that are idle.
                let others = (0..4).map(|_| read(&plain));
                futures_util::future::join_all(others).await;
                assert_eq!(read(&pinned(1)).await, home, "http2 is {http2}");
            }
            homes.push(home);
            server.close_connections();
            eventually("the pool notices the end", || {
                upstream.inner.metrics.open_connections() == 0
            })
            .await;
        }
        assert!(homes[0] < homes[1] && homes[1] < homes[2], "{homes:?}");
    }
}

#[tokio::test]
async fn a_list_of_a_collection_has_its_own_connection() {
    let ca = Ca::new();
    let server = TestServer::start(server_options(&ca, &["h2", "http/1.1"]), echo).await;
    let upstream = upstream_of(&server, &ca).await;
    let read = upstream.send(TrafficClass::Request, get("/x")).await.unwrap();
    assert!(text(read).await.starts_with("HTTP/2"));
    for connections in 2..5 {
        let answer = upstream.send(TrafficClass::List, get("/x")).await.unwrap();
        assert!(text(answer).await.starts_with("HTTP/1.1"));
        assert_eq!(server.accepted(), connections);
    }
}

/// kube-apiserver ends an HTTP/2 connection with each response to a request that it does not
/// authenticate.
#[tokio::test]
async fn a_request_with_an_unproven_credential_shares_no_connection() {
    let ca = Ca::new();
    let server = TestServer::start(server_options(&ca, &["h2", "http/1.1"]), number).await;
    let upstream = upstream_of(&server, &ca).await;
    let unproven = SendOptions { unproven: true, ..SendOptions::default() };
    for class in [TrafficClass::Request, TrafficClass::Stream] {
        let send = async |options: &SendOptions| {
            upstream.send_with(class, get("/x"), options).await.unwrap()
        };
        let shared = connection(send(&SendOptions::default()).await).await;
        let one = send(&unproven).await;
        let two = send(&unproven).await;
        assert_eq!([one.version(), two.version()], [Version::HTTP_11; 2]);
        let (one, two) = (connection(one).await, connection(two).await);
        assert!(one != two && one != shared && two != shared, "{one} {two} {shared}");
        let again = connection(send(&unproven).await).await;
        assert!(again == one || again == two, "an idle connection is used again");
    }
}
