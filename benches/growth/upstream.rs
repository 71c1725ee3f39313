//! An upstream that sends thousands of changes per second: a proxy in front of a simulator, which
//! adds changes of pods to watches of pods. The simulator itself would have to apply each change
//! and manages only some hundreds per second.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{Request, Response, Version, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
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

/// The watches to which changes are added.
type Watches = Arc<Mutex<Vec<mpsc::Sender<Bytes>>>>;
pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

pub(crate) struct Upstream {
    simulator: Simulator,
    pods: Pods,
    kubeconfig: String,
    watches: Watches,
    made: AtomicU64,
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
        let watches = Watches::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(serve(listener, simulator.address(), Arc::clone(&watches)));
        let kubeconfig =
            simulator.kubeconfig("").replace(&simulator.url(), &format!("http://{address}"));
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
        let frame = Bytes::from(frame);
        // Removes watches that have ended.
        self.watches.lock().retain(|watch| watch.blocking_send(frame.clone()).is_ok());
    }
}

async fn serve(listener: TcpListener, simulator: SocketAddr, watches: Watches) {
    while let Ok((tcp, _)) = listener.accept().await {
        tcp.set_nodelay(true).expect("a socket");
        let watches = Arc::clone(&watches);
        let answer = service_fn(move |request| answer(request, simulator, Arc::clone(&watches)));
        tokio::spawn(async move {
            let served = auto::Builder::new(TokioExecutor::new());
            drop(served.serve_connection(TokioIo::new(tcp), answer).await);
        });
    }
}

/// Forwards a request. Adds the changes to the response if it is a watch of pods.
async fn answer(
    request: Request<Incoming>,
    simulator: SocketAddr,
    watches: Watches,
) -> Result<Response<Body>, hyper::Error> {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = request.uri().path() == "/api/v1/pods" && query.contains("watch=");
    let is_watch = is_watch && !query.contains(PROBE);
    let response = forward(request, simulator).await?;
    if !is_watch {
        return Ok(response);
    }
    let (changes, receiver) = mpsc::channel(FRAMES_MAX);
    watches.lock().push(changes);
    let receiver =
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let receiver = receiver.map(|bytes| Ok(Frame::data(bytes)));
    let body = response.map(|body| stream::select(BodyStream::new(body), receiver));
    Ok(body.map(|stream| StreamBody::new(stream).boxed_unsync()))
}

/// Sends a request on a connection of its own.
pub(crate) async fn forward(
    mut request: Request<Incoming>,
    to: SocketAddr,
) -> Result<Response<Body>, hyper::Error> {
    let tcp = TcpStream::connect(to).await.expect("the simulator listens");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await?;
    tokio::spawn(async move { drop(connection.await) });
    // A request over HTTP/1.1 has the authority in a header.
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{to}{path}").parse().expect("a URI");
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    Ok(sender.send_request(request).await?.map(|body| body.boxed_unsync()))
}
