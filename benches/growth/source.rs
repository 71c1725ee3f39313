//! An upstream of any number of config maps, which sends their events as fast as Weir takes them.
//! It makes each frame when it is sent and holds no objects. A simulator answers everything else.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use weir::api::resource::Representation;
use weir::simulator::{Simulator, SimulatorOptions};

use crate::frames::{Frames, Kind, Numbers};
use crate::upstream::{Body, NEVER, forward};

pub(crate) const COLLECTION: &str = "/api/v1/configmaps";
/// A list of one object. A limit would be ignored at resourceVersion 0, as by kube-apiserver.
pub(crate) const LIST_OF_ONE: &str = "/api/v1/namespaces/default/configmaps?resourceVersion=0&fieldSelector=metadata.name%3Dcm-0000000";
/// The most events of one chunk, and the most chunks that wait for a connection: what waits longer
/// is not offered yet.
const CHUNK_MAX: usize = 256;
const CHUNKS_MAX: usize = 4;
/// The resourceVersion before that of the first object: above those of the simulator, with as many
/// digits as a frame has for them.
const FIRST_VERSION: u64 = 100_000_000;

pub(crate) struct Source {
    /// The objects that every list has. Their number does not change.
    objects: u64,
    json: Frames,
    protobuf: Frames,
    resource_version: AtomicU64,
    epoch: Instant,
    watches: Mutex<Vec<(Representation, mpsc::Sender<Bytes>)>>,
    simulator: Simulator,
}

impl Source {
    /// Serves `objects` config maps of `bytes` each. Returns a kubeconfig too.
    pub(crate) async fn start(objects: usize, bytes: usize, is_tls: bool) -> (Arc<Self>, String) {
        let options = SimulatorOptions { bookmark_interval: NEVER, ..SimulatorOptions::default() };
        let source = Arc::new(Self {
            objects: objects as u64,
            json: Frames::new(Representation::Json, bytes),
            protobuf: Frames::new(Representation::Protobuf, bytes),
            resource_version: AtomicU64::new(FIRST_VERSION + objects as u64),
            epoch: Instant::now(),
            watches: Mutex::default(),
            simulator: Simulator::start(options).await.expect("a simulator"),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (acceptor, cluster) = if is_tls {
            let (acceptor, ca) = acceptor();
            let ca = base64::engine::general_purpose::STANDARD.encode(ca);
            let server = format!("https://{address}");
            (Some(acceptor), json!({"server": server, "certificate-authority-data": ca}))
        } else {
            (None, json!({"server": format!("http://{address}")}))
        };
        tokio::spawn(accept(Arc::clone(&source), listener, acceptor));
        let kubeconfig = source.simulator.kubeconfig("");
        let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).expect("JSON");
        *kubeconfig.pointer_mut("/clusters/0/cluster").expect("a cluster") = cluster;
        (source, kubeconfig.to_string())
    }

    /// Times of events are relative to it.
    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    pub(crate) fn resource_version(&self) -> u64 {
        self.resource_version.load(Ordering::Relaxed)
    }

    /// Takes the next resourceVersion, without an event.
    pub(crate) fn note_unseen_change(&self) {
        self.resource_version.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all watches. None can resume, so that Weir lists again.
    pub(crate) fn end_watches(&self) {
        self.watches.lock().clear();
    }

    /// Offers `rate` events a second for `time`, or as many as are taken, and returns their number.
    /// `events` says of the n-th which it is. The last one has the time `last_micros`.
    pub(crate) fn send(
        &self,
        rate: usize,
        time: Duration,
        events: impl Fn(u64) -> (Kind, u64),
        last_micros: u64,
    ) -> usize {
        let (start, mut sent) = (Instant::now(), 0);
        loop {
            let is_last = start.elapsed() >= time;
            let due = (start.elapsed().as_secs_f64() * rate as f64) as usize;
            let count = if is_last { 1 } else { due.saturating_sub(sent).min(CHUNK_MAX) };
            let micros =
                if is_last { last_micros } else { self.epoch.elapsed().as_micros() as u64 };
            if count > 0 {
                let first = self.resource_version.fetch_add(count as u64, Ordering::Relaxed) + 1;
                let chunk = (0..count as u64).map(|index| {
                    let (kind, object) =
                        if is_last { (Kind::Modified, 0) } else { events(sent as u64 + index) };
                    (kind, Numbers { object, resource_version: first + index, micros })
                });
                self.send_chunk(chunk);
                sent += count;
            }
            if is_last {
                return sent;
            }
            if sent >= due {
                std::thread::park_timeout(Duration::from_micros(500));
            }
        }
    }

    /// Blocks while a watch has no room.
    fn send_chunk(&self, events: impl Iterator<Item = (Kind, Numbers)> + Clone) {
        self.watches.lock().retain(|(representation, watch)| {
            let mut chunk = Vec::new();
            for (kind, numbers) in events.clone() {
                self.frames(*representation).push(&mut chunk, kind, numbers);
            }
            watch.blocking_send(chunk.into()).is_ok()
        });
    }

    fn frames(&self, representation: Representation) -> &Frames {
        if representation == Representation::Json { &self.json } else { &self.protobuf }
    }

    /// Answers a request for the collection.
    fn answer(self: &Arc<Self>, query: &str, headers: &HeaderMap) -> Response<Body> {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let is_protobuf = accept.is_some_and(|text| text.contains("protobuf"));
        let (representation, content_type, watch_type) = if is_protobuf {
            let list = "application/vnd.kubernetes.protobuf";
            (Representation::Protobuf, list, "application/vnd.kubernetes.protobuf;stream=watch")
        } else {
            (Representation::Json, "application/json", "application/json")
        };
        let has = |text: &str| query.contains(text);
        if !has("watch=") {
            // A request for a page wants the number of objects only.
            let objects = if has("limit=") { 0 } else { self.objects };
            let chunks = self.list_chunks(representation, objects);
            return respond(200, content_type, stream_body(chunks));
        }
        if has("labelSelector") {
            // A watch by which Weir would learn the present resourceVersion: it stays silent.
            return respond(200, watch_type, stream_body(stream::pending()));
        }
        let has_initial = has("sendInitialEvents=true");
        if !has_initial && !has(&format!("resourceVersion={}", self.resource_version())) {
            return respond(410, "application/json", Full::new(EXPIRED.into()));
        }
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        self.watches.lock().push((representation, sender));
        let receiver = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        if has_initial {
            let end = self.resource_version();
            let numbers = Numbers { object: 0, resource_version: end, micros: 0 };
            let mut bookmark = Vec::new();
            self.frames(representation).push(&mut bookmark, Kind::InitialEnd, numbers);
            let objects = self.copies(representation, Kind::Added, self.objects);
            let initial = stream::iter(objects.chain([bookmark]).map(Bytes::from));
            return respond(200, watch_type, stream_body(initial.chain(receiver)));
        }
        respond(200, watch_type, stream_body(receiver))
    }

    /// A list of the first `objects`, with the number of the others.
    fn list_chunks(
        self: &Arc<Self>,
        representation: Representation,
        objects: u64,
    ) -> impl Stream<Item = Bytes> + Send + use<> {
        let (shown, remaining) = (objects as usize, (self.objects - objects) as usize);
        let (head, tail) =
            self.frames(representation).list_ends(shown, self.resource_version(), remaining);
        let items = self.copies(representation, Kind::Item, objects);
        let chunks = [head].into_iter().chain(items).chain([tail.to_vec()]);
        stream::iter(chunks.map(Bytes::from))
    }

    /// The first `objects`, in chunks.
    fn copies(
        self: &Arc<Self>,
        representation: Representation,
        kind: Kind,
        objects: u64,
    ) -> impl Iterator<Item = Vec<u8>> + Send + use<> {
        let source = Arc::clone(self);
        (0..objects).step_by(CHUNK_MAX).map(move |first| {
            let mut chunk = Vec::new();
            for object in first..objects.min(first + CHUNK_MAX as u64) {
                let resource_version = FIRST_VERSION + 1 + object;
                let numbers = Numbers { object, resource_version, micros: 0 };
                source.frames(representation).push(&mut chunk, kind, numbers);
            }
            // No comma follows the last item of a list in JSON.
            if objects <= first + CHUNK_MAX as u64 && chunk.last() == Some(&b',') {
                chunk.pop();
            }
            chunk
        })
    }
}

const EXPIRED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;

fn stream_body(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk)))).boxed_unsync()
}

