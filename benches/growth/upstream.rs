//! An upstream that sends thousands of changes per second: a proxy in front of a simulator, which
//! adds changes of pods to watches of pods. The simulator itself would have to apply each change
//! and manages only some hundreds per second.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::pods::{self, PodId, Pods};

/// The number of frames queued for a watch. The writer blocks when the queue is full.
const FRAMES_MAX: usize = 10_000;
/// Disables the simulator's bookmarks, whose revisions would be older than those of the added
/// changes.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3600);
/// Marks the watches by which Weir finds out the upstream's current revision. They have a selector
/// that matches nothing, so no changes are added to them.
const PROBE: &str = "labelSelector";

pub(crate) struct Upstream {
    simulator: Simulator,
    pods: Pods,
    kubeconfig: String,
    watches: Arc<Watches>,
    made: AtomicU64,
}

/// The watches of a collection, to which changes are added.
pub(crate) struct Watches {
    collection: &'static str,
    frames_max: usize,
    open: Mutex<Vec<mpsc::Sender<Bytes>>>,
}

impl Watches {
    /// Each with a queue of up to `frames_max` frames.
    pub(crate) fn of(collection: &'static str, frames_max: usize) -> Self {
        Self { collection, frames_max, open: Mutex::default() }
    }

    /// Serves what a simulator answers, with the changes. Returns a kubeconfig.
    pub(crate) async fn serve(self: &Arc<Self>, simulator: &Simulator) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(serve(listener, simulator.address(), Arc::clone(self)));
        simulator.kubeconfig("").replace(&simulator.url(), &format!("http://{address}"))
    }

    /// Sends frames to each. Blocks while a queue is full.
    pub(crate) fn send(&self, frames: &Bytes) {
        // Removes watches that have ended.
        self.open.lock().retain(|watch| watch.blocking_send(frames.clone()).is_ok());
    }
}

impl Upstream {
    /// Starts the upstream with `count` pods. The caller constructs `pods`, because that needs
    /// another runtime.
    pub(crate) async fn start(pods: Pods, count: usize) -> Self {
        let options = SimulatorOptions { bookmark_interval: NEVER, ..SimulatorOptions::default() };
        let simulator = Simulator::start(options).await.expect("a simulator");
        let create = |object: Value| {
            simulator.store().create(object).expect("the object is created");
        };
        for number in 0..10 {
            create(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": pods::namespace(number)}}));
        }
        for id in (0..count).map(PodId::nth) {
            let (namespace, node) = (pods::namespace(id.namespace), pods::node(id.node));
            let half = format!("half-{}", id.index % 2);
            create(pods::pod(&format!("{:06}", id.index), &namespace, &node, &half));
        }
        let watches = Arc::new(Watches::of("/api/v1/pods", FRAMES_MAX));
        let kubeconfig = watches.serve(&simulator).await;
        Self { simulator, pods, kubeconfig, watches, made: AtomicU64::new(0) }
    }

    pub(crate) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Returns the revision of the last change.
    pub(crate) fn resource_version(&self) -> u64 {
        match self.made.load(Ordering::Relaxed) {
            0 => self.simulator.store().revision(),
            made => pods::resource_version(made).0,
        }
    }

    /// Sends a change of a pod that contains its time `micros`. Blocks while a watch's queue is
    /// full.
    pub(crate) fn change(&self, index: usize, micros: u128) {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let mut frame = br#"{"type":"MODIFIED","object":"#.to_vec();
        frame.extend(self.pods.changed(PodId::nth(index).at(made), micros));
        frame.extend(b"}\n");
        self.watches.send(&frame.into());
    }
}

async fn serve(listener: TcpListener, simulator: SocketAddr, watches: Arc<Watches>) {
    while let Ok((tcp, _)) = listener.accept().await {
        tcp.set_nodelay(true).expect("a socket");
        let watches = Arc::clone(&watches);
        let answer = service_fn(move |request| answer(request, simulator, Arc::clone(&watches)));
        let serve = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(tcp), answer);
        tokio::spawn(async move { drop(serve.await) });
    }
}

/// Forwards a request. Adds the changes to the response if it is a watch of pods.
async fn answer(
    request: Request<Incoming>,
    simulator: SocketAddr,
    watches: Arc<Watches>,
) -> Result<Response<UnsyncBoxBody<Bytes, hyper::Error>>, hyper::Error> {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = request.uri().path() == watches.collection && query.contains("watch=");
    let is_watch = is_watch && !query.contains(PROBE);
    let tcp = TcpStream::connect(simulator).await.expect("the simulator listens");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await?;
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    if !is_watch {
        return Ok(response.map(BodyExt::boxed_unsync));
    }
    let (changes, receiver) = mpsc::channel(watches.frames_max);
    watches.open.lock().push(changes);
    let receiver =
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let receiver = receiver.map(|bytes| Ok(Frame::data(bytes)));
    let body = response.map(|body| stream::select(BodyStream::new(body), receiver));
    Ok(body.map(|stream| StreamBody::new(stream).boxed_unsync()))
}
