//! The admin listener over a real connection.

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connections::CONNECTIONS_MAX;
use super::*;
use crate::telemetry::metrics::gauge;
use crate::testing::eventually;

async fn get(address: SocketAddr, request_line: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request_line} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_admin_pages_are_served_until_shutdown() {
    let checks = Checks::new().ready("upstream", || Err("is away".to_owned()));
    let registry = Registry::new();
    let _gauge: prometheus::IntGauge = gauge(&registry, "weir_test", "A metric.").unwrap();
    let admin = Admin::bind("127.0.0.1:0".parse().unwrap(), checks, registry, None).await.unwrap();
    let address = admin.local_address().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(admin.run(stop.clone()));

    for (line, status, part) in [
        ("GET /livez", 200, "\r\n\r\nok"),
        ("GET /readyz?verbose", 500, "[-]upstream failed: is away\n"),
        ("GET /readyz?exclude=upstream", 200, "\r\n\r\nok"),
        ("GET /healthz", 500, "readyz check failed"),
        ("GET /readyz/upstream", 500, "is away"),
        ("GET /readyz/", 404, "not found"),
        ("GET /readyz/moon", 404, "not found"),
        ("GET /metrics", 200, "text/plain; version=0.0.4"),
        ("GET /metrics", 200, "weir_test 0"),
        ("GET /metrics", 200, "weir_ready{check=\"upstream\"} 0"),
        ("GET /metrics/slis", 200, "kubernetes_healthchecks_total{name=\"upstream\""),
        ("GET /", 200, "/readyz"),
        ("GET /metrics/x", 404, "not found"),
        // The Host of this test is none of the loopback's.
        ("GET /api/clients", 403, "the Host must be localhost"),
        ("GET /statusz", 403, "the Host must be localhost"),
        ("POST /debug/relist/v1/pods", 403, "the Host must be localhost"),
        ("GET /debug", 404, "not found"),
        ("GET /api", 404, "not found"),
        ("GET //", 404, "not found"),
        ("GET /..%2f", 404, "not found"),
        ("POST /livez", 405, "allow: GET, HEAD"),
        ("OPTIONS *", 405, ""),
    ] {
        let answer = get(address, line).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        assert!(answer.contains(part), "{line}: {answer}");
    }
    assert!(get(address, "HEAD /livez").await.ends_with("\r\n\r\n"));

    // An idle connection doesn't hold up the end.
    let idle = TcpStream::connect(address).await.unwrap();
    stop.cancel();
    running.await.unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).await.is_err());
}

/// The kubelet's probe takes the place of the oldest of them.
#[tokio::test]
async fn a_probe_gets_in_although_idle_connections_have_all_places() {
    let registry = Registry::new();
    let address = "127.0.0.1:0".parse().unwrap();
    let admin = Admin::bind(address, Checks::new(), registry, None).await.unwrap();
    let address = admin.local_address().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(admin.run(stop.clone()));
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://weir/livez").body(String::new()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        idle.push(sender);
    }
    for _ in 0..3 {
        assert!(get(address, "GET /livez").await.starts_with("HTTP/1.1 200 "));
    }
    eventually("the oldest one is closed", || idle[0].is_closed()).await;
    assert!(!idle[CONNECTIONS_MAX - 1].is_closed());
    stop.cancel();
    running.await.unwrap();
}