fn respond<B>(status: u16, content_type: &str, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Debug,
{
    let body = body.map_err(|error| unreachable!("{error:?}")).boxed_unsync();
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, content_type);
    response.body(body).expect("a response")
}

async fn accept(source: Arc<Source>, listener: TcpListener, acceptor: Option<TlsAcceptor>) {
    while let Ok((tcp, _)) = listener.accept().await {
        tcp.set_nodelay(true).expect("a socket");
        let source = Arc::clone(&source);
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            match acceptor {
                None => serve(source, tcp).await,
                Some(acceptor) => match acceptor.accept(tcp).await {
                    Ok(tls) => serve(source, tls).await,
                    Err(error) => println!("{error}"),
                },
            }
        });
    }
}

async fn serve(source: Arc<Source>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let simulator = source.simulator.address();
    let service = service_fn(move |request: Request<Incoming>| {
        let source = Arc::clone(&source);
        async move {
            if request.uri().path() != COLLECTION {
                return forward(request, simulator).await;
            }
            let query = request.uri().query().unwrap_or_default();
            Ok(source.answer(query, request.headers()))
        }
    });
    let served = auto::Builder::new(TokioExecutor::new());
    drop(served.serve_connection(TokioIo::new(io), service).await);
}

/// Returns an acceptor of HTTP/2 over TLS, and the certificate that its clients trust.
fn acceptor() -> (TlsAcceptor, String) {
    let generated = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let generated = generated.expect("a certificate");
    let key = PrivateKeyDer::try_from(generated.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![generated.cert.der().clone()], key)
        .expect("a certificate and its key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (Arc::new(config).into(), generated.cert.pem())
}
