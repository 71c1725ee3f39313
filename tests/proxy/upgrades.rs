//! Upgraded connections (exec, attach, port-forward) are spliced: bytes pass both ways unchanged,
//! and either half may close first.

use http::Method;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Call, send};
use crate::harness::{POD, Proxy, over_tls};
use crate::wait::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_are_spliced_with_half_close() {
    for proxy in [Proxy::seeded().await, over_tls().await] {
        for (protocol, subresource) in
            [("websocket", "exec?command=ls"), ("SPDY/3.1", "portforward"), ("websocket", "attach")]
        {
            let mut call = Call::get(&format!("{POD}/{subresource}"))
                .header("connection", "Upgrade")
                .header("upgrade", protocol);
            if protocol == "websocket" {
                call = call
                    .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                    .header("sec-websocket-version", "13")
                    .header(
                        "sec-websocket-protocol",
                        "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io",
                    );
            } else {
                call = call.header("x-stream-protocol-version", "portforward.k8s.io");
                call.method = Method::POST;
            }
            let mut answer = send(proxy.plain(), &call).await;
            assert_eq!(answer.status(), 101, "{protocol}");
            assert!(answer.headers()["upgrade"].to_str().unwrap().eq_ignore_ascii_case(protocol));
            assert!(answer.headers().contains_key("x-weir-cache"));
            if protocol == "websocket" {
                assert_eq!(
                    answer.headers()["sec-websocket-accept"],
                    "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
                );
                assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
            }
            let upgraded = hyper::upgrade::on(&mut answer).await.unwrap();
            let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
            let sent: Vec<u8> =
                (0..1_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let expected = sent.clone();
            let writing = tokio::spawn(async move {
                write.write_all(&sent).await.unwrap();
                // One half of the connection is closed while the other still carries the echo.
                write.shutdown().await.unwrap();
                write
            });
            let mut echo = Vec::new();
            read.read_to_end(&mut echo).await.unwrap();
            assert!(echo == expected, "{protocol}: {} of {} bytes", echo.len(), expected.len());
            writing.await.unwrap();
        }
        let refused = proxy.get(&format!("{POD}/exec?command=ls")).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        eventually("nothing stays spliced", async || {
            proxy.metric("weir_upgraded_connections", &[]).await == 0.0
        })
        .await;
    }
}
