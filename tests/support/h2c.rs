//! Many requests over few connections: HTTP/2 in clear text with prior knowledge, which Weir's
//! plain listeners support.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// One connection.
#[derive(Clone)]
pub(crate) struct H2c {
    sender: SendRequest<Empty<Bytes>>,
}

impl H2c {
    /// Connects to a port of 127.0.0.1.
    pub(crate) async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("weir listens");
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.expect("weir speaks HTTP/2 in clear text");
        tokio::spawn(connection);
        Self { sender }
    }

    /// Sends a GET and returns the response as soon as its head is there.
    pub(crate) async fn get(&self, path: &str) -> Response<Incoming> {
        let request =
            Request::get(format!("http://localhost{path}")).body(Empty::new()).expect("a request");
        self.sender.clone().send_request(request).await.expect("an answer")
    }

    /// Sends a GET and collects the whole answer.
    pub(crate) async fn get_all(&self, path: &str) -> (Response<()>, Bytes) {
        let (parts, body) = self.get(path).await.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        (Response::from_parts(parts, ()), body)
    }
}
