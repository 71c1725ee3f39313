//! A client of many watches: HTTP/2 without TLS, frames counted as they come.

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

/// What Weir allows on one connection.
const STREAMS: usize = 250;

/// What watches have seen.
#[derive(Default)]
pub(crate) struct Seen {
    events: AtomicUsize,
    /// In milliseconds, from the change.
    lags: Mutex<Vec<f64>>,
}

impl Seen {
    pub(crate) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    pub(crate) fn lags(&self) -> Vec<f64> {
        std::mem::take(&mut self.lags.lock())
    }
}

/// Watches of all pods, which end with this.
pub(crate) struct Watches {
    pub(crate) seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Watches {
    /// From a revision on; times are counted from `epoch`, as the changes' are.
    pub(crate) async fn open(weir: SocketAddr, count: usize, from: u64, epoch: Instant) -> Self {
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={from}&timeoutSeconds=3600");
        for first in (0..count).step_by(STREAMS) {
            let connection = connect(weir).await;
            for index in first..count.min(first + STREAMS) {
                let response = ask(&connection, weir, &path).await;
                assert!(is_hit(&response), "{:?}", response.headers());
                // One is enough to tell the lag.
                let lag = (index == 0).then_some(epoch);
                tasks.spawn(read(response, Arc::clone(&seen), lag));
            }
        }
        Self { seen, _tasks: tasks }
    }
}

async fn read(mut response: Response<Incoming>, seen: Arc<Seen>, lag: Option<Instant>) {
    while let Some(frame) = response.body_mut().frame().await {
        let data = frame.expect("a watch goes on").into_data().unwrap_or_default();
        seen.events.fetch_add(memchr::memchr_iter(b'\n', &data).count(), Ordering::Relaxed);
        let Some(epoch) = lag else { continue };
        let now = epoch.elapsed().as_secs_f64() * 1e3;
        let changed = memmem::find_iter(&data, CHANGED);
        let sent = changed.filter_map(|at| sent(&data, at + CHANGED.len() + 3));
        seen.lags.lock().extend(sent.map(|sent| now - sent));
    }
    unreachable!("a watch ended");
}

/// The time in the annotation's value, in milliseconds; what is cut between two frames is passed over.
fn sent(data: &Bytes, at: usize) -> Option<f64> {
    let digits = std::str::from_utf8(data.get(at..at + CHANGED_DIGITS)?).ok()?;
    Some(digits.parse::<f64>().ok()? / 1e3)
}

/// Waits until the cache answers.
pub(crate) async fn warm(weir: SocketAddr) {
    let connection = connect(weir).await;
    let deadline = Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let response = ask(&connection, weir, "/api/v1/pods?resourceVersion=0&limit=1").await;
        let (hit, told) = (is_hit(&response), response.headers().clone());
        response.into_body().collect().await.expect("a body");
        if hit {
            return;
        }
        assert!(Instant::now() < deadline, "nothing comes from the cache: {told:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn is_hit(response: &Response<Incoming>) -> bool {
    let told = response.headers().get("x-weir-cache").map(|it| it.as_bytes());
    response.status().is_success() && told.is_some_and(|it| it.starts_with(b"hit"))
}

type Connection = SendRequest<Empty<Bytes>>;

async fn connect(weir: SocketAddr) -> Connection {
    let tcp = TcpStream::connect(weir).await.expect("it listens");
    tcp.set_nodelay(true).expect("a socket");
    let handshake = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(TokioIo::new(tcp));
    let (sender, connection) = handshake.await.expect("HTTP/2");
    // It ends with its last sender; what fails, fails there.
    tokio::spawn(async move { drop(connection.await) });
    sender
}

async fn ask(connection: &Connection, weir: SocketAddr, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://{weir}{path}")).body(Empty::new());
    let mut connection = connection.clone();
    connection.ready().await.expect("a stream is free");
    connection.send_request(request.expect("a request")).await.expect("an answer")
}

/// Nobody has to wait for window updates.
const WINDOW_BYTES: u32 = (1 << 30) - 1;
