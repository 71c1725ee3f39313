//! The bytes of requests and responses are counted by what they are for.

use super::*;
use crate::upstream::RequestPurpose;

#[tokio::test]
async fn bytes_are_counted_by_purpose() {
    for http2 in [false, true] {
        let options = if http2 { ServerOptions::http2() } else { ServerOptions::http1() };
        let server = TestServer::start(options, |request: Request<hyper::body::Incoming>| async {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            answer(200, format!("{} bytes", body.len()))
        })
        .await;
        let upstream = server.upstream(http2).await;
        let forward = SendOptions { purpose: RequestPurpose::Forward, ..SendOptions::default() };
        let post = Request::post("/api/v1/pods").body(full_body("a body of 21 bytes..."));
        let response = upstream.send_with(TrafficClass::Request, post.unwrap(), &forward).await;
        assert_eq!(text(response.unwrap()).await, "21 bytes");
        let response = upstream.send(TrafficClass::Request, get("/version")).await.unwrap();
        assert_eq!(text(response).await, "0 bytes");
        let counted = |purpose| {
            let bytes = upstream.inner.metrics.bytes(purpose);
            (bytes.sent.get(), bytes.received.get())
        };
        assert_eq!(counted(RequestPurpose::Forward), (21, 8), "{http2}");
        assert_eq!(counted(RequestPurpose::Other), (0, 7), "{http2}");
        assert_eq!(counted(RequestPurpose::Cache), (0, 0), "{http2}");
    }
}
