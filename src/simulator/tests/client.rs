//! A small HTTP client for the simulator's own tests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::{Simulator, SimulatorOptions};

/// The limit on every wait of a test.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A received response.
pub(super) struct Reply {
    pub(super) code: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

pub(super) async fn start() -> Simulator {
    start_with(SimulatorOptions::default()).await
}

pub(super) async fn start_with(options: SimulatorOptions) -> Simulator {
    Simulator::start(options).await.unwrap()
}

pub(super) async fn get(simulator: &Simulator, path: &str) -> Reply {
    request(simulator, Method::GET, path, &[], Value::Null).await.unwrap()
}

pub(super) async fn request(
    simulator: &Simulator,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> Result<Reply, hyper::Error> {
    let response = send(simulator, method, path, headers, body).await?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Reply { code: parts.status, headers: parts.headers, body })
}

async fn send(
    simulator: &Simulator,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> Result<http::Response<Incoming>, hyper::Error> {
    let stream = tokio::net::TcpStream::connect(simulator.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut request = http::Request::builder().method(method).uri(path).header("host", "x");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    sender.send_request(request.body(Full::new(body)).unwrap()).await
}

/// A running watch.
pub(super) struct Watch {
    content_type: String,
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    /// Opens a watch; `path` has no query.
    pub(super) async fn open(simulator: &Simulator, path: &str, query: &str) -> Self {
        Self::open_with(simulator, path, query, &[]).await
    }

    /// Opens a watch with headers.
    pub(super) async fn open_with(
        simulator: &Simulator,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Self {
        Self::at(simulator, &format!("{path}?watch=1&{query}"), headers).await
    }

    /// Opens a watch at a complete path, which has the `watch` parameter or prefix.
    pub(super) async fn at(simulator: &Simulator, path: &str, headers: &[(&str, &str)]) -> Self {
        let response = send(simulator, Method::GET, path, headers, Value::Null).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        Self { content_type, body: response.into_body(), buffer: BytesMut::new() }
    }

    pub(super) fn content_type(&self) -> &str {
        &self.content_type
    }

    /// Returns the type and the object, in JSON, of the next protobuf frame.
    pub(super) async fn protobuf(&mut self) -> (String, Value) {
        let length = self.take(4).await;
        let length = u32::from_be_bytes(length.as_slice().try_into().unwrap());
        let event = self.take(length as usize).await;
        // A WatchEvent is a short type, then a RawExtension that ends the message.
        let (kind, rest) = event[2..].split_at(usize::from(event[1]));
        let start = rest.windows(4).position(|bytes| bytes == b"k8s\0").unwrap();
        let object = crate::protobuf::decode(&rest[start..]).unwrap();
        (String::from_utf8(kind.to_vec()).unwrap(), object)
    }

    async fn take(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.unwrap();
            let data = frame.expect("the watch has ended").unwrap().into_data();
            self.buffer.extend_from_slice(&data.unwrap_or_default());
        }
        self.buffer.split_to(count).to_vec()
    }

    /// Returns the bytes of the next event without the newline; `None` at a clean end, an error if
    /// the stream breaks.
    pub(super) async fn line(&mut self) -> Result<Option<Vec<u8>>, hyper::Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(end + 1).to_vec();
                line.pop();
                return Ok(Some(line));
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await.unwrap();
            match frame {
                None => return Ok(None),
                Some(frame) => {
                    self.buffer.extend_from_slice(&frame?.into_data().unwrap_or_default());
                }
            }
        }
    }

    /// Returns the next event.
    pub(super) async fn next(&mut self) -> Value {
        let line = self.line().await.unwrap().unwrap();
        serde_json::from_slice(&line).unwrap()
    }

    /// Returns the next events as `TYPE name@resourceVersion`.
    pub(super) async fn events(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.next().await;
            let metadata = &event["object"]["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&metadata["name"]);
            events.push(format!(
                "{} {name}@{}",
                text(&event["type"]),
                text(&metadata["resourceVersion"])
            ));
        }
        events
    }

    /// Waits for the clean end. An event before it fails the test.
    pub(super) async fn ends(&mut self) {
        assert_eq!(self.line().await.unwrap(), None);
    }
}

/// Returns a ConfigMap.
pub(super) fn config_map(namespace: &str, name: &str, label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"l": label}},
        "data": {"k": "<v>"}})
}

/// Creates a ConfigMap and returns its resourceVersion.
pub(super) fn create(simulator: &Simulator, namespace: &str, name: &str) -> u64 {
    revision(&simulator.store().create(config_map(namespace, name, "1")).unwrap())
}

/// Returns the resourceVersion of an object or a list.
pub(super) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
