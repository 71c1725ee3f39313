//! A client that behaves as a kubelet does: one connection with a certificate, a watch of its pods,
//! of its node and of each secret and config map, and a lease.
//!
//! Its watches are those of client-go 1.36: the first one brings the state, later ones go on where
//! the last one ended. It reads JSON, where a kubelet reads protobuf.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::compare::{WATCH, watched};
use crate::matrix_suite::credentials::Certificate;
use crate::matrix_suite::world::Side;
use crate::suite::frames::{Frame, Frames};

type Sender = SendRequest<Full<Bytes>>;

/// The counts of all kubelets.
#[derive(Default)]
pub(super) struct Seen {
    /// Watches that are open, and have their state.
    pub(super) open: AtomicUsize,
    /// Watches that ended after that.
    pub(super) ended: AtomicUsize,
    /// Watches that got 410.
    pub(super) expired: AtomicUsize,
    pub(super) leases: AtomicUsize,
    pub(super) failed_leases: AtomicUsize,
    /// Responses to watches, by status and `X-Weir-Cache` or `X-Weir-Shed`.
    pub(super) answers: Mutex<BTreeMap<String, usize>>,
    /// Milliseconds from a change to its event.
    pub(super) lags: Mutex<Vec<f64>>,
    /// The last change that each node saw, as [`change_of`] returns it.
    pub(super) changes: Mutex<BTreeMap<String, u64>>,
}

pub(super) struct Kubelet {
    node: String,
    address: SocketAddr,
    tls: TlsConnector,
    seen: Arc<Seen>,
    /// The zero of the times in changes.
    epoch: Instant,
}

impl Kubelet {
    pub(super) fn new(
        node: &str,
        side: &Side,
        certificate: &Certificate,
        seen: &Arc<Seen>,
        epoch: Instant,
    ) -> Self {
        let (address, tls) = (side.address, connector(&side.ca, certificate));
        Self { node: node.to_owned(), address, tls, seen: Arc::clone(seen), epoch }
    }

    /// Runs until it is dropped. When the connection ends, it opens another one.
    pub(super) async fn run(self) {
        let node = Arc::new(self);
        let paths = watched(&node.node);
        let last_versions: Vec<_> = paths.iter().map(|_| Arc::new(Mutex::new(None))).collect();
        loop {
            if let Some(sender) = node.connect().await {
                let mut tasks = JoinSet::new();
                for (path, last_version) in paths.iter().zip(&last_versions) {
                    let (node, sender) = (Arc::clone(&node), sender.clone());
                    let (path, last_version) = (path.clone(), Arc::clone(last_version));
                    tasks.spawn(
                        async move { node.keep_watching(sender, &path, &last_version).await },
                    );
                }
                node.write_leases(sender).await;
            }
            tokio::time::sleep(jittered(BACK_OFF)).await;
        }
    }

    /// Returns the statuses of its watches.
    pub(super) async fn statuses(&self) -> Vec<u16> {
        let sender = self.connect().await.expect("a connection");
        let mut statuses = Vec::new();
        for path in watched(&self.node) {
            let path = format!("{path}&{WATCH}");
            let response = self.send(sender.clone(), Method::GET, &path, None).await;
            statuses.push(response.map_or(0, |response| response.status().as_u16()));
        }
        statuses
    }

    async fn connect(&self) -> Option<Sender> {
        let tcp = TcpStream::connect(self.address).await.ok()?;
        tcp.set_nodelay(true).ok()?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = TokioIo::new(self.tls.connect(name, tcp).await.ok()?);
        let (sender, driver) = handshake(TokioExecutor::new(), tls).await.ok()?;
        // Its errors also reach the sender.
        tokio::spawn(async move { drop(driver.await) });
        Some(sender)
    }

