//! A client that behaves as a kubelet does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

/// Watches of a node: its pods, itself, and twenty objects by name.
pub(crate) const WATCHES: usize = 22;
pub(crate) const PODS: usize = 10;
/// Secrets and config maps of a node, every second one of either kind.
pub(crate) const NAMED: usize = 20;
const LEASE_INTERVAL: Duration = Duration::from_secs(10);
const BACK_OFF: Duration = Duration::from_millis(800);
/// The annotation with the time of a change, in microseconds of the testbed's clock.
pub(crate) const CHANGED: &str = "changed-at";

/// The counts of all nodes.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) watches: AtomicUsize,
    pub(crate) ended: AtomicUsize,
    pub(crate) expired: AtomicUsize,
    pub(crate) leases: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    /// Responses to watches, by status and `X-Weir-Cache`.
    pub(crate) answers: Mutex<BTreeMap<String, usize>>,
    /// Refusals of lists and watches, by the seconds of their `Retry-After`.
    pub(crate) pauses: Mutex<BTreeMap<u64, usize>>,
    /// Milliseconds from a change until its event.
    pub(crate) lags: Mutex<Vec<f64>>,
}

pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) weir: SocketAddr,
    pub(crate) tls: TlsConnector,
    pub(crate) seen: Arc<Seen>,
    pub(crate) epoch: Instant,
}

type Sender = SendRequest<Full<Bytes>>;

impl Node {
    /// Runs until it is dropped: each time that the connection ends, it opens another one.
    pub(crate) async fn run(self) {
        let node = Arc::new(self);
        let versions: Arc<Vec<Mutex<Option<String>>>> =
            Arc::new((0..WATCHES).map(|_| Mutex::default()).collect());
        loop {
            if let Some(sender) = node.connect().await {
                let mut tasks = JoinSet::new();
                for watch in 0..WATCHES {
                    let (node, sender) = (Arc::clone(&node), sender.clone());
                    let versions = Arc::clone(&versions);
                    tasks.spawn(async move {
                        while !sender.is_closed() {
                            let pause = node.watch(sender.clone(), watch, &versions).await;
                            sleep(pause.unwrap_or_else(|| jittered(BACK_OFF))).await;
                        }
                    });
                }
                let (node, leases) = (Arc::clone(&node), sender.clone());
                tasks.spawn(async move { node.write_leases(leases).await });
                while !sender.is_closed() {
                    sleep(Duration::from_millis(100)).await;
                }
            }
            sleep(jittered(BACK_OFF)).await;
        }
    }

