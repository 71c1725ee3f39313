//! A client with many watches, over HTTP/2 without TLS. It counts events when they arrive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::pods::{CHANGED, CHANGED_DIGITS};

/// The limit of Weir for streams on one connection.
const STREAMS: usize = 250;

/// Events that all watches have received, and their lags.
#[derive(Default)]
pub(crate) struct Observations {
    events: AtomicUsize,
    /// Milliseconds from each change until the client reads it.
    lags: Mutex<Vec<f64>>,
}

impl Observations {
    pub(crate) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    pub(crate) fn lags(&self) -> Vec<f64> {
        std::mem::take(&mut self.lags.lock())
    }
}

/// Watches, which end on drop.
#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) observations: Arc<Observations>,
    /// The token of their user; empty for none.
    token: &'static str,
    tasks: JoinSet<()>,
}

impl Watches {
    /// Opens `count` watches of all pods that start after revision `from`. Times are relative to
    /// `epoch`, as those in the changes are.
    pub(crate) async fn open(weir: SocketAddr, count: usize, from: u64, epoch: Instant) -> Self {
        let mut watches = Self::default();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={from}&timeoutSeconds=3600");
        for first in (0..count).step_by(STREAMS) {
            let connection = connect(weir).await;
            for index in first..count.min(first + STREAMS) {
                // One watch is enough to measure the lag.
                let lag = (index == 0).then_some(epoch);
                watches.add(&connection, weir, &path, lag).await;
            }
        }
        watches
    }

    /// None yet, of the user of a token.
    pub(crate) fn with_token(token: &'static str) -> Self {
        Self { token, ..Self::default() }
    }

    /// Opens one more.
    pub(crate) async fn add(
        &mut self,
        connection: &Connection,
        weir: SocketAddr,
        path: &str,
        lag: Option<Instant>,
    ) {
        let response = send_as(self.token, connection, weir, path).await;
        assert!(is_hit(&response), "{:?}", response.headers());
        self.tasks.spawn(read(response, Arc::clone(&self.observations), lag));
    }
}

async fn read(
    mut response: Response<Incoming>,
    observations: Arc<Observations>,
    lag: Option<Instant>,
) {
    while let Some(frame) = response.body_mut().frame().await {
        let data = frame.expect("the watch continues").into_data().unwrap_or_default();
        observations.events.fetch_add(memchr::memchr_iter(b'\n', &data).count(), Ordering::Relaxed);
        let Some(epoch) = lag else { continue };
        let now = epoch.elapsed().as_secs_f64() * 1e3;
        let changed = memmem::find_iter(&data, CHANGED);
        let sent = changed.filter_map(|at| sent(&data, at + CHANGED.len() + 3));
        observations.lags.lock().extend(sent.map(|sent| now - sent));
    }
    unreachable!("a watch ended");
}

/// Parses the time in the annotation's value, in milliseconds. Returns `None` if the value is split
/// between two frames.
fn sent(data: &Bytes, at: usize) -> Option<f64> {
    let digits = std::str::from_utf8(data.get(at..at + CHANGED_DIGITS)?).ok()?;
    Some(digits.parse::<f64>().ok()? / 1e3)
}

/// Waits until Weir answers from its cache.
pub(crate) async fn warm(weir: SocketAddr, collection: &str) {
    warm_as("", weir, collection).await;
}

/// Waits until Weir answers the user of a token from its cache.
pub(crate) async fn warm_as(token: &str, weir: SocketAddr, collection: &str) {
    let connection = connect(weir).await;
    let deadline = Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let path = format!("{collection}?resourceVersion=0");
        let response = send_as(token, &connection, weir, &path).await;
        let (hit, headers) = (is_hit(&response), response.headers().clone());
        response.into_body().collect().await.expect("a body");
        if hit {
            return;
        }
        assert!(Instant::now() < deadline, "no response from the cache within 30 s: {headers:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

pub(crate) fn is_hit(response: &Response<Incoming>) -> bool {
    let cache_status = response.headers().get("x-weir-cache").map(|value| value.as_bytes());
    response.status().is_success() && cache_status.is_some_and(|value| value.starts_with(b"hit"))
}

pub(crate) type Connection = SendRequest<Empty<Bytes>>;

pub(crate) async fn connect(weir: SocketAddr) -> Connection {
    let tcp = TcpStream::connect(weir).await.expect("weir listens");
    tcp.set_nodelay(true).expect("a socket");
    let handshake = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(TokioIo::new(tcp));
    let (sender, connection) = handshake.await.expect("HTTP/2");
    // The connection ends with its last sender. Its errors also reach the sender.
    tokio::spawn(async move { drop(connection.await) });
    sender
}

pub(crate) async fn send(
    connection: &Connection,
    weir: SocketAddr,
    path: &str,
) -> Response<Incoming> {
    send_as("", connection, weir, path).await
}

/// Sends a request of the user of a token; empty for none.
pub(crate) async fn send_as(
    token: &str,
    connection: &Connection,
    weir: SocketAddr,
    path: &str,
) -> Response<Incoming> {
    let mut request = Request::get(format!("http://{weir}{path}"));
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    send_request(connection, request).await
}

/// Sends a request for a representation.
pub(crate) async fn get(
    connection: &Connection,
    weir: SocketAddr,
    accept: &str,
    path: &str,
) -> Response<Incoming> {
    let request = Request::get(format!("http://{weir}{path}")).header("accept", accept);
    send_request(connection, request).await
}

async fn send_request(
    connection: &Connection,
    request: http::request::Builder,
) -> Response<Incoming> {
    let request = request.body(Empty::new());
    let mut connection = connection.clone();
    connection.ready().await.expect("a free stream");
    connection.send_request(request.expect("a request")).await.expect("a response")
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Large enough that Weir never waits for window updates.
const WINDOW_BYTES: u32 = (1 << 30) - 1;