    async fn send(
        &self,
        mut sender: Sender,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, "kubelet/v1.36.2");
        let body = body.map(Value::to_string).unwrap_or_default();
        sender.ready().await.ok()?;
        sender.send_request(request.body(Full::new(body.into())).ok()?).await.ok()
    }

    async fn keep_watching(&self, sender: Sender, path: &str, last_version: &Mutex<Option<u64>>) {
        while !sender.is_closed() {
            let pause = self.watch(sender.clone(), path, last_version).await;
            tokio::time::sleep(pause.unwrap_or_else(|| jittered(BACK_OFF))).await;
        }
    }

    /// Watches from the state that is known, until the stream ends. Returns the pause that the
    /// server asks for, which client-go keeps exactly.
    async fn watch(
        &self,
        sender: Sender,
        path: &str,
        last_version: &Mutex<Option<u64>>,
    ) -> Option<Duration> {
        let from = *last_version.lock();
        let query = from.map_or_else(
            || WATCH.to_owned(),
            |from| {
                format!(
                    "watch=1&allowWatchBookmarks=true&timeoutSeconds=480&resourceVersion={from}"
                )
            },
        );
        let path = format!("{path}&{query}");
        let response = self.send(sender, Method::GET, &path, None).await?;
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let how = header("x-weir-cache").or_else(|| header("x-weir-shed")).unwrap_or_default();
        let retry_after = header(RETRY_AFTER.as_str());
        let answer = format!("{} {how}", response.status().as_u16());
        *self.seen.answers.lock().entry(answer).or_default() += 1;
        if !response.status().is_success() {
            return Some(Duration::from_secs(retry_after?.parse().ok()?));
        }
        self.read(Frames::new(response), from.is_some(), last_version).await;
        None
    }

    async fn read(&self, mut frames: Frames, has_state: bool, last_version: &Mutex<Option<u64>>) {
        let mut open = has_state.then(|| OpenWatch::new(&self.seen));
        while let Some(frame) = frames.next().await {
            if frame.event == "ERROR" {
                self.seen.expired.fetch_add(1, Ordering::Relaxed);
                *last_version.lock() = None;
                return;
            }
            if frame.ends_state {
                open = open.or_else(|| Some(OpenWatch::new(&self.seen)));
            }
            // The objects of an initial state are in no order of time.
            if open.is_some() && frame.revision > 0 {
                *last_version.lock() = Some(frame.revision);
            }
            self.note(&frame);
        }
    }

    fn note(&self, frame: &Frame) {
        let Some(change) = change_of(frame) else { return };
        self.seen.lags.lock().push(lag(self.epoch, change));
        self.seen.changes.lock().insert(self.node.clone(), change);
    }

    /// Writes its lease until the connection ends.
    async fn write_leases(&self, sender: Sender) {
        let renewed = LEASE_INTERVAL.mul_f64(fastrand::f64());
        let mut next = tokio::time::Instant::now() + renewed;
        let mut lease = None;
        while !sender.is_closed() {
            // Looks at the connection more often than it writes.
            tokio::time::sleep(POLL_INTERVAL).await;
            if tokio::time::Instant::now() < next {
                continue;
            }
            next += LEASE_INTERVAL;
            lease = self.renew(&sender, lease.take()).await;
            let count = match lease {
                Some(_) => &self.seen.leases,
                None => &self.seen.failed_leases,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Renews a lease. One that is not known is read, or created.
    async fn renew(&self, sender: &Sender, lease: Option<Value>) -> Option<Value> {
        let path = format!("{LEASES}/{}", self.node);
        let lease = match lease {
            Some(lease) => Some(lease),
            None => {
                let response = self.send(sender.clone(), Method::GET, &path, None).await?;
                if response.status().as_u16() == 404 { None } else { Some(object(response).await?) }
            }
        };
        let Some(lease) = lease else {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": self.node, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": self.node, "leaseDurationSeconds": 40}});
            let made = self.send(sender.clone(), Method::POST, LEASES, Some(&lease)).await?;
            return object(made).await;
        };
        object(self.send(sender.clone(), Method::PUT, &path, Some(&lease)).await?).await
    }
}

/// Returns the object of a response that succeeded.
async fn object(response: Response<Incoming>) -> Option<Value> {
    if !response.status().is_success() {
        return None;
    }
    serde_json::from_slice(&response.into_body().collect().await.ok()?.to_bytes()).ok()
}

/// Returns the time of the change that an event shows, in microseconds of the test's clock.
pub(super) fn change_of(frame: &Frame) -> Option<u64> {
    if frame.event != "MODIFIED" {
        return None;
    }
    let key = format!("\"{CHANGED}\":\"");
    let after = memmem::find(&frame.bytes, key.as_bytes())? + key.len();
    let digits = frame.bytes.get(after..)?;
    let end = digits.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Returns the milliseconds since a change.
pub(super) fn lag(epoch: Instant, change: u64) -> f64 {
    epoch.elapsed().saturating_sub(Duration::from_micros(change)).as_secs_f64() * 1e3
}

fn connector(ca: &str, certificate: &Certificate) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let chain = CertificateDer::pem_slice_iter(certificate.chain.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config).into()
}

/// Adds up to the same time again, as client-go does.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 + fastrand::f64())
}

/// A watch that is open, counted.
struct OpenWatch(Arc<Seen>);

impl OpenWatch {
    fn new(seen: &Arc<Seen>) -> Self {
        seen.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(seen))
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The annotation with the time of a change.
pub(super) const CHANGED: &str = "changed-at";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const LEASE_INTERVAL: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const BACK_OFF: Duration = Duration::from_millis(800);