    async fn connect(&self) -> Option<Sender> {
        let tcp = TcpStream::connect(self.weir).await.ok()?;
        tcp.set_nodelay(true).ok()?;
        let name = ServerName::IpAddress(self.weir.ip().into());
        let tls = self.tls.connect(name, tcp).await.ok()?;
        let handshake = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(tls));
        let (sender, connection) = handshake.await.ok()?;
        tokio::spawn(async move { drop(connection.await) });
        Some(sender)
    }

    async fn send(
        &self,
        mut sender: Sender,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Option<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.weir))
            .header("content-type", "application/json")
            .header("user-agent", "kubelet/v1.36.0")
            .body(Full::new(body));
        sender.ready().await.ok()?;
        sender.send_request(request.ok()?).await.ok()
    }

    /// The collection of a watch, and its selector.
    fn target(&self, watch: usize) -> (String, String) {
        let node = name(self.number);
        match watch {
            0 => ("/api/v1/pods".to_owned(), format!("spec.nodeName%3D{node}")),
            1 => ("/api/v1/nodes".to_owned(), format!("metadata.name%3D{node}")),
            _ => {
                let kind = if watch.is_multiple_of(2) { "secrets" } else { "configmaps" };
                let object = format!("{node}-{}", watch % NAMED);
                (format!("/api/v1/namespaces/default/{kind}"), format!("metadata.name%3D{object}"))
            }
        }
    }

    /// Lists unless a resourceVersion is known, and watches until the stream ends. Returns the
    /// pause that the server asks for, which client-go keeps exactly.
    async fn watch(
        &self,
        sender: Sender,
        watch: usize,
        versions: &[Mutex<Option<String>>],
    ) -> Option<Duration> {
        let version = versions.get(watch)?;
        let (path, selector) = self.target(watch);
        let last_version = version.lock().clone();
        let from = match last_version {
            Some(from) => from,
            None => {
                let list = format!("{path}?fieldSelector={selector}&resourceVersion=0");
                let list = self.send(sender.clone(), Method::GET, &list, Bytes::new()).await?;
                if !list.status().is_success() {
                    return self.refused(&list);
                }
                version_of_last(&list.into_body().collect().await.ok()?.to_bytes())?
            }
        };
        let path = format!(
            "{path}?watch=1&fieldSelector={selector}&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=480"
        );
        *version.lock() = Some(from);
        let mut stream = self.send(sender, Method::GET, &path, Bytes::new()).await?;
        let from = stream.headers().get("x-weir-cache").and_then(|value| value.to_str().ok());
        let answer = format!("{} {}", stream.status().as_u16(), from.unwrap_or_default());
        *self.seen.answers.lock().entry(answer).or_default() += 1;
        if !stream.status().is_success() {
            return self.refused(&stream);
        }
        let _open = OpenWatch::new(&self.seen);
        while let Some(Ok(frame)) = stream.body_mut().frame().await {
            let Ok(data) = frame.into_data() else { continue };
            self.note(&data);
            if memmem::find(&data, b"\"code\":410").is_some() {
                self.seen.expired.fetch_add(1, Ordering::Relaxed);
                *version.lock() = None;
                break;
            }
            if let Some(last) = version_of_last(&data) {
                *version.lock() = Some(last);
            }
        }
        None
    }

    /// Counts a refusal, and returns the time that it names.
    fn refused(&self, response: &Response<Incoming>) -> Option<Duration> {
        self.seen.failed.fetch_add(1, Ordering::Relaxed);
        let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        *self.seen.pauses.lock().entry(seconds).or_default() += 1;
        Some(Duration::from_secs(seconds))
    }

    fn note(&self, data: &[u8]) {
        let now = self.epoch.elapsed().as_micros();
        for at in memmem::find_iter(data, CHANGED.as_bytes()) {
            let digits = data.get(at + CHANGED.len()..).unwrap_or_default().iter();
            let digits: String = digits
                .skip_while(|byte| !byte.is_ascii_digit())
                .take_while(|byte| byte.is_ascii_digit())
                .map(|byte| char::from(*byte))
                .collect();
            if let Ok(then) = digits.parse::<u128>() {
                self.seen.lags.lock().push(now.saturating_sub(then) as f64 / 1e3);
            }
        }
    }

    async fn write_leases(&self, sender: Sender) {
        sleep(LEASE_INTERVAL.mul_f64(fastrand::f64())).await;
        let name = name(self.number);
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
        while !sender.is_closed() {
            let body = lease.to_string().into();
            let written = self.send(sender.clone(), Method::PUT, &path, body).await;
            let is_written = written.is_some_and(|response| response.status().is_success());
            let count = if is_written { &self.seen.leases } else { &self.seen.failed };
            count.fetch_add(1, Ordering::Relaxed);
            sleep(LEASE_INTERVAL).await;
        }
    }
}

/// Adds up to the same time again, as client-go does.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 + fastrand::f64())
}

/// A watch that is open, counted.
struct OpenWatch(Arc<Seen>);

impl OpenWatch {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.watches.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(seen))
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn name(node: usize) -> String {
    format!("node-{node:05}")
}

/// Returns the largest resourceVersion in a piece of JSON. One that is cut in two is missing, and
/// an earlier one counts.
fn version_of_last(data: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\"resourceVersion\":\"";
    let versions = memmem::find_iter(data, KEY).filter_map(|at| {
        let digits = data.get(at + KEY.len()..)?;
        let end = digits.iter().position(|byte| *byte == b'"')?;
        std::str::from_utf8(digits.get(..end)?).ok()?.parse::<u64>().ok()
    });
    versions.max().map(|version| version.to_string())
}
