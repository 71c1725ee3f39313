//! Servers that stand for the API server in tests, in the test's own process: HTTP/1.1 or HTTP/2,
//! with or without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::UpstreamConfig;
use crate::config::endpoints::EndpointsConfig;
use crate::config::seams::Connection;
use crate::upstream::Upstream;
use crate::upstream::availability::{Availability, AvailabilityMetrics};
use crate::upstream::metrics::UpstreamMetrics;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answer> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct ServerOptions {
    pub(crate) http2: bool,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) max_streams: u32,
}

impl ServerOptions {
    pub(crate) fn http1() -> Self {
        Self { http2: false, tls: None, max_streams: 100 }
    }

    pub(crate) fn http2() -> Self {
        Self { http2: true, tls: None, max_streams: 100 }
    }
}

/// A running server. Dropping it stops the server and closes its connections.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// The number of accepted connections.
    pub(crate) accepted: Arc<AtomicUsize>,
    /// Cancelled and replaced by [`Self::close_connections`].
    connections: Arc<Mutex<CancellationToken>>,
    _stop: DropGuard,
}

impl TestServer {
    pub(crate) async fn start<F, R>(options: ServerOptions, handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |request| Box::pin(handler(request)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let connections = Arc::new(Mutex::new(CancellationToken::new()));
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let (count, current) = (accepted.clone(), connections.clone());
        tokio::spawn(async move {
            loop {
                let tcp = tokio::select! {
                    accept = listener.accept() => accept.unwrap().0,
                    () = stop.cancelled() => return,
                };
                let number = ConnectionNumber(count.fetch_add(1, Ordering::SeqCst));
                let (options, handler, stop) = (options.clone(), handler.clone(), stop.clone());
                let closed = current.lock().clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = serve(tcp, number, options, handler) => {}
                        () = closed.cancelled() => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
        });
        Self { address, accepted, connections, _stop }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Closes all connections, but keeps listening, because another test could otherwise get the
    /// same port.
    pub(crate) fn close_connections(&self) {
        let before = std::mem::take(&mut *self.connections.lock());
        before.cancel();
    }

    /// Returns an upstream without credentials that connects to this server.
    pub(crate) async fn upstream(&self, http2: bool) -> Upstream {
        let config = config(Some(format!("http://{}", self.address)), None, http2);
        Upstream::new(&config, metrics()).await.unwrap()
    }
}

/// Serves HTTP/1.1 on one connection until it ends.
pub(crate) async fn serve_http1<S, F, R>(stream: S, handler: F)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let served =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    drop(served.await);
}

/// The number of a request's connection, in the order in which they were accepted. An extension of
/// the requests that a [`TestServer`] handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionNumber(pub(crate) usize);

async fn serve(
    tcp: tokio::net::TcpStream,
    number: ConnectionNumber,
    options: ServerOptions,
    handler: Handler,
) {
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(number);
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let (io, http2): (Box<dyn Connection>, _) = match &options.tls {
        Some(tls) => match tokio_rustls::TlsAcceptor::from(tls.clone()).accept(tcp).await {
            Ok(stream) => {
                let http1 = stream.get_ref().1.alpn_protocol() == Some(b"http/1.1");
                (Box::new(stream), options.http2 && !http1)
            }
            Err(_) => return,
        },
        None => (Box::new(tcp), options.http2),
    };
    if http2 {
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(options.max_streams)
            // This is kube-apiserver's limit.
            .max_header_list_size(1 << 20)
            .serve_connection(TokioIo::new(io), service);
        drop(served.await);
    } else {
        let served = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        drop(served.await);
    }
}

/// Returns the availability of an upstream that is never checked.
pub(crate) fn availability() -> Availability {
    Availability::new(AvailabilityMetrics::register(&prometheus::Registry::new()).unwrap())
}

pub(crate) fn metrics() -> UpstreamMetrics {
    UpstreamMetrics::register(&prometheus::Registry::new()).unwrap()
}

pub(crate) fn config(
    address: Option<String>,
    kubeconfig: Option<PathBuf>,
    http2: bool,
) -> UpstreamConfig {
    UpstreamConfig {
        kubeconfig,
        endpoints: EndpointsConfig {
            static_urls: address.into_iter().collect(),
            ..EndpointsConfig::default()
        },
        http2,
        ..UpstreamConfig::default()
    }
}

/// Returns a response with this status code, whose body is sent at once.
pub(crate) fn answer(code: u16, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// Returns a channel's sender and a body that consists of the bytes sent. The body ends when the
/// sender is dropped.
pub(crate) fn channel_body() -> (tokio::sync::mpsc::Sender<Bytes>, UnsyncBoxBody<Bytes, Infallible>)
{
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(64);
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok(http_body::Frame::data(bytes)), receiver))
    });
    (sender, http_body_util::StreamBody::new(stream).boxed_unsync())
}

/// Returns an address that refuses connections until the returned socket is dropped: the socket is
/// bound to it but does not listen.
pub(crate) fn refusing_address() -> (tokio::net::TcpSocket, SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A client certificate and its private key.
pub(crate) struct Issued {
    /// The certificate in DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

/// A certificate authority for tests.
pub(crate) struct Ca {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub(crate) pem: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// Issues a client certificate with this common name.
    pub(crate) fn client(&self, common_name: &str) -> Issued {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.der().to_vec(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// Returns the TLS configuration of an HTTP/1.1 server for these DNS names or addresses. The
    /// server requests a client certificate of this authority, and accepts clients without one.
    pub(crate) fn server_with_client_auth(&self, names: &[&str]) -> Arc<rustls::ServerConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let plain = self.server(names, &[]);
        let verifier = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let mut tls = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(plain.cert_resolver.clone());
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(tls)
    }

    /// Returns the TLS configuration of a server with a certificate for these DNS names or
    /// addresses. `alpn` has the protocols that the server offers.
    pub(crate) fn server(&self, names: &[&str], alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(tls)
    }
}
