//! The floor: the cost of hyper and rustls alone for the same bytes. This server sends stored
//! responses of the upstream from memory, and forwards the events of one upstream watch to all of
//! its watches. It parses nothing, selects nothing, and accepts one token.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Either;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::changes::Watchable;
use crate::child::{self, Endpoint};
use crate::client::{JSON, PROTOBUF};
use crate::fan_out::{FanOut, Watch};
use crate::server::{Server, UPSTREAM};

/// The contents of `floor.json`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) upstream: Endpoint,
    pub(crate) token: String,
    /// PEM.
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) answers: Vec<Answer>,
}

/// A request, and the file that holds its response body.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) path: String,
    pub(crate) accept: String,
    pub(crate) gzip: bool,
    /// Whether the body is compressed.
    pub(crate) encoded: bool,
    pub(crate) content_type: String,
    pub(crate) file: String,
}

impl Plan {
    pub(crate) fn write(&self, directory: &Path) {
        let text = serde_json::to_vec(self).expect("JSON");
        std::fs::write(directory.join("floor.json"), text).expect("a file");
    }
}

type Body = Either<Full<Bytes>, Watch>;

struct Floor {
    authorization: HeaderValue,
    answers: Vec<(Answer, HeaderMap, Bytes)>,
    pods: FanOut,
    pods_protobuf: FanOut,
    config_maps: FanOut,
}

pub(crate) async fn serve(directory: &Path) {
    let plan = std::fs::read(directory.join("floor.json")).expect("floor.json");
    let plan: Plan = serde_json::from_slice(&plan).expect("the contents of floor.json");
    let upstream = Server::new(UPSTREAM, &plan.upstream.url, &plan.upstream.ca, &plan.token);
    let upstream = Arc::new(upstream);
    let acceptor = acceptor(&plan);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("a bound address"));
    let floor = Arc::new(Floor {
        authorization: upstream.authorization.clone(),
        answers: plan.answers.into_iter().map(|answer| load_answer(directory, answer)).collect(),
        pods: FanOut::new(Arc::clone(&upstream), Watchable::Pods, JSON),
        pods_protobuf: FanOut::new(Arc::clone(&upstream), Watchable::Pods, PROTOBUF),
        config_maps: FanOut::new(upstream, Watchable::ConfigMaps, JSON),
    });
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(connection(tcp, acceptor.clone(), Arc::clone(&floor)));
        }
    });
    child::serve_until_stdin_closes(&Endpoint { url, ca: plan.certificate }).await;
}

fn acceptor(plan: &Plan) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_slice(plan.certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(plan.key.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider supports the versions").with_no_client_auth();
    let mut config = builder.with_single_cert(vec![chain], key).expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn load_answer(directory: &Path, answer: Answer) -> (Answer, HeaderMap, Bytes) {
    let bytes = std::fs::read(directory.join(&answer.file)).expect("a body");
    let value = HeaderValue::from_str(&answer.content_type).expect("a media type");
    let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value)]);
    headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    if answer.encoded {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    (answer, headers, bytes.into())
}

async fn connection(tcp: TcpStream, acceptor: TlsAcceptor, floor: Arc<Floor>) {
    tcp.set_nodelay(true).expect("a socket");
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(250);
    let service = service_fn(|request| {
        let response = floor.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    // The client reports errors of the connection.
    drop(builder.serve_connection(TokioIo::new(tls), service).await);
}

impl Floor {
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        if request.headers().get(header::AUTHORIZATION) != Some(&self.authorization) {
            return status_only(StatusCode::UNAUTHORIZED);
        }
        let value = |name| request.headers().get(name).map_or(&b""[..], HeaderValue::as_bytes);
        let (accept, gzip) = (value(header::ACCEPT), value(header::ACCEPT_ENCODING) == b"gzip");
        let path = request.uri().path_and_query().map_or("", |target| target.as_str());
        let matching = self.answers.iter().find(|(answer, _, _)| {
            answer.path == path && answer.accept.as_bytes() == accept && answer.gzip == gzip
        });
        if let Some((_, headers, bytes)) = matching {
            let mut response = Response::new(Either::Left(Full::new(bytes.clone())));
            response.headers_mut().clone_from(headers);
            return response;
        }
        // The floor supports no selectors.
        if !path.contains("watch=1") || path.contains("Selector") {
            return status_only(StatusCode::NOT_FOUND);
        }
        let protobuf = accept.starts_with(PROTOBUF.as_bytes());
        let events = match (path.contains("configmaps"), protobuf) {
            (true, _) => &self.config_maps,
            (false, true) => &self.pods_protobuf,
            (false, false) => &self.pods,
        };
        Response::new(Either::Right(events.watch()))
    }
}

fn status_only(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = code;
    response
}
