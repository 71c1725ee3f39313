//! An aggregated API server: over TLS, and with an answer of its own for each user, whom
//! kube-aggregator names in `X-Remote-User`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The server, which serves `things` of `example.com/v1`: each user has one, which has the user's
/// name.
pub(crate) struct AggregatedServer {
    address: SocketAddr,
    state: Arc<State>,
}

/// The state that the connections share.
struct State {
    /// Whether it closes connections without an answer.
    is_down: AtomicBool,
    /// The resourceVersion of its lists and objects.
    resource_version: AtomicU64,
}

impl AggregatedServer {
    /// Starts it with the serving certificate in `dir`.
    pub(crate) async fn start(dir: &Path) -> Self {
        let chain = CertificateDer::pem_file_iter(dir.join("server.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { is_down: AtomicBool::new(false), resource_version: AtomicU64::new(5) };
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&shared)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets it close each connection without an answer, or answer again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Sets the resourceVersion of its lists and objects, which has nothing to do with etcd's.
    pub(crate) fn set_resource_version(&self, resource_version: u64) {
        self.state.resource_version.store(resource_version, Ordering::Relaxed);
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let answered = match state.is_down.load(Ordering::Relaxed) {
            true => Err(std::io::Error::other("down")),
            false => Ok(answer(&request, state.resource_version.load(Ordering::Relaxed))),
        };
        std::future::ready(answered)
    });
    let served =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // The connection of a server that is down ends with an error.
    drop(served.await);
}

type Body = BoxBody<Bytes, std::convert::Infallible>;

fn answer(request: &Request<Incoming>, at: u64) -> Response<Body> {
    let user = request.headers().get("x-remote-user");
    let user = user.and_then(|user| user.to_str().ok()).unwrap_or("nobody");
    let path = request.uri().path();
    let collection =
        ["/apis/example.com/v1/things", "/apis/example.com/v1/namespaces/default/things"];
    let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
    let name = path.strip_prefix(collection[1]).and_then(|rest| rest.strip_prefix('/'));
    match (path, name) {
        ("/apis/example.com/v1", _) => json_response(200, &resources()),
        (path, _) if collection.contains(&path) && is_watch => watch(user, at),
        (path, _) if collection.contains(&path) => json_response(
            200,
            &json!({"apiVersion": "example.com/v1", "kind": "ThingList",
                "metadata": {"resourceVersion": at.to_string()}, "items": [thing(user, at)]}),
        ),
        (_, Some(name)) if name.strip_suffix("-own") == Some(user) => {
            json_response(200, &thing(user, at))
        }
        _ => json_response(
            404,
            &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404,
                "reason": "NotFound", "message": format!("{user} has no such thing")}),
        ),
    }
}

/// Returns a watch that sends the user's thing and stays open.
fn watch(user: &str, at: u64) -> Response<Body> {
    let event = json!({"type": "ADDED", "object": thing(user, at)}).to_string() + "\n";
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from(event)))]);
    let body = StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()));
    let response = Response::builder().header("content-type", "application/json");
    response.body(BodyExt::boxed(body)).unwrap()
}

fn json_response(status: u16, value: &Value) -> Response<Body> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::from(value.to_string()).boxed()).unwrap()
}

fn thing(user: &str, at: u64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": format!("{user}-own"), "namespace": "default", "uid": user, "resourceVersion": at.to_string()}})
}

fn resources() -> Value {
    json!({"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "example.com/v1",
        "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]}]})
}
